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
