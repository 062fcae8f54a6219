"""Ids that never meet, folders that must not exist, one runner a run set."""

from __future__ import annotations

import multiprocessing
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mlbench.collect.runfolder import RunFolder
from mlbench.errors import InputError, PreflightError
from mlbench.runner import identity
from mlbench.runner.identity import create_run_folder, find_run_folder, held, new_run_set_id

NOW = datetime(2026, 12, 1, 10, 11, 32, tzinfo=UTC)


def test_run_set_id_holds_time_benchmark_and_random_part() -> None:
    first, second = new_run_set_id("resnet50", NOW), new_run_set_id("resnet50", NOW)
    assert first.startswith("20261201-101132-resnet50-")
    assert first != second


def test_run_set_id_of_an_odd_benchmark_name_is_a_plain_word() -> None:
    assert "/" not in new_run_set_id("../my bench", NOW)
    assert " " not in new_run_set_id("../my bench", NOW)


def test_create_eight_in_the_same_second_gives_eight(tmp_path: Path) -> None:
    made = {create_run_folder(tmp_path, "resnet50", NOW).path for _ in range(8)}
    assert len(made) == 8
    assert all(path.is_dir() for path in made)


def test_create_never_takes_a_folder_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["one", "one", "two"])
    monkeypatch.setattr(identity, "new_run_set_id", lambda benchmark, now: next(ids))
    assert create_run_folder(tmp_path, "x", NOW).run_set == "one"
    assert create_run_folder(tmp_path, "x", NOW).run_set == "two"


def test_create_under_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(PreflightError, match=r"runs_dir .*nothing was launched"):
        create_run_folder(tmp_path / "runs", "resnet50", NOW)


def make_run_set(runs: Path, name: str) -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / "run_set.json").write_text("{}")


def test_find_by_id_end_and_path(tmp_path: Path) -> None:
    make_run_set(tmp_path, "20261201-101132-resnet50-aaaa1111")
    make_run_set(tmp_path, "20261201-101133-resnet50-bbbb2222")
    whole = find_run_folder("20261201-101132-resnet50-aaaa1111", tmp_path)
    assert find_run_folder("bbbb2222", tmp_path).run_set.endswith("bbbb2222")
    assert find_run_folder(str(whole.path), tmp_path / "elsewhere").path == whole.path


def test_find_of_what_fits_two_asks_for_more(tmp_path: Path) -> None:
    make_run_set(tmp_path, "20261201-101132-resnet50-aaaa1111")
    make_run_set(tmp_path, "20261201-101133-resnet50-bbbb2222")
    with pytest.raises(InputError, match="fits 2 run sets"):
        find_run_folder("20261201", tmp_path)


def test_find_of_nothing_names_the_nearest(tmp_path: Path) -> None:
    make_run_set(tmp_path, "20261201-101132-resnet50-aaaa1111")
    with pytest.raises(InputError, match="did you mean '20261201-101132-resnet50-aaaa1111'"):
        find_run_folder("20261201-101132-resnet50-aaaa1112", tmp_path)


def _try_to_hold(path: str, answer: multiprocessing.connection.Connection) -> None:
    try:
        with held(RunFolder(Path(path))):
            answer.send("held")
    except PreflightError as error:
        answer.send(str(error))


@pytest.mark.slow
def test_held_run_set_is_refused_to_another_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with held(RunFolder(tmp_path)):
        process = context.Process(target=_try_to_hold, args=(str(tmp_path), theirs))
        process.start()
        assert ours.poll(30)
        found = ours.recv()
        process.join(30)
    assert f"process {os.getpid()}" in found
    with held(RunFolder(tmp_path)):
        pass  # free again
