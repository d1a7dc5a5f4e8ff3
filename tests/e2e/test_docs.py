"""The examples of README.md, docs/connectors.md, commands.md, sql.md, functions.md, nexmark.md and testing.md do
what the pages say.

Each section of a page is a test in a directory of its own, in which its examples run from top to bottom, with nothing but
what readers see: no example has an input that stands in a comment. CONTRIBUTING.md explains how a page says what an example
needs and what it prints.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import harness
import pytest

PAGES = ("README", "connectors", "commands", "sql", "functions", "nexmark", "testing")
SECONDS = 60
# Pages whose commands begin where the project lies.
AT_ROOT = ("README", "nexmark")
# A block of a page: a fence with its language and, if it is a file, its name; or a comment with its directive.
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$"
                   r"|^<!-- (?P<directive>\w+):\s(?P<hidden>.*?)-->$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """`kind` is the language of a fence, or the directive of a comment."""

    kind: str
    name: str | None
    text: str
    line: int
    # What stands between the block before it, or the heading, and this one.
    before: str = ""


@dataclass
class Section:
    """What stands under a heading, after what stands above the first one; or a page without such headings."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def sections(page: str) -> Iterator[Section]:
    text = next(path for path in (harness.ROOT / f"docs/{page}.md", harness.ROOT / f"{page}.md") if path.exists()).read_text()
    starts = [0, *(m.start() for m in re.finditer(r"^## ", text, re.MULTILINE))]
    common: list[Block] = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        blocks = blocks_of(text[start:end], text.count("\n", 0, start) + 1)
        if start == 0 and len(starts) > 1:
            common = blocks
        elif blocks:
            yield Section(text[start:end].split("\n")[0].strip("# "), common + blocks)


def blocks_of(text: str, first_line: int) -> list[Block]:
    blocks, end = [], 0
    for found in BLOCK.finditer(text):
        line = first_line + text.count("\n", 0, found.start())
        kind, content = found["language"] or found["directive"], found["text"] or (found["hidden"] or "").strip()
        blocks.append(Block(kind, found["name"], content, line, text[end:found.start()]))
        end = found.end()
    return blocks


class Reader:
    """Does in a directory what a section says, as its reader would."""

    def __init__(self, page: str, folder: Path, programs: Path):
        self.page, self.folder = page, folder
        self.environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
        # The exit code of the next example that fails.
        self.code = 0
        # What the last SQL example has printed, until a block shows it.
        self.printed: str | None = None

    def read(self, section: Section) -> None:
        told = ""
        for at in section.blocks:
            told += at.before
            if at.name:
                assert f"`{at.name}`" in told, f"{self.page}.md:{at.line}: the text does not name the file {at.name}"
                self.write(at)
            else:
                getattr(self, f"read_{at.kind}", self.read_printed)(at)
        scripts = {at.name for at in section.blocks if at.kind == "sql" and at.name}
        commands = [at.text for at in section.blocks if at.kind == "console"]
        # A command may name the directory of scripts.
        unused = [name for name in scripts
                  if not any(name in command or f"test {Path(name).parent}" in command for command in commands)]
        assert unused == [], f"{self.page}.md: no command runs {unused}"
        assert self.code == 0, "a comment is followed by no example"

    def write(self, at: Block) -> None:
        path = self.folder / at.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(at.text)

    def read_until(self, at: Block) -> None:
        """What readers wait for by themselves before they go on."""
        done = self.shell(f"until {at.text}; do sleep 0.1; done")
        assert done.returncode == 0, f"{self.page}.md:{at.line}: {done.stderr}"

    def read_fails(self, at: Block) -> None:
        self.code = int(at.text)

    def read_sql(self, at: Block) -> None:
        """A script that runs as it is."""
        script = self.folder / "example.sql"
        script.write_text(at.text)
        done = harness.run("run", script.name, "--format", "csv", cwd=self.folder, timeout=SECONDS)
        self.judge(at.line, done.code, done.stderr, script.read_text())
        assert harness.sound(done) == []
        self.printed = done.stdout.decode()

    def read_printed(self, at: Block) -> None:
        """What the SQL example before it prints."""
        printed, self.printed = self.printed, None
        assert printed is not None, f"{self.page}.md:{at.line}: no example before this block of '{at.kind}'"
        self.compare(at.line, at.text, printed)

    def read_console(self, at: Block) -> None:
        """Commands after `$ `, and between them what each prints: on stdout, or on stderr if it fails."""
        steps = re.split(r"^\$ ", at.text, flags=re.MULTILINE)
        assert steps[0] == "" and len(steps) > 1, f"{self.page}.md:{at.line}: begins with no command"
        for number, step in enumerate(steps[1:], 2):
            command, shown = re.match(r"((?:.*\\\n)*.*)\n((?:.|\n)*)", step).groups()
            done = self.shell(command)
            failing = self.code if number == len(steps) else 0
            self.judge(at.line, done.returncode, done.stderr, command, failing)
            if shown:
                self.compare(at.line, shown, (failing and done.stderr) or done.stdout)

    def shell(self, command: str) -> subprocess.CompletedProcess:
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)

    def judge(self, line: int, code: int, stderr: str, what: str, expected: int | None = None) -> None:
        expected = self.code if expected is None else expected
        assert code == expected, f"{self.page}.md:{line}: exit code {code}, not {expected}\n{what}\n{stderr}"
        self.code = 0 if expected else self.code

    def compare(self, line: int, shown: str, printed: str) -> None:
        """`…` stands for any text; a line of it for any lines."""
        lines = shown.strip("\n").split("\n")
        pattern = "".join(r"(?:.*\n)*" if text == "…" else re.escape(text).replace("…", ".*") + r"\n" for text in lines)
        is_so = re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None
        assert is_so, f"{self.page}.md:{line} shows\n{shown}\nbut the program prints\n{printed}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A directory for PATH, with `millstream` in it."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "millstream").symlink_to(harness.program())
    return folder


ALL = [(page, section) for page in PAGES for section in sections(page)]


@pytest.mark.parametrize("page, section", ALL, ids=[f"{page}: {section.title}" for page, section in ALL])
def test_every_example_does_what_the_page_says(page, section, tmp_path, programs):
    if page in AT_ROOT:
        (tmp_path / "examples").symlink_to(harness.ROOT / "examples")
        (tmp_path / "target").mkdir()
        (tmp_path / "target/release").symlink_to(programs)
    Reader(page, tmp_path, programs).read(section)


def test_there_are_examples_on_every_page():
    for page in PAGES:
        kinds = [b.kind for at, section in ALL for b in section.blocks if at == page]
        assert kinds.count("sql") + kinds.count("console") >= (2 if page == "README" else 3), page


def test_every_function_has_an_example():
    listed = harness.run("run", "-e", "SHOW FUNCTIONS", "--format", "csv")
    title, *names = listed.stdout.decode().splitlines()
    assert title == "function name" and len(names) > 100, listed.stderr
    # Called: what stands before a bracket, as MAP[…] does, and the words that take none.
    called = {word for page, section in ALL if page in ("sql", "functions")
              for at in section.blocks if at.kind == "sql" and not at.name
              for word in re.findall(r"\b\w+(?=[(\[])|\b(?:CURRENT_|LOCALTIME)\w*", at.text)}
    assert [name for name in names if name not in called] == []


def test_every_setting_is_described_and_exists():
    page = (harness.ROOT / "docs/settings.md").read_text()
    described = re.findall(r"^\| `([a-z._]+)` \|", page, re.MULTILINE)
    result = harness.run("run", "-e", "SELECT 1", "--set", "zzzzzzzzzzzz=1", stats=False)
    listed = re.search(r"the settings are (.*)", result.stderr)[1]
    assert sorted(described) == sorted(name.strip() for name in listed.split(","))


@pytest.mark.parametrize("text, complaint", [
    ("```sql\nSELECT 1 AS a;\n```\n```csv\na\n2\n```\n", "shows"),
    ("```sql\nSELECT x;\n```\n", "exit code 2, not 0"),
    ("```console\n$ millstream run -e 'SELECT 1 AS a' --format csv\na\n2\n```\n", "shows"),
    ("<!-- fails: 1 -->\n```console\n$ true\n```\n", "exit code 0, not 1"),
    ("```console\n$ false\n$ true\n```\n", "exit code 1, not 0"),
    ("<!-- fails: 1 -->\n", "followed by no example"),
    ("<!-- file: a.csv\nn\n1\n-->\n", "no example before this block of 'file'"),
    ("```csv a.csv\nn\n1\n```\n", "does not name the file a.csv"),
    ("```python\nx\n```\n", "no example before this block"),
])
def test_a_wrong_example_is_found(text, complaint, tmp_path, programs):
    blocks = blocks_of(text, 1)
    with pytest.raises(AssertionError) as raised:
        Reader("page", tmp_path, programs).read(Section("", blocks))
    assert complaint in str(raised.value)
