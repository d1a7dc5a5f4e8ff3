"""A stock Debian kernel with its RDMA modules: fetched with apt, unpacked without installing it, and
kept in the user's cache."""

import lzma
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Always depends on the newest kernel that this Debian release has.
META_PACKAGE = "linux-image-amd64"

# What the guest loads, with whatever these need. The driver computes checksums through the crypto
# interface, by name: nothing but this list says that it needs crc32_generic, and without it the
# driver does not attach. Kernels that have it built in, or no longer have it, are content.
MODULES = [
    "crc32_generic",
    "virtio_pci",
    "virtio_net",
    "dummy",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
]
MAY_BE_MISSING = {"crc32_generic"}


@dataclass
class Kernel:
    """Where the kernel's parts are: `modules` in the order in which they must be loaded."""

    package: str
    image: Path
    modules: list[Path]


def get(package=None):
    """The kernel of that package, by default Debian's newest; downloaded if it is not cached."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millstream" / "rdma"
    package = package or newest_package()
    directory = cache / package
    if not (directory / "order").exists():
        cache.mkdir(parents=True, exist_ok=True)
        print(f"Fetching {package} into {cache}", flush=True)
        fetch(package, directory)
    order = (directory / "order").read_text().split()
    return Kernel(package, directory / "vmlinuz", [directory / name for name in order])


def newest_package():
    for update_first in [False, True]:
        if update_first:
            update()
        run = subprocess.run(["apt-cache", "depends", META_PACKAGE], capture_output=True, text=True)
        found = re.search(r"Depends: (linux-image-\d\S+)", run.stdout)
        if found:
            return found.group(1)
    raise SystemExit(f"error: apt knows no package {META_PACKAGE}: {run.stderr.strip()}")


def update():
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "apt-get", "update", "-qq"], check=True)


def fetch(package, directory):
    """Downloads the package and keeps what the guest needs of it, or nothing."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        scratch = Path(scratch)
        scratch.chmod(0o755)
        download(package, scratch)
        tree, kept = scratch / "tree", scratch / "kept"
        (archive,) = scratch.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
        kept.mkdir()
        (image,) = (tree / "boot").glob("vmlinuz-*")
        shutil.copy(image, kept / "vmlinuz")
        # In newer releases /lib is a link to /usr/lib.
        (modules,) = [*tree.glob("lib/modules/*"), *tree.glob("usr/lib/modules/*")]
        order = keep_modules(modules, kept)
        (kept / "order").write_text("\n".join(order) + "\n")
        shutil.rmtree(directory, ignore_errors=True)
        kept.rename(directory)


def download(package, directory):
    command = ["apt-get", "download", "-qq", package]
    if subprocess.run(command, cwd=directory).returncode != 0:
        # The list of packages may be older than the archive.
        update()
        subprocess.run(command, cwd=directory, check=True)


def keep_modules(tree, target):
    """Copies the modules that MODULES need, uncompressed; returns the order to load them in."""
    files = {module_name(path): path for path in tree.rglob("*.ko*")}
    builtin = {module_name(Path(line)) for line in (tree / "modules.builtin").read_text().split()}
    order = []

    def keep(name):
        file = f"{name}.ko"
        if file in order or name in builtin:
            return
        if name not in files:
            if name in MAY_BE_MISSING:
                return
            raise SystemExit(f"error: the kernel has no module {name}")
        data = read_module(files[name])
        for needed in module_needs(data):
            keep(needed)
        (target / file).write_bytes(data)
        order.append(file)

    for name in MODULES:
        keep(name)
    return order


def module_name(path):
    return path.name.split(".")[0].replace("-", "_")


def read_module(path):
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def module_needs(data):
    """The modules that this one needs, as its `.modinfo` section says."""
    found = re.search(rb"\0depends=([^\0]*)\0", data)
    return found.group(1).decode().replace("-", "_").split(",") if found and found.group(1) else []
