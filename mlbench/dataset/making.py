"""Synthetic data sets of any size, made in parallel; the pictures are those of dataset/synthetic.py."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mlbench.dataset.layout import RecordFiles, Split, concatenate, refuse_existing, split_files, writing
from mlbench.dataset.parallel import Report, count, no_report, run_all
from mlbench.dataset.synthetic import ImageMaker, Recipe, fit_recipe
from mlbench.dataset.workfolder import work_folder
from mlbench.errors import InputError
from mlbench.worker.recordio import pack_image

PART_IMAGES = 2000
SEED = 8440
_COUNT_EVERY = 64
_FOLDER = ".making"


class CopyMode(Enum):
    """How a copy of the set is made: real bytes, or another name of the same file (no space, one page cache)."""

    stream = "stream"
    link = "link"


@dataclass(frozen=True, slots=True)
class SyntheticPart:
    """Images `first` up to `end` of a recipe, and their file."""

    recipe: Recipe
    first: int
    end: int
    files: RecordFiles


@dataclass(frozen=True, slots=True)
class SyntheticSet:
    """What was made. `num_train` counts all copies; bytes are of the encoded images, one copy."""

    train: tuple[RecordFiles, ...]
    val: RecordFiles | None
    num_train: int
    num_val: int
    image_bytes: int
    mean_image_bytes: float


def make_synthetic(
    out: Path,
    *,
    num_images: int,
    num_val: int,
    px: int,
    mean_bytes: int,
    copies: int,
    copy_mode: CopyMode,
    num_workers: int,
    report: Report = no_report,
) -> SyntheticSet:
    """Write train.rec (with `copies` above 1 as many shards of the same images) and, if `num_val`, val.rec.

    Raises: InputError: sizes that cannot be reached, files that are there already, a full disk."""
    recipe = fit_recipe(px=px, mean_bytes=mean_bytes, seed=SEED)
    refuse_existing(out, Split, "give another --out")
    train = split_files(out, Split.train, copies)
    val = split_files(out, Split.val)[0] if num_val else None
    try:
        with work_folder(out, _FOLDER) as work:
            tasks = _parts(recipe, work, 0, num_images) + _parts(recipe, work, num_images, num_images + num_val)
            sizes = dict(run_all(write_part, tasks, num_workers, report))
            own = [task for task in tasks if task.first < num_images]
            # The files get their places at the very end: a set is never there in part.
            whole = work / "whole"
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir()
            copied = split_files(whole, Split.train, copies)
            concatenate([task.files for task in own], copied[0])
            for copy in copied[1:]:
                _copy(copied[0], copy, copy_mode)
            if val:
                concatenate(
                    [task.files for task in tasks if task.first >= num_images], split_files(whole, Split.val)[0]
                )
            for path in sorted(whole.iterdir()):
                path.replace(out / path.name)
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}; check space and rights") from error
    image_bytes = sum(sizes[task.first] for task in own)
    return SyntheticSet(tuple(train), val, num_images * copies, num_val, image_bytes, image_bytes / num_images)


def _parts(recipe: Recipe, work: Path, first: int, end: int) -> list[SyntheticPart]:
    starts = range(first, end, PART_IMAGES)
    return [
        SyntheticPart(recipe, start, min(start + PART_IMAGES, end), RecordFiles.of_rec(work / f"{start:010d}.rec"))
        for start in starts
    ]


def write_part(part: SyntheticPart) -> tuple[int, int]:
    """Write one part; (its first number, bytes of its images). Runs in a worker process."""
    maker = ImageMaker(part.recipe)
    total = done = done_bytes = 0
    with writing(part.files) as writer:
        for number in range(part.first, part.end):
            jpeg = maker.jpeg(number)
            writer.write(number, pack_image(float(maker.label(number)), number, jpeg))
            total += len(jpeg)
            done += 1
            done_bytes += len(jpeg)
            if done == _COUNT_EVERY:
                count(done, done_bytes)
                done = done_bytes = 0
    count(done, done_bytes)
    return part.first, total


def _copy(source: RecordFiles, target: RecordFiles, mode: CopyMode) -> None:
    for old, new in ((source.rec, target.rec), (source.idx, target.idx)):
        if mode is CopyMode.link:
            os.link(old, new)
        else:
            # Not copyfile: on some file systems it shares the blocks, and then a storage test reads one copy only.
            with old.open("rb") as reader, new.open("wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 24)
