"""The README's quick start does what it says, and the table of settings in docs/settings.md is complete."""

import re

import harness

README = (harness.ROOT / "README.md").read_text()
SETTINGS = (harness.ROOT / "docs" / "settings.md").read_text()


def test_the_quick_start_prints_what_the_readme_shows(tmp_path):
    sql = re.search(r"```sql\n(.*?)```", README, re.DOTALL)[1]
    data = re.search(r"```csv\n(.*?)```", README, re.DOTALL)[1]
    shown = re.search(r"    \$ target/release/millstream run events\.sql --format csv\n((?:    .*\n)+)", README)[1]
    (tmp_path / "events.sql").write_text(sql)
    (tmp_path / "clicks.csv").write_text(data)
    result = harness.run("run", tmp_path / "events.sql", "--format", "csv")
    assert result.code == 0, result.stderr
    assert result.stdout.decode() == re.sub(r"^    ", "", shown, flags=re.MULTILINE)


def test_every_setting_is_described_and_exists(tmp_path):
    described = re.findall(r"^\| `([a-z._]+)` \|", SETTINGS, re.MULTILINE)
    result = harness.run("run", "-e", "SELECT 1", "--set", "zzzzzzzzzzzz=1", stats=False)
    listed = re.search(r"the settings are (.*)", result.stderr)[1]
    assert sorted(described) == sorted(name.strip() for name in listed.split(","))
