"""Checks of Markdown pages, for tests/tidy.py: columns, table cells, hard sentences, links to files and headings."""

import re
from collections.abc import Iterator
from pathlib import Path

import tidy_words

COLUMNS_MAX = 120
CELL_WORDS_MAX = 40
# Of all pages; may only shrink.
HARD_SENTENCES_MAX = 28
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def lines_with_code(text: str) -> Iterator[tuple[int, str, bool]]:
    """Lines by number, and whether each is code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.startswith("```")
        yield number, line, fenced or line.startswith(("```", "    "))


def check_lines(name: str, text: str) -> Iterator[str]:
    for number, line, code in lines_with_code(text):
        if len(line) > COLUMNS_MAX and not code and not line.startswith("|") and "http" not in line:
            yield f"{name}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
        for cell in re.split(r"(?<!\\)\|", line.strip("| ")) if line.startswith("|") and not code else []:
            if len(cell.split()) > CELL_WORDS_MAX:
                yield f"{name}:{number}: a cell of {len(cell.split())} words, at most {CELL_WORDS_MAX}"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Prose without headings, tables and code, each paragraph or item with its first line."""
    block: list[str] = []
    first = 0
    for number, line, code in [*lines_with_code(text), (0, "", False)]:
        prose = "" if code or line.startswith(("|", "#", "<!--")) else line.strip()
        if block and (not prose or re.match(r"(- |\d+\. )", prose)):
            yield first, " ".join(block)
            block = []
        if prose:
            first = first if block else number
            block.append(prose)


def hard_sentences(name: str, text: str) -> Iterator[str]:
    for line, paragraph in paragraphs(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph)).replace("*", "")
        for sentence in re.split(r"(?<=[.!?:;])\s+", plain):
            if tidy_words.is_hard(sentence):
                yield f"{name}:{line}: {sentence}"


def anchors(text: str) -> set[str]:
    """Anchors of headings, as GitHub makes them; a heading that occurs twice has none."""
    headings = [line.lstrip("#").strip() for _, line, code in lines_with_code(text) if not code and re.match("#+ ", line)]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    found = [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain]
    return {anchor for anchor in found if found.count(anchor) == 1}


def check_links(root: Path, name: str, text: str) -> Iterator[str]:
    for number, line, code in lines_with_code(text):
        for target, anchor in [] if code else LINK.findall(line):
            path = (root / name).parent / target
            if not path.exists():
                yield f"{name}:{number}: there is no {target}"
            elif anchor and anchor not in anchors(path.read_text() if target else text):
                yield f"{name}:{number}: {target or name} has no heading #{anchor}"


def check(root: Path, name: str, text: str) -> Iterator[str]:
    yield from check_lines(name, text)
    yield from check_links(root, name, text)


def self_test(root: Path) -> None:
    """Each check finds a mistake, and passes a page without one."""
    assert list(check_lines("a.md", "x" * 121)) and not list(check_lines("a.md", "| " + "x" * 130))
    assert list(check_lines("a.md", "| a |" + " x" * 41 + " |")) and not list(check_lines("a.md", "| a |" + " x" * 40))
    hard = "Rows of a window, by key. Those that it is of, if any."
    assert len(list(hard_sentences("a.md", hard))) == 1 and not list(hard_sentences("a.md", f"```\n{hard}\n```"))
    assert not list(check_links(root, "README.md", "## A `b`\n[a](#a-b) [b](docs/sql.md)"))
    assert len(list(check_links(root, "README.md", "## A\n[a](#b) [b](docs/none.md)"))) == 2
