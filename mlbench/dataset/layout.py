"""Names of a data set's files, and how a split is put in place whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mlbench.errors import InputError
from mlbench.worker.recordio import RecordWriter


class Split(Enum):
    """The two parts of a data set; the value begins the names of its files."""

    train = "train"
    val = "val"


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """One `.rec` file and its `.idx`."""

    rec: Path
    idx: Path

    @classmethod
    def of_rec(cls, rec: Path) -> RecordFiles:
        """The pair whose `.idx` stands beside the `.rec` under the same name."""
        return cls(rec=rec, idx=rec.with_suffix(".idx"))


def split_files(folder: Path, split: Split, num_shards: int = 1) -> list[RecordFiles]:
    """`train.rec`, or `train-00000-of-00008.rec` and so on, with the `.idx` of each."""
    if num_shards == 1:
        return [RecordFiles.of_rec(folder / f"{split.value}.rec")]
    names = (f"{split.value}-{shard:05d}-of-{num_shards:05d}.rec" for shard in range(num_shards))
    return [RecordFiles.of_rec(folder / name) for name in names]


@contextmanager
def writing(files: RecordFiles) -> Iterator[RecordWriter]:
    """A writer whose files appear under their names, complete and on disk, only when the block ends well.

    Raises: InputError: the folder cannot be written (also when the disk is full)."""
    temporary = RecordFiles(rec=_temporary(files.rec), idx=_temporary(files.idx))
    try:
        files.rec.parent.mkdir(parents=True, exist_ok=True)
        try:
            with RecordWriter(str(temporary.rec), str(temporary.idx)) as writer:
                yield writer
                writer.sync()
            # The .rec first: a reader that finds the .idx finds the records that it names.
            temporary.rec.replace(files.rec)
            temporary.idx.replace(files.idx)
        finally:
            temporary.rec.unlink(missing_ok=True)
            temporary.idx.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{files.rec}: cannot be written: {error.strerror or error}; check space and rights"
        ) from error


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
