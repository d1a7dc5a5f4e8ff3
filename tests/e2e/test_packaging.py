"""What `make dist` packs, of the program that is tested."""

import gzip
import os
import re
import shutil
import subprocess
from fnmatch import fnmatch

import harness
import pytest
from conftest import cannot_run


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    for tool in ("strip", "objdump", "dpkg-deb"):
        if not shutil.which(tool):
            cannot_run(f"there is no {tool}")
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([harness.ROOT / "packaging" / "pack.sh", harness.program(), folder], check=True, capture_output=True,
                   env=os.environ | {"PACK_LEVEL": "1"})
    return folder


def check(program) -> None:
    """It runs, and has been stripped."""
    done = subprocess.run([program, "run", "-e", "SELECT 6 * 7 AS a", "--format", "csv"], capture_output=True, text=True)
    assert done.stdout == "a\n42\n", done.stderr
    assert "no symbols" in subprocess.run(["nm", program], capture_output=True, text=True).stderr


def check_links(folder) -> None:
    """All links between files of the documentation lead somewhere."""
    pages = [folder / "README.md", *(folder / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if ":" not in link]
    assert len(links) > 50 and {page for page, link in links if not (page.parent / link).exists()} == set()


def test_the_tarball_has_the_program_and_what_belongs_to_it(packages, tmp_path):
    [tarball] = packages.glob("millstream-*-linux-*.tar.gz")
    subprocess.run(["tar", "-xzf", tarball, "-C", tmp_path], check=True)
    [folder] = tmp_path.iterdir()
    assert folder.name == tarball.name.removesuffix(".tar.gz")
    check(folder / "millstream")
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert (folder / "README.md").read_text() == (harness.ROOT / "README.md").read_text()
    check_links(folder)
    pages = {path.name for path in (folder / "man").iterdir()}
    assert {"millstream.1.gz", "millstream-run.1.gz", "millstream-test.1.gz"} <= pages
    assert gzip.decompress((folder / "man" / "millstream-run.1.gz").read_bytes()).startswith(b".ie")
    for shell in ("bash", "zsh", "fish"):
        assert "explain" in (folder / "completions" / f"millstream.{shell}").read_text()


def test_the_debian_package_says_what_it_needs(packages, tmp_path):
    [package] = packages.glob("millstream_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    check(tmp_path / "usr/bin/millstream")
    for path in ("usr/share/man/man1/millstream.1.gz", "usr/share/bash-completion/completions/millstream",
                 "usr/share/zsh/vendor-completions/_millstream", "usr/share/fish/vendor_completions.d/millstream.fish",
                 "usr/share/doc/millstream/copyright"):
        assert (tmp_path / path).stat().st_size > 0, path
    check_links(tmp_path / "usr/share/doc/millstream")
    # The same program gives the same package, whenever it is packed.
    assert {path.stat().st_mtime for path in tmp_path.rglob("*")} == {0}
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    symbols = subprocess.run(["objdump", "-T", harness.program()], capture_output=True, text=True, check=True).stdout
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(\d+\.\d+)", symbols))
    assert f"libc6 (>= {newest[0]}.{newest[1]})" in fields, fields


def test_sums_and_the_image_stand_beside_them(packages):
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=packages, check=True, capture_output=True)
    assert len((packages / "SHA256SUMS").read_text().splitlines()) == 2
    text = (packages / "Containerfile").read_text()
    [pattern] = re.findall(r"^ADD (\S+)", text, re.MULTILINE)
    assert len(list(packages.glob(pattern))) == 1
    # The tarball of another version may be there, too.
    [name] = [path.name for path in packages.glob(pattern)]
    version = name.split("-")[1]
    [directory] = re.findall(r"ln -s /opt/(\S+)/millstream ", text)
    for other in (name, name.replace(version, "0.0.0"), name.replace(version, version + "0")):
        own = other == name
        assert (fnmatch(other, pattern), fnmatch(other.removesuffix(".tar.gz"), directory)) == (own, own), other
