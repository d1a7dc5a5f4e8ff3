"""`millstream-lab bench files` reads the file that it has made, in every format, and its answer is DuckDB's."""

import json
import sys

import harness
import pytest

sys.path.insert(0, str(harness.ROOT / "tests"))
import file_speed  # noqa: E402

RECORDS = 20_000


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet", "arrow"])
def test_a_file_of_each_format_has_the_answer_of_duckdb(form, tmp_path):
    answers = []
    for workers in (1, 2):
        path = tmp_path / f"events.{form}"
        result = harness.bench("files", "--format", form, "--file", path, "--records", RECORDS, "--keys", 50,
                               "--workers", workers, "--json")
        assert result.code == 0, result.stderr
        said = json.loads(result.stdout)
        assert said["records"] == RECORDS and said["input_bytes"] == path.stat().st_size
        answers.append(said)
    if form in file_speed.TABLES:
        _, theirs = file_speed.by_duckdb(file_speed.TABLES[form].replace("{}", str(path)), 1)
        assert all(file_speed.agree(said, theirs) for said in answers), (answers, theirs)
    assert answers[0]["rows"] == answers[1]["rows"] > 0


@pytest.mark.parametrize("words, message", [
    (["--format", "orc"], "there is no format 'orc' to measure"),
    (["--generate-only"], "name the file, with --file"),
    (["--zipf", "1"], "--zipf does not go with the workload 'files'"),
])
def test_what_makes_no_sense_is_refused(words, message):
    result = harness.bench("files", *words)
    assert result.code == 2 and message in result.stderr, result.stderr


def test_options_of_files_are_its_own():
    result = harness.bench("cm", "--records", 1000, "--format", "csv")
    assert result.code == 2 and "it belongs to the workload `files`" in result.stderr, result.stderr
