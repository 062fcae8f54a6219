"""Which files a plan reads: one, those that match, or the shards that `data import --shards` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.plan.types import Plan

Planned = Callable[..., Plan]


def _make(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in (*names, "val.rec"):
        (folder / name).write_bytes(b"records")


def _names(planned: Planned, folder: Path, *more: str) -> list[str]:
    plan = planned(f"data.path={folder}", "data.make_if_missing=false", *more)
    assert [Path(idx).stem for idx in plan.data.worker.train_idx] == [Path(r).stem for r in plan.data.worker.train_rec]
    return [Path(rec).name for rec in plan.data.worker.train_rec]


def test_plan_data_shards_stand_for_the_file_that_is_not_there(planned: Planned, tmp_path: Path) -> None:
    shards = [f"train-{number:05d}-of-00003.rec" for number in range(3)]
    _make(tmp_path / "d", *reversed(shards))
    assert _names(planned, tmp_path / "d") == shards


def test_plan_data_the_file_itself_comes_before_shards(planned: Planned, tmp_path: Path) -> None:
    _make(tmp_path / "d", "train.rec", "train-00000-of-00001.rec")
    assert _names(planned, tmp_path / "d") == ["train.rec"]


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00003.rec", "train-00002-of-00003.rec"),
        ("train-00000-of-00001.rec", "train-00000-of-00002.rec", "train-00001-of-00002.rec"),
        ("train-extra.rec",),
        (),
    ],
    ids=["one missing", "two sets", "another name", "none"],
)
def test_plan_data_shards_that_are_no_whole_set_stand_for_nothing(
    planned: Planned, tmp_path: Path, names: tuple[str, ...]
) -> None:
    _make(tmp_path / "d", *names)
    assert _names(planned, tmp_path / "d") == ["train.rec"]


def test_plan_data_folder_whose_name_is_a_pattern_is_taken_as_it_is(planned: Planned, tmp_path: Path) -> None:
    shards = ["train-00000-of-00002.rec", "train-00001-of-00002.rec"]
    _make(tmp_path / "a[b]", *shards)
    assert _names(planned, f"'{tmp_path}/a[b]'") == shards  # type: ignore[arg-type]
