#!/usr/bin/env python3
"""Checks floors of crates, circles of files, names of types, lengths of lines, files and functions, words, documents.

    python3 tests/tidy.py [--self-test | --lines | --sentences]

`--lines` prints the lines of Rust by crate, `--sentences` the comments and sentences of documents that are
hard to read.

An exception is a comment of one line, with its reason, in the file that it is for:

    // tidy: long function: one arm per message, which belong together
    // tidy: long file: …

tests/tidy_known.txt lists what was there before this check. The list may only shrink: an entry that is no longer
needed is a complaint, too.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tidy_docs
import tidy_words
from tidy_modules import Graph, Module, circles, graph, modules, name as module_name, without_tests

ROOT = Path(__file__).resolve().parent.parent

# A crate may use crates of lower floors only.
FLOORS = [
    {"verbs", "allocator", "nexmark", "cpu"},
    {"fabric"},
    {"flow", "state"},
    {"contract", "bucket", "dfi", "txn"},
    {"operators", "sql", "store", "workloads", "datafusion-shuffle"},
    {"connect", "engine"},
    {"checkpoint", "ingest", "kafka"},
    {"millstream"},
    {"arguments"},
    {"lab"},
    {"cli"},
]
# Neither program nor library that users get links these crates.
LABORATORY = {"lab", "workloads"}
# So may a module of these crates; modules that are not named here stand on the lowest floor.
FLOORS_WITHIN = {
    "flow": [{"link"}, {"channel", "shuffle"}],
    "state": [{"memory"}, {"values"}, {"table"}, {"deltas"}, {"windows"}],
    "store": [{"error"}, {"names", "contract", "disk"}, {"local", "s3", "manifest"}, {"checkpoints", "journal"}],
    "sql": [{"syntax"}, {"expr"}, {"names"}, {"stages"}, {"faults"}, {"plan"}],
    "operators": [{"columns"}, {"passed"}, {"operator"}],
    "engine": [
        {"registry", "edges", "stage"},
        {"network", "exchange", "explain"},
        {"intake", "gather", "stats", "observe", "shared"},
        {"progress"},
        {"delivery"},
        {"worker"},
        {"job"},
        {"simulation"},
        {"run", "damaged"},
    ],
}
KNOWN = ROOT / "tests" / "tidy_known.txt"

RUST_COLUMNS_MAX = 100
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
ARCHITECTURE_WORDS_MAX = 1800
# These two may only shrink.
HARD_SENTENCES_MAX = 54
HEADLESS_COMMENTS_MAX = 12

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
            if used in LABORATORY and crate not in LABORATORY:
                yield f"crates/{crate}/Cargo.toml: {crate} may not use {used}, which is the laboratory's"
            if (floor(used) or 0) >= own:
                yield f"crates/{crate}/Cargo.toml: {crate} (floor {own}) may not use {used} (floor {floor(used)})"


# --- modules --------------------------------------------------------------------------------------

def check_modules(source: str, floors: list[set[str]], uses: Graph) -> Iterator[str]:
    """Top modules that use one of a higher floor; those of the same floor are left to the check for circles."""
    number = {module: at for at, modules in enumerate(floors, 1) for module in modules}
    found = set()
    for module, used in uses.items():
        for other in used:
            if module and other and number.get(other[0], 0) > number.get(module[0], 0):
                found.add(f"{source}: {module_name(module)} (floor {number.get(module[0], 0)}) may not use "
                          f"{module_name(other)} (floor {number[other[0]]})")
    yield from sorted(found)


def check_crates() -> Iterator[str]:
    for source in sorted(ROOT.glob("crates/*/src")):
        uses, place = graph(modules(source)), str(source.relative_to(ROOT))
        yield from check_modules(place, FLOORS_WITHIN.get(source.parent.name, []), uses)
        yield from check_types(place, modules(source))
        for circle in circles(uses):
            yield f"{place}: files import each other in a circle: {', '.join(map(module_name, circle))}"


# --- names of types ---

def check_types(source: str, texts: dict[Module, str]) -> Iterator[str]:
    """Names that stand for several types, all seen by the whole crate or by others."""
    visible = Counter(name for text in texts.values() for name in re.findall(
        r"^ *pub(?:\(crate\))? (?:unsafe )?(?:struct|enum|union|trait|type) (\w+)", text, re.MULTILINE))
    yield from (f"{source}: {name} stands for several types" for name, times in sorted(visible.items()) if times > 1)


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


def check_architecture(text: str) -> Iterator[str]:
    """The map stays short, and the places that it names are there."""
    if len(text.split()) > ARCHITECTURE_WORDS_MAX:
        yield f"ARCHITECTURE.md: {len(text.split())} words, at most {ARCHITECTURE_WORDS_MAX}"
    for place in sorted(set(re.findall(r"`([a-z-]+/src[\w/.-]*)`", text))):
        if not (ROOT / "crates" / place).exists():
            yield f"ARCHITECTURE.md: there is no crates/{place}"


def check_sentences(hard: int, headless: int) -> Iterator[str]:
    for what, constant, count, most in (("hard sentences", "HARD_SENTENCES_MAX", hard, HARD_SENTENCES_MAX),
                                        ("headless doc comments", "HEADLESS_COMMENTS_MAX", headless, HEADLESS_COMMENTS_MAX)):
        if count > most:
            yield f"{count} {what}, at most {most}: see --sentences"
        if count < most:
            yield f"{count} {what}: lower {constant} from {most}"


def hard_in_documents() -> Iterator[str]:
    for path in tracked("*.md"):
        yield from tidy_docs.hard_sentences(str(path.relative_to(ROOT)), path.read_text())


# --- lines ----------------------------------------------------------------------------------------

def is_test(path: Path) -> bool:
    """Whether a file holds tests: by its name, or as (a part of) a module that only tests compile."""
    if {"tests", "benches", "examples"} & set(path.parts) or "test" in path.stem or path.stem == "fuzz":
        return True
    for inner in [path, *path.parents]:
        if inner.name in ("src", "crates"):
            return False
        folder = inner.parent
        for above in (folder / "lib.rs", folder / "mod.rs", folder.with_suffix(".rs")):
            if above != path and above.is_file() and re.search(
                    rf"#\[cfg\(test\)\]\n(#.*\n)*mod {inner.stem};", above.read_text()):
                return True
    return False


def lines_of(path: Path) -> tuple[int, int, int]:
    """Product lines of a Rust file, how many of them are comments, and lines of tests."""
    lines = path.read_text().splitlines()
    product = lines
    if is_test(path):
        product = []
    else:
        start = next((at for at, line in enumerate(lines) if re.match(r"mod \w+ \{", line)
                      and any(above.startswith("#[cfg(test)]") for above in lines[max(0, at - 3):at])), len(lines))
        product = lines[:start]
    return len(product), sum(line.strip().startswith("//") for line in product), len(lines) - len(product)


def print_lines() -> None:
    crates: dict[str, list[int]] = {}
    for path in tracked("crates/*.rs"):
        sums = crates.setdefault(path.relative_to(ROOT).parts[1], [0, 0, 0])
        for at, lines in enumerate(lines_of(path)):
            sums[at] += lines
    laboratory = [lines for crate, lines in crates.items() if crate in LABORATORY]
    sums = [sum(column) for column in zip(*crates.values())]
    crates["laboratory"] = [sum(column) for column in zip(*laboratory)]
    crates["without it"] = [every - own for every, own in zip(sums, crates["laboratory"])]
    crates["in all"] = sums
    print(f"{'':20}{'product':>9}{'comments':>10}{'tests':>9}")
    for crate, (product, comments, tests) in crates.items():
        print(f"{crate:20}{product:9,}{comments:10,}{tests:9,}")


def complaints() -> Iterator[str]:
    manifests = {path.parent.name: path.read_text() for path in sorted(ROOT.glob("crates/*/Cargo.toml"))}
    yield from check_floors(manifests)
    yield from check_crates()
    for path in tracked("*.rs"):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        yield from check_rust(name, text)
        yield from check_words(name, text)
    hard, headless = tidy_words.hard_and_headless(tracked("crates/*.rs"))
    yield from check_sentences(len(hard), len(headless))
    hard = list(hard_in_documents())
    if len(hard) > tidy_docs.HARD_SENTENCES_MAX:
        yield f"{len(hard)} hard sentences in documents, at most {tidy_docs.HARD_SENTENCES_MAX}: see --sentences"
    for path in tracked("*.md"):
        yield from tidy_docs.check(ROOT, str(path.relative_to(ROOT)), path.read_text())
    yield from check_architecture((ROOT / "ARCHITECTURE.md").read_text())


# --- this file's own test -------------------------------------------------------------------------

def self_test() -> None:
    """Each check finds what it is for, and lets pass what is in order."""
    found = list(check_floors({"state": "[dependencies]\nmillstream-engine.workspace = true\n",
                               "engine": "[dependencies]\nmillstream-state = {}\n[dev-dependencies]\nmillstream = {}\n",
                               "attic": "[dependencies]\n"}))
    assert [line.split(":")[0] for line in found] == ["crates/state/Cargo.toml", "crates/attic"], found
    # The root and a child; a child and its parent by `super`; two children through a re-export.
    assert circles(graph({(): "mod a; struct R;", ("a",): "use crate::R;"})) == []
    assert circles(graph({(): "fn f() { a::g() }", ("a",): "use crate::f;"})) == [[(), ("a",)]]
    assert circles(graph({(): "", ("a",): "fn f() { b::g() }", ("a", "b"): "use super::f;"})) == [[("a",), ("a", "b")]]
    through = {(): "", ("a",): "pub use b::B; pub use c::C;", ("a", "b"): "use super::C;", ("a", "c"): "use super::B;"}
    assert circles(graph(through)) == [[("a", "b"), ("a", "c")]]
    through[("a", "c")] = "struct C;"
    assert circles(graph(through)) == []
    assert list(check_modules("x", [{"a"}, {"b"}], {("a",): {("b",), ("c",)}, ("b",): {("a",)}, ("c",): set()})) == [
        "x: a (floor 1) may not use b (floor 2)"]
    texts = {("a",): "pub struct S;\npub(crate) enum T {}", ("b",): "pub(super) trait T {}\n    pub(crate) union S {}"}
    assert list(check_types("x", texts)) == ["x: S stands for several types"], list(check_types("x", texts))
    body = "    x();\n" * FUNCTION_LINES_MAX
    long = f"impl A {{\n    pub(crate) fn long(&self) {{\n{body}    }}\n}}\n"
    assert any("function long has more" in line for line in check_rust("a.rs", long)), list(check_rust("a.rs", long))
    reasoned = long.replace("    pub(crate)", "    // tidy: long function: a list\n    pub(crate)")
    assert not list(check_rust("a.rs", reasoned))
    assert not list(check_rust("a.rs", long.replace("    x();\n", "", 5)))
    assert against_known(["a", "b"], ["b", "c"])[0] == "a" and "c" in against_known(["b"], ["b", "c"])[0]
    assert list(check_rust("a.rs", "x" * 101)) and not list(check_rust("a.rs", "x" * 100))
    assert list(check_rust("a.rs", "\n" * 501)) and not list(check_rust("a.rs", "\n" * 499))
    assert list(check_words("a.rs", "we utilize it")) and not list(check_words("a.rs", "a task"))
    tidy_docs.self_test(ROOT)
    assert list(check_architecture("`state/src/attic`")) == ["ARCHITECTURE.md: there is no crates/state/src/attic"]
    assert list(check_architecture("word " * (ARCHITECTURE_WORDS_MAX + 1))) and not list(check_architecture("`sql/src`"))
    assert tidy_words.is_hard("Those that it is of, if any.") and not tidy_words.is_hard("Rows of a window, by key.")
    assert list(check_sentences(HARD_SENTENCES_MAX + 1, HEADLESS_COMMENTS_MAX))
    assert not list(check_sentences(HARD_SENTENCES_MAX, HEADLESS_COMMENTS_MAX))
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
    if sys.argv[1:] == ["--lines"]:
        print_lines()
        return 0
    if sys.argv[1:] == ["--sentences"]:
        print("\n".join([*sum(tidy_words.hard_and_headless(tracked("crates/*.rs")), []), *hard_in_documents()]))
        return 0
    known = [line for line in KNOWN.read_text().split("\n") if line and not line.startswith("#")]
    found = against_known(list(complaints()), known)
    for line in found:
        print(line)
    print(f"tidy: {len(found)} complaints" if found else "tidy: nothing to complain of")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
