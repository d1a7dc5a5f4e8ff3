"""Completion of arguments and manual pages, which are made of the definitions that arguments are parsed by."""

import shutil
import subprocess

import harness
import pytest


def printed(*words: str) -> str:
    done = harness.run(*words, stats=False)
    assert done.code == 0 and done.stderr == "", done.stderr
    return done.stdout.decode()


def commands() -> list[str]:
    """Those that the help lists."""
    listed = printed("--help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.split("\n") if line[2] != " "]


@pytest.mark.parametrize("line, expected", [
    ("millstream expl", ["explain"]),
    ("millstream run --form", ["--format"]),
    ("millstream run --format n", ["ndjson"]),
    ("millstream test --up", ["--update"]),
    ("millstream man expl", ["explain"]),
])
def test_bash_completes_commands_options_and_values(tmp_path, line, expected):
    (tmp_path / "millstream.bash").write_text(printed("completions", "bash"))
    words = line.split()
    script = f"""source millstream.bash
COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
_millstream millstream {words[-1]} {words[-2]}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_all_commands(shell, tmp_path):
    text = printed("completions", shell)
    assert [name for name in commands() if name not in text] == []
    if shutil.which(shell):
        path = tmp_path / "completions"
        path.write_text(text)
        subprocess.run([shell, "-n", path], check=True)


JOBS = """#!/bin/sh
test "$1" = jobs && printf 'JOB   RUNNING  PHASE    RECORDS  ROWS  SCRIPT\\n17    3.1 s    running  3        0     a.sql\\n1234  12 s     planning -        -     b.sql\\n'
"""


def completed(shell: str, folder, line: str) -> list[str]:
    """What a shell knows for the end of a line; the program's jobs are 17 and 1234."""
    (folder / "millstream").write_text(JOBS)
    (folder / "millstream").chmod(0o755)
    (folder / "completions").write_text(printed("completions", shell))
    words = line.split(" ")
    script = {
        "bash": f"""source ./completions
COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
_millstream_and_jobs millstream '{words[-1]}' {words[-2]}
printf '%s\\n' "${{COMPREPLY[@]}}" """,
        # Completion itself needs a terminal.
        "zsh": "compdef() { :; }; _describe() { print -l -- \"${(@P)4}\"; }; source ./completions; _millstream_jobs",
        "fish": f"source ./completions; complete -C '{line}'",
    }[shell]
    path = f"{folder}:/usr/bin:/bin"
    done = subprocess.run([shutil.which(shell), "-c", script], capture_output=True, text=True, cwd=folder,
                          env={"PATH": path, "HOME": str(folder)})
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


def test_shells_know_the_jobs_that_run(tmp_path):
    assert completed("bash", tmp_path, "millstream stop ")[-2:] == ["17", "1234"]
    assert completed("bash", tmp_path, "millstream why --json 1")[-2:] == ["17", "1234"]
    assert completed("bash", tmp_path, "millstream why --j") == ["--json"]
    assert "17" not in completed("bash", tmp_path, "millstream run ")
    if shutil.which("fish"):
        assert completed("fish", tmp_path, "millstream stop 1") == ["17\t3.1 s    running  3        0     a.sql",
                                                                   "1234\t12 s     planning -        -     b.sql"]
        assert not any(line.startswith("17") for line in completed("fish", tmp_path, "millstream run 1"))
    if shutil.which("zsh"):
        assert completed("zsh", tmp_path, "millstream stop ") == ["17:3.1 s    running  3        0     a.sql",
                                                  "1234:12 s     planning -        -     b.sql"]
        assert (tmp_path / "completions").read_text().count(":_millstream_jobs'") == 2


def test_there_is_a_manual_page_for_each_command():
    whole = printed("man")
    assert whole.count(".TH millstream 1") == 1 and ".SH \"EXIT STATUS\"" in whole and ".SH FILES" in whole
    listed = commands()
    assert {"run", "test", "explain", "completions", "man"} <= set(listed)
    for name in listed:
        assert f"millstream\\-{name}(1)" in whole
        if name != "help":
            assert f".TH millstream-{name} 1" in printed("man", name)
    assert "millstream\\-node" not in whole


@pytest.mark.parametrize("words, told", [
    (["man", "rum"], "did you mean run?"),
    (["man", "node"], "the commands are"),
    (["completions", "tcsh"], "bash"),
])
def test_what_there_is_not_is_refused(words, told):
    done = harness.run(*words, stats=False)
    assert done.code == 2 and told in done.stderr, done.stderr
