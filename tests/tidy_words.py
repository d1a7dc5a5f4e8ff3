"""Sentences of comments that are hard to read, for tests/tidy.py.

A sentence of five words or more is hard if at least a quarter of its words are pronouns. A doc comment is headless if it
begins with a pronoun. Examples inside comments do not count.
"""

import re
from collections.abc import Iterator
from pathlib import Path

PRONOUNS = frozenset(
    "it its itself they them their theirs themselves that those what whatever who whom whose whoever which one ones "
    "other others another any anything anybody something somebody none nobody nothing".split())
HEADLESS = re.compile(r"^(What|Whatever|Who|Whoever|Those|That|It)\b")
WORDS_MIN = 5


def paragraphs(text: str) -> Iterator[tuple[int, str, bool]]:
    """Paragraphs of comments: the line, the text, and whether it documents an item or a file."""
    block, kind, first, fenced = [], None, 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = re.match(r"\s*(///|//!|//)(?!/)\s?(.*)", line)
        if match and kind in (None, match[1]):
            words = match[2].strip()
            if words.startswith("```"):
                fenced = not fenced
            elif words and not fenced:
                first = first if block else number
                kind = match[1]
                block.append(words)
            elif not words and block:
                yield first, " ".join(block), kind != "//"
                block = []
        else:
            if block:
                yield first, " ".join(block), kind != "//"
            block, kind, fenced = [], None, False


def is_hard(sentence: str) -> bool:
    words = re.findall(r"[A-Za-z']+", sentence.lower())
    return len(words) >= WORDS_MIN and 4 * sum(word in PRONOUNS for word in words) >= len(words)


def hard_and_headless(files: list[Path]) -> tuple[list[str], list[str]]:
    """Hard sentences and headless doc comments, each with its place; files of tests are left out."""
    hard, headless = [], []
    for path in files:
        if "tests" in path.parts or path.name.endswith("tests.rs"):
            continue
        for line, text, documents in paragraphs(path.read_text()):
            if documents and HEADLESS.match(text):
                headless.append(f"{path}:{line}: {text}")
            sentences = re.split(r"(?<=[.!?:;])\s+", re.sub(r"`[^`]*`", "code", text))
            hard += [f"{path}:{line}: {sentence}" for sentence in sentences if is_hard(sentence)]
    return hard, headless
