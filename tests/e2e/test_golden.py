"""Checkpoints of releases: a job goes on from them, with any number of workers, and gives the rows of a job that was
never stopped."""

import shutil
from collections import Counter
from pathlib import Path

import golden
import pytest

RELEASES = sorted(path.parent.name for path in golden.GOLDEN.glob("*/expected.txt"))


def test_there_is_one():
    assert RELEASES


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_goes_on_from_the_checkpoint_of_a_release(tmp_path: Path, release: str, workers: int):
    folder = tmp_path / "job"
    shutil.copytree(golden.GOLDEN / release, folder)
    expected = Counter((folder / "expected.txt").read_text().splitlines())
    before = golden.rows(folder)
    assert before < expected
    golden.add(folder, [(folder / "later" / f"{table}.csv").read_text() for table in golden.TABLES])
    said = golden.run(folder, workers, expected)
    assert "resumed from checkpoint" in said, said
    assert golden.rows(folder) == expected, (expected - golden.rows(folder), golden.rows(folder) - expected, said)
