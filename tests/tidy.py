#!/usr/bin/env python3
"""Checks floors of crates, circles of modules, the lengths of lines, files and functions, and banned words.

    python3 tests/tidy.py [--self-test]

An exception is a comment of one line, with its reason, in the file that it is for:

    // tidy: long function: one arm per message, which belong together
    // tidy: long file: …

tests/tidy_known.txt lists what was there before this check. The list may only shrink: an entry that is no longer
needed is a complaint, too.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A crate may use crates of lower floors only.
FLOORS = [
    {"verbs"},
    {"fabric"},
    {"flow", "shuffle", "state"},
    {"contract", "datafusion-shuffle"},
    {"engine", "connect", "sql", "workloads"},
    {"millstream"},
    {"lab"},
    {"cli"},
]
# So may a module of the engine; modules that are not named here stand on the lowest floor.
ENGINE_FLOORS = [
    {"columns"},
    {"passed"},
    {"operator"},
    {"flow", "stage"},
    {"cluster", "exchange", "explain"},
    {"intake", "gather", "stats", "observe", "shared"},
    {"progress"},
    {"delivery"},
    {"worker"},
    {"job"},
    {"simulation"},
    {"run", "projection", "damaged"},
]
KNOWN = ROOT / "tests" / "tidy_known.txt"

RUST_COLUMNS_MAX = 100
DOCUMENT_COLUMNS_MAX = 120
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

BANNED = {
    "utilize": "use",
    "leverage": "use",
    "TODO": "an issue",
    "FIXME": "an issue",
    "XXX": "an issue",
    "asker": "coordinator",
    "lobby": "listener",
    "crew": "peers",
}


def tracked(*patterns: str) -> list[Path]:
    """Files under version control, and new ones that are not ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def excused(text: str, what: str) -> bool:
    """Whether a comment gives a reason for an exception."""
    return re.search(rf"// tidy: {what}: \S", text) is not None


# --- floors ---------------------------------------------------------------------------------------

def floor(crate: str) -> int | None:
    return next((number for number, crates in enumerate(FLOORS) if crate in crates), None)


def check_floors(manifests: dict[str, str]) -> Iterator[str]:
    """`manifests`: a crate's name and the text of its Cargo.toml."""
    for crate, text in manifests.items():
        own = floor(crate)
        if own is None:
            yield f"crates/{crate}: stands on no floor; add it to FLOORS in tests/tidy.py"
            continue
        dependencies = text.split("[dependencies]", 1)[-1].split("\n[", 1)[0]
        for used in re.findall(r"^millstream(?:-(\w+))?\s*[.=]", dependencies, re.MULTILINE):
            used = used or "millstream"
            if (floor(used) or 0) >= own:
                yield f"crates/{crate}/Cargo.toml: {crate} (floor {own}) may not use {used} (floor {floor(used)})"


# --- circles --------------------------------------------------------------------------------------

def module_of(path: Path, source: Path) -> str:
    """The top module that a file belongs to."""
    return path.relative_to(source).with_suffix("").parts[0]


def without_tests(text: str) -> str:
    """The text up to a module of tests, without comments."""
    text = re.split(r"^#\[cfg\(test\)\]\s*\n(?:#\[.*\]\s*\n)*mod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"//.*", "", text)


def imports(source: Path) -> dict[str, set[str]]:
    """Which top modules of a crate each of its top modules names."""
    graph: dict[str, set[str]] = {}
    for path in sorted(source.rglob("*.rs")):
        module = module_of(path, source)
        if module in ("lib", "main") or "test" in path.stem:
            continue
        text = without_tests(path.read_text())
        named = set(re.findall(r"\bcrate::(\w+)", text))
        for group in re.findall(r"\buse crate::\{(.*?)\};", text, re.DOTALL):
            named |= set(re.findall(r"(?:^|,)\s*(\w+)", group))
        graph.setdefault(module, set()).update(named - {module})
    return {module: {used for used in uses if used in graph} for module, uses in graph.items()}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other."""
    reach = {module: set(uses) for module, uses in graph.items()}
    for middle in graph:
        for start in graph:
            if middle in reach[start]:
                reach[start] |= reach[middle]
    found = {tuple(sorted(other for other in reach[module] if module in reach[other]))
             for module in graph if module in reach[module]}
    return sorted(list(circle) for circle in found)


def check_modules(source: str, floors: list[set[str]], graph: dict[str, set[str]]) -> Iterator[str]:
    """Modules that use one of a higher floor; those of the same floor are left to the check for circles."""
    number = {module: at for at, modules in enumerate(floors, 1) for module in modules}
    for module, uses in graph.items():
        for used in sorted(uses):
            if number.get(used, 0) > number.get(module, 0):
                yield f"{source}: {module} (floor {number.get(module, 0)}) may not use {used} (floor {number[used]})"


def check_engine() -> Iterator[str]:
    source = ROOT / "crates" / "engine" / "src"
    yield from check_modules(str(source.relative_to(ROOT)), ENGINE_FLOORS, imports(source))


def check_circles() -> Iterator[str]:
    for source in sorted(ROOT.glob("crates/*/src")):
        for circle in circles(imports(source)):
            yield f"{source.relative_to(ROOT)}: modules import each other in a circle: {', '.join(circle)}"


# --- lengths and words ----------------------------------------------------------------------------

def functions(text: str) -> Iterator[tuple[int, str, int]]:
    """Line, name and number of lines of every function, found by its indentation, as rustfmt leaves it."""
    lines = text.split("\n")
    start = re.compile(r"^(\s*)(?:pub(?:\([\w ]+\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")
    for number, line in enumerate(lines):
        match = start.match(line)
        if not match:
            continue
        end = number
        while end + 1 < len(lines) and not lines[end].startswith(match[1] + "}") and not (
                lines[end].endswith((";", "}")) and "{" not in "".join(lines[number:end])):
            end += 1
        yield number + 1, match[2], end - number + 1


def check_rust(name: str, text: str) -> Iterator[str]:
    lines = text.split("\n")
    for line in lines:
        # rustfmt breaks code, but no texts.
        if len(line) > RUST_COLUMNS_MAX and "http" not in line and ('"' not in line or line.strip().startswith("//")):
            yield f"{name}: {len(line)} columns, at most {RUST_COLUMNS_MAX}: {line.strip()[:40]}"
    if len(lines) > FILE_LINES_MAX and not excused(text, "long file"):
        yield f"{name}: more than {FILE_LINES_MAX} lines: two ideas?"
    for number, function, length in functions(text):
        above = "\n".join(lines[max(0, number - 8):number + 1])
        if length > FUNCTION_LINES_MAX and not excused(above, "long function"):
            yield f"{name}: function {function} has more than {FUNCTION_LINES_MAX} lines"


def check_words(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        for word, instead in BANNED.items():
            if re.search(rf"\b{word}\b", line):
                yield f"{name}:{number}: '{word}'; say {instead}"


def check_document(name: str, text: str) -> Iterator[str]:
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        code ^= line.startswith("```")
        table_or_code = code or line.startswith(("|", "    "))
        if len(line) > DOCUMENT_COLUMNS_MAX and not table_or_code and "http" not in line:
            yield f"{name}:{number}: {len(line)} columns, at most {DOCUMENT_COLUMNS_MAX}"


def complaints() -> Iterator[str]:
    manifests = {path.parent.name: path.read_text() for path in sorted(ROOT.glob("crates/*/Cargo.toml"))}
    yield from check_floors(manifests)
    yield from check_circles()
    yield from check_engine()
    for path in tracked("*.rs"):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        yield from check_rust(name, text)
        yield from check_words(name, text)
    for path in tracked("*.md"):
        yield from check_document(str(path.relative_to(ROOT)), path.read_text())


# --- this file's own test -------------------------------------------------------------------------

def self_test() -> None:
    """Each check finds what it is for, and lets pass what is in order."""
    found = list(check_floors({"state": "[dependencies]\nmillstream-engine.workspace = true\n",
                               "engine": "[dependencies]\nmillstream-state = {}\n[dev-dependencies]\nmillstream = {}\n",
                               "attic": "[dependencies]\n"}))
    assert [line.split(":")[0] for line in found] == ["crates/state/Cargo.toml", "crates/attic"], found
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert list(check_modules("x", [{"a"}, {"b"}], {"a": {"b", "c"}, "b": {"a"}, "c": set()})) == [
        "x: a (floor 1) may not use b (floor 2)"]
    body = "    x();\n" * FUNCTION_LINES_MAX
    long = f"impl A {{\n    pub(crate) fn long(&self) {{\n{body}    }}\n}}\n"
    assert any("function long has more" in line for line in check_rust("a.rs", long)), list(check_rust("a.rs", long))
    reasoned = long.replace("    pub(crate)", "    // tidy: long function: a list\n    pub(crate)")
    assert not list(check_rust("a.rs", reasoned))
    assert not list(check_rust("a.rs", long.replace("    x();\n", "", 5)))
    assert against_known(["a", "b"], ["b", "c"])[0] == "a" and "c" in against_known(["b"], ["b", "c"])[0]
    assert list(check_rust("a.rs", "x" * 101)) and not list(check_rust("a.rs", "x" * 100))
    assert list(check_rust("a.rs", "\n" * 601)) and not list(check_rust("a.rs", "\n" * 599))
    assert list(check_words("a.rs", "we utilize it")) and not list(check_words("a.rs", "a task"))
    assert list(check_document("a.md", "x" * 121)) and not list(check_document("a.md", "| " + "x" * 130))
    assert "b" not in without_tests("a\n#[cfg(test)]\nmod tests {\n    b\n}\n")


def against_known(found: list[str], known: list[str]) -> list[str]:
    """What is new, and what is known and no longer there."""
    stale = [f"{KNOWN.name}: no longer there, take it out: {line}" for line in known if line not in found]
    return [line for line in found if line not in known] + stale


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        print("tidy finds what it is for")
        return 0
    known = [line for line in KNOWN.read_text().split("\n") if line and not line.startswith("#")]
    found = against_known(list(complaints()), known)
    for line in found:
        print(line)
    print(f"tidy: {len(found)} complaints" if found else "tidy: nothing to complain of")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
