#!/usr/bin/env python3
"""Fuzzing: runs the program with mutated scripts and data of the SQL tests, also data without a table. Whatever the
input, the program must end with one of its exit codes and without a crash; what `init` prints must pass `check`.

    tests/fuzz.py --seconds 600        for ten minutes
    tests/fuzz.py --seed 17            one case; its files stay in target/fuzz/17
"""

import argparse
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import harness

FOLDER = Path(__file__).resolve().parent / "sql"
KEPT = harness.ROOT / "target" / "fuzz"
SCRIPTS = [path.read_text() for path in sorted(FOLDER.glob("*.sql"))]
DATA = {path.name: path.read_bytes() for path in sorted((FOLDER / "data").glob("*.csv"))}
LINES = [path.read_bytes() for path in sorted((FOLDER / "data").rglob("*.ndjson"))]
TOKEN = re.compile(r"\s+|\w+|'[^']*'|.", re.DOTALL)
TOKENS = sorted({token for text in SCRIPTS for token in TOKEN.findall(text)})
STRANGE = ["'", '"', "`", "(", ")", ";", "--", "/*", "\0", "é", "🙂", "NULL", "-", "0", "1e999", "999999999999",
           "-9223372036854775808", "''", "INTERVAL '1' SECOND", "CAST(NULL AS INT)", "* ", "DISTINCT"]
BYTES = [b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"e999", b"-", b"9" * 40, b"NaN", b"null", b"\t",
         b"{", b"}", b"[", b"]", b":", b"\\", b"\\u", b";", b"9999-12-31 23:59:59", b"0000-00-00", b"true", b"", b"\xf0\x9f\x99\x82"]


def mutated_sql(rng: random.Random) -> str:
    tokens = TOKEN.findall(rng.choice(SCRIPTS))
    for _ in range(rng.choice([0, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(tokens) or 1)
        match rng.randrange(5):
            case 0:
                del tokens[at : at + rng.choice([1, 1, 2, 10])]
            case 1:
                tokens.insert(at, rng.choice(TOKENS))
            case 2:
                tokens.insert(at, rng.choice(STRANGE))
            case 3 if tokens:
                tokens[at] = rng.choice(TOKENS)
            case _ if tokens:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def mutated_data(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice([0, 0, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(BYTES) + data[at + rng.choice([0, 0, 1, 5]) :]
    return data


def settings(rng: random.Random) -> dict[str, object]:
    result: dict[str, object] = {"workers": rng.choice([1, 2, 4]), "batch.rows": rng.choice([1, 3, 16384])}
    if rng.random() < 0.3:
        result["simulate"] = rng.randrange(1000)
    elif rng.random() < 0.2:
        result |= {"processes": rng.choice([2, 3]), "fabric": rng.choice(["shm", "tcp"]), "workers": rng.choice([1, 2])}
    return result


def inferred(rng: random.Random, folder: Path) -> tuple[harness.Run, list[str]]:
    """Data of any kind as a table that nobody has declared: a fuzz target for inference, and for what it infers."""
    name = rng.choice(["x.csv", "x.tsv", "x.ndjson", "x.parquet", "x"])
    data = rng.choice([*DATA.values(), *LINES])
    at = rng.randrange(len(data) + 1)
    (folder / name).write_bytes(mutated_data(rng, data[:at] if rng.random() < 0.3 else data))
    printed = harness.run("init", name, cwd=folder, stats=False, timeout=30)
    wrong = harness.sound(printed)
    if printed.code == 0:
        (folder / "init.sql").write_bytes(printed.stdout)
        checked = harness.run("check", "init.sql", cwd=folder, stats=False, timeout=30)
        if checked.code != 0:
            wrong += ["what init prints is refused", printed.stdout.decode("utf-8", "replace"), checked.stderr]
    result = harness.run("run", "-e", f"SELECT * FROM '{name}'", "--format", "csv", cwd=folder,
                         settings=settings(rng), timeout=30)
    # Where the table is refused, both say so.
    if printed.code and not result.code:
        wrong.append(f"init ends with {printed.code}, the query with {result.code}")
    return result, wrong + harness.sound(result)


def check(seed: int, folder: Path) -> tuple[harness.Run, list[str]]:
    rng = random.Random(f"fuzz {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    result, wrong = inferred(rng, folder) if rng.random() < 0.2 else script(rng, folder)
    if result.code not in (0, 1, 2):
        wrong.append(f"exit code {result.code}")
    if result.code in (1, 2) and not result.stderr.strip():
        wrong.append(f"exit code {result.code} without a message")
    return result, wrong


def script(rng: random.Random, folder: Path) -> tuple[harness.Run, list[str]]:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, data in DATA.items():
        (folder / "data" / name).write_bytes(mutated_data(rng, data))
    (folder / "query.sql").write_text(mutated_sql(rng), encoding="utf-8")
    result = harness.run("run", folder / "query.sql", "--format", rng.choice(["csv", "ndjson", "table"]),
                         settings=settings(rng), timeout=30)
    return result, harness.sound(result)


def in_own_folder(seed: int) -> tuple[int, list[str], int]:
    with tempfile.TemporaryDirectory(prefix="millstream-fuzz-") as name:
        result, wrong = check(seed, Path(name))
        if wrong:
            kept = KEPT / str(seed)
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(name, kept)
            wrong.append(result.stderr.strip()[:2000].replace(name, str(kept)))
        return seed, wrong, result.code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, help="one case only, keeping its files")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=15, help="for how long")
    options = parser.parse_args()
    if options.seed is not None:
        result, wrong = check(options.seed, KEPT / str(options.seed))
        print(f"{result.shell()}\n{result.stderr}" + "\n".join(wrong))
        print(f"{int(not wrong)} passed, {int(bool(wrong))} failed")
        return 1 if wrong else 0
    end, passed, failed, codes, seed = time.monotonic() + options.seconds, 0, 0, {}, options.first
    while time.monotonic() < end:
        for case, wrong, code in harness.run_all(list(range(seed, seed + 50)), in_own_folder):
            codes[code] = codes.get(code, 0) + 1
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong and failed <= 5:
                print(f"FAIL seed {case}; repeat with: tests/fuzz.py --seed {case}")
                print("  " + "\n".join(wrong).replace("\n", "\n  "), flush=True)
        seed += 50
    # Input that is never accepted, or never refused, tests nothing.
    for code in (0, 1, 2):
        if not codes.get(code):
            failed += 1
            print(f"FAIL no case ended with exit code {code}")
    print("exit codes: " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
