"""Which file of a crate uses which, for tests/tidy.py: read from `use` and from paths in the text.

A file is a module, named by its path: `("operator", "join")`; the crate's root is `()`. A re-export is no use: a name
that comes through another file counts as a use of the file that defines it.
"""

import re
from pathlib import Path

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]
# Re-exports that lead to further re-exports.
STEPS_MAX = 8


def without_tests(text: str) -> str:
    """The text up to a module of tests, without comments."""
    text = re.split(r"^#\[cfg\(test\)\]\s*\n(?:#\[.*\]\s*\n)*mod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"//.*", "", text)


def modules(source: Path) -> dict[Module, str]:
    """The text of every module of a crate but those of tests."""
    texts = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        if any("test" in part or part == "fuzz" for part in parts):
            continue
        if parts[-1] in ("mod", "lib", "main"):
            parts = parts[:-1]
        texts[parts] = without_tests(path.read_text())
    return texts


def flatten(prefix: list[str], tree: str) -> list[tuple[list[str], str]]:
    """The paths of a `use` and their local names: `a::{b, c as d}` gives `a::b` as `b` and `a::c` as `d`."""
    tree = tree.strip()
    match = re.match(r"^([\w:]*?)(?:::)?\{(.*)\}$", tree, re.DOTALL)
    if not match:
        path, _, alias = re.sub(r"\s+", " ", tree).partition(" as ")
        parts = prefix + [part.strip() for part in path.split("::") if part.strip()]
        if parts[-1:] == ["self"]:
            parts = parts[:-1]
        return [(parts, alias or parts[-1])] if parts else []
    head = prefix + [part for part in match[1].split("::") if part]
    found, depth, item = [], 0, ""
    for letter in match[2] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            found += flatten(head, item) if item.strip() else []
            item = ""
        else:
            item += letter
    return found


class Crate:
    """The modules of a crate and the names that each of them has from others."""

    def __init__(self, texts: dict[Module, str]):
        self.texts = texts
        self.names = {module: {name: path for tree in re.findall(r"\buse\s+([^;]*);", text)
                               for path, name in flatten([], tree)}
                      for module, text in texts.items()}

    def defining(self, module: Module, path: list[str], steps: int = 0) -> Module | None:
        """The module that defines what `path` names in `module`; `None` if that is another crate."""
        if not path or steps > STEPS_MAX:
            return None
        if path[0] == "crate":
            at, rest = (), path[1:]
        elif path[0] in ("super", "self"):
            at, rest = module, path
            while rest and rest[0] in ("super", "self"):
                at, rest = (at[:-1] if rest[0] == "super" else at), rest[1:]
        elif module + (path[0],) in self.texts:
            at, rest = module, path
        elif path[0] in self.names[module]:
            return self.defining(module, self.names[module][path[0]] + path[1:], steps + 1)
        else:
            return None
        while rest and at + (rest[0],) in self.texts:
            at, rest = at + (rest[0],), rest[1:]
        if at not in self.texts:
            return None
        if rest and rest[0] in self.names[at]:
            return self.defining(at, self.names[at][rest[0]] + rest[1:], steps + 1)
        return at if rest or path[-1] != "super" else None

    def uses(self, module: Module) -> set[Module]:
        """The other modules that a module uses."""
        text = self.texts[module]
        use = r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]*);"
        body = re.sub(use, "", text)
        paths = [path for public, tree in re.findall(use, text) for path, name in flatten([], tree)
                 if not public or re.search(rf"\b{re.escape(name)}\b", body)]
        paths += [path.split("::") for path in re.findall(r"(?<![\w:])([a-z_]\w*(?:::\w+)+)", body)]
        return {at for path in paths if (at := self.defining(module, path)) is not None and at != module}


def graph(texts: dict[Module, str]) -> Graph:
    """Which modules each module of a crate uses."""
    crate = Crate(texts)
    return {module: crate.uses(module) for module in texts}


def circles(uses: Graph) -> list[list[Module]]:
    """Sets of modules that reach each other."""
    def reached(start: Module) -> set[Module]:
        found, left = set(), list(uses[start])
        while left:
            module = left.pop()
            if module not in found:
                found.add(module)
                left += uses[module]
        return found

    reach = {module: reached(module) for module in uses}
    found = {tuple(sorted(other for other in reach[module] if module in reach[other]))
             for module in uses if module in reach[module]}
    return sorted(list(circle) for circle in found)


def name(module: Module) -> str:
    return "::".join(module) or "the root"
