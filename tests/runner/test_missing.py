"""What is still to be run, by what is on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlbench.collect.runfiles import AttemptFile, write_json
from mlbench.collect.runfolder import RunFolder
from mlbench.errors import InputError
from mlbench.runner.missing import Slot, attempts_of, missing_slots

RECORD = AttemptFile(
    schema_version=1,
    job_id="x",
    index=0,
    attempt=0,
    warmup=False,
    rehearsal=True,
    status="success",
    reason=None,
    exit_status=0,
    seed=1,
    cache_clear=False,
    launched_at="2026-12-01T10:00:00+00:00",
    ended_at="2026-12-01T10:00:01+00:00",
    lifetime_s=1.0,
    argv=[],
    last_record=None,
    last_lines=[],
    log=None,
    num_strays=0,
)


def put(folder: RunFolder, index: int, attempt: int, status: str | None, *, warmup: bool = False) -> None:
    item = folder.attempt(index, attempt, warmup=warmup)
    item.path.mkdir(parents=True)
    if status is not None:
        record = dataclasses.replace(RECORD, index=index, attempt=attempt, warmup=warmup, status=status)
        write_json(item.outcome, record)


def missing(folder: RunFolder, repeats: int, warmup_runs: int = 0) -> list[Slot]:
    return missing_slots(attempts_of(folder), repeats=repeats, warmup_runs=warmup_runs)


def test_missing_of_a_new_run_set_is_everything_warmups_first(tmp_path: Path) -> None:
    found = missing(RunFolder(tmp_path), 2, 1)
    assert found == [Slot(0, 0, True), Slot(0, 0, False), Slot(1, 0, False)]


def test_missing_after_a_crash_is_the_crashed_one_as_a_new_attempt(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for index, status in enumerate(["success", "success", "crashed", "success", "success"]):
        put(folder, index, 0, status)
    assert missing(folder, 5) == [Slot(2, 1, False)]


def test_missing_after_the_second_attempt_worked_is_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    put(folder, 0, 0, "timeout")
    put(folder, 0, 1, "success")
    assert missing(folder, 1) == []


@pytest.mark.parametrize("status", ["crashed", "timeout", "incomplete", "interrupted", None])
def test_missing_counts_faults_and_attempts_cut_short(tmp_path: Path, status: str | None) -> None:
    folder = RunFolder(tmp_path)
    put(folder, 0, 0, status)
    assert missing(folder, 1) == [Slot(0, 1, False)]


def test_missing_does_not_pick_a_run_that_ended_without_converging(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    put(folder, 0, 0, "aborted")
    assert missing(folder, 1) == []


def test_attempts_of_a_damaged_record_names_the_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    put(folder, 0, 0, "success")
    folder.attempt(0, 0).outcome.write_text("{")
    with pytest.raises(InputError, match=r"attempt\.json: is not JSON"):
        attempts_of(folder)
