"""Names of a data set's files, and how a split is put in place whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mlbench.errors import InputError
from mlbench.worker.recordio import RecordWriter, read_index, write_index

_COPY_BYTES = 1 << 24
_SHARD_OF = re.compile(r"-\d{5,}-of-(\d{5,})")


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


def num_shards_of(rec: Path, split: Split) -> int | None:
    """Number of shards of the set that a file belongs to by its name; None: not named as `split_files` names them."""
    stem = rec.name.removesuffix(".rec")
    if stem == split.value:
        return 1
    shard = _SHARD_OF.fullmatch(stem.removeprefix(split.value))
    return int(shard[1]) if shard and stem.startswith(split.value) else None


def present_files(folder: Path, split: Split) -> list[RecordFiles]:
    """The files of a split that are in a folder under names of `split_files`, of whatever number of shards."""
    recs = sorted(folder.glob(f"{split.value}*.rec"))
    return [RecordFiles.of_rec(rec) for rec in recs if num_shards_of(rec, split) is not None]


def set_faults(folder: Path, split: Split) -> list[tuple[Path, str]]:
    """(file, what is wrong) where the files of a split in a folder are not one whole set; empty when they are."""
    sets: dict[int, Path] = {}
    for pair in present_files(folder, split):
        sets.setdefault(num_shards_of(pair.rec, split) or 1, pair.rec)
    first, *others = sorted(sets.values()) or [folder]
    faults = [(other, f"of another set than {first.name}: two sets in one folder; move one away") for other in others]
    for number in sets:
        absent = (pair.rec for pair in split_files(folder, split, number) if not pair.rec.exists())
        faults += [(rec, "not there, but other shards of its set are; bring it, or none") for rec in absent]
    return faults


def refuse_existing(folder: Path, splits: Iterable[Split], remedy: str) -> None:
    """Raises: InputError: the folder has files of one of these splits."""
    for split in splits:
        for pair in present_files(folder, split):
            raise InputError(f"{pair.rec}: is there already; {remedy}")


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


def concatenate(parts: Sequence[RecordFiles], target: RecordFiles) -> int:
    """Join record files into one, which appears whole; returns its bytes. Raises: OSError.

    Until then it grows in the folder of the parts: whoever is killed leaves nothing in the folder of the target."""
    folder = parts[0].rec.parent
    rec, idx = (_temporary(folder / path.name) for path in (target.rec, target.idx))
    starts = []
    try:
        with rec.open("wb") as stream:
            for part in parts:
                starts.append(stream.tell())
                with part.rec.open("rb") as source:
                    shutil.copyfileobj(source, stream, _COPY_BYTES)
            size = stream.tell()
            stream.flush()
            os.fsync(stream.fileno())
        write_index(str(idx), _shifted(parts, starts))
        rec.replace(target.rec)
        idx.replace(target.idx)
    finally:
        rec.unlink(missing_ok=True)
        idx.unlink(missing_ok=True)
    return size


def _shifted(parts: Sequence[RecordFiles], starts: list[int]) -> Iterator[tuple[int, int]]:
    for part, start in zip(parts, starts, strict=True):
        index = read_index(str(part.idx))
        for key, offset in zip(index.keys, index.offsets, strict=True):
            yield key, offset + start


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
