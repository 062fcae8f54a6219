"""The records of one split, numbered through its files, wherever they lie: files, or objects of a bucket."""

from __future__ import annotations

import os
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..job import Data
from ..ranks import Rank
from ..recordio import RecordFault, extents, parse_record, read_index, unpack_image


class DataFault(Exception):
    """The data are not what the job says: another number of records, an image that cannot be decoded."""


class Place(NamedTuple):
    """Where a record lies: number of its file, offset and bytes of the whole record there."""

    file: int
    offset: int
    extent: int


class RecordSet:
    """All records of a split in the order of the job's files and of their indexes; 20 bytes of memory each.

    Raises, when opened: DataFault, RecordFault, OSError."""

    def __init__(self, paths: Sequence[str], indexes: Sequence[Any], sizes: Sequence[int], expected: int) -> None:
        """`indexes`: recordio.Index of each file; `sizes`: bytes of each file; `expected`: records in all."""
        import numpy

        self.paths = list(paths)
        offsets = [numpy.asarray(index.offsets, dtype="uint64") for index in indexes]
        lengths = [numpy.asarray(extents(index.offsets, size), dtype="uint64") for index, size in zip(indexes, sizes)]
        for path, own, size in zip(paths, offsets, sizes):
            if len(own) and int(own.max()) >= size:
                raise RecordFault(path, int(own.max()), "the index names this offset, the file ends at %d" % size)
        self.files = numpy.repeat(numpy.arange(len(paths), dtype="int32"), [len(own) for own in offsets])
        self.offsets = numpy.concatenate(offsets) if offsets else numpy.zeros(0, "uint64")
        self.extents = numpy.concatenate(lengths) if lengths else numpy.zeros(0, "uint64")
        if len(self.offsets) != expected:
            raise DataFault("%s: %d records, expected %d" % (", ".join(paths), len(self.offsets), expected))

    def place(self, number: int) -> Place:
        """Where record `number` lies."""
        return Place(int(self.files[number]), int(self.offsets[number]), int(self.extents[number]))

    def where(self, number: int) -> str:
        """File, record and offset, for messages."""
        place = self.place(number)
        first = int(self.files.searchsorted(place.file))
        return "%s, record %d, offset %d" % (self.paths[place.file], number - first, place.offset)


class FileSource:
    """Records in files. `fds` are the open files, for readers that do their own I/O."""

    def __init__(self, recs: Sequence[str], idxs: Sequence[str], expected: int) -> None:
        self.fds: List[int] = []
        try:
            for path in recs:
                self.fds.append(os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
            sizes = [os.fstat(fd).st_size for fd in self.fds]
            self.records = RecordSet(recs, [read_index(path) for path in idxs], sizes, expected)
        except BaseException:
            self.close()
            raise

    def read(self, number: int) -> bytes:
        """The whole record as it lies in the file. Raises OSError."""
        place = self.records.place(number)
        return os.pread(self.fds[place.file], place.extent, place.offset)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def image_of(source: Any, number: int, raw: Optional[bytes] = None) -> Tuple[float, memoryview]:
    """(label, encoded image) of a record. Raises RecordFault, OSError."""
    place = source.records.place(number)
    path = source.records.paths[place.file]
    payload = parse_record(source.read(number) if raw is None else raw, path, place.offset)
    try:
        header, image = unpack_image(payload)
    except ValueError as error:
        raise RecordFault(path, place.offset, str(error))
    return header.label, image


def check_labels(records: RecordSet, numbers: Any, labels: Any, num_classes: int) -> None:
    """Each label is a class of the model. `numbers`: of the images; `labels`: as many numbers.

    Raises DataFault: MXNet's loss takes the nearest class instead, and nobody would see it."""
    import numpy

    own = numpy.asarray(labels, dtype="float64")
    wrong = numpy.flatnonzero(~((own >= 0) & (own < num_classes) & (own == numpy.floor(own))))
    if len(wrong):
        place = int(wrong[0])
        raise DataFault(
            "%s: label %g, expected a class, 0 to %d (data.num_classes=%d)"
            % (records.where(int(numbers[place])), own[place], num_classes - 1, num_classes)
        )


def open_source(data: Data, rank: Rank, recs: Sequence[str], idxs: Sequence[str], expected: int) -> Any:
    """The records where the job says they are: a FileSource, or s3.BucketSource for `s3://` paths.

    Raises DataFault, RecordFault, OSError."""
    if recs and recs[0].startswith("s3://"):
        from ..s3 import open_bucket_source

        return open_bucket_source(data.s3_endpoints, rank.rank, recs, idxs, expected, data.num_threads)
    return FileSource(recs, idxs, expected)
