"""Is a data set what it should be? The quick check before run 1; `verify_all` in dataset/deep.py reads every record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlbench.worker.recordio import Index, RecordFault, RecordReader, file_order, read_index, unpack_image

NUM_SAMPLED_HEADS = 256
"""Records that the quick check reads, spread over the file: enough for an index of another file never to pass."""
COUNT_TOLERANCE = 0.001
"""Share by which the number of records may differ from what is expected: known copies of ILSVRC2012 lack a few."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a data set. `offset` is in bytes and of the record's head (or of the index line);
    `record` is the position of the record in its index, from 0. None: not of one record."""

    path: Path
    reason: str
    offset: int | None = None
    record: int | None = None

    def __str__(self) -> str:
        where = [str(self.path)]
        if self.record is not None:
            where.append(f"record {self.record}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        return f"{', '.join(where)}: {self.reason}"


def quick_check(rec: Path, idx: Path, expected_count: int | None) -> list[Fault]:
    """Faults of one `.rec` and its `.idx`, found in about a second a million records; empty when it is sound.

    Reads the whole index and some records. Finds: a missing or empty file; an index of another file; an offset that
    lies outside the file or not on a record's head; a record cut short; an image that is neither JPEG nor PNG; and a
    count off `expected_count` by more than one in a thousand (None: not checked)."""
    missing = _missing(rec, idx)
    if missing:
        return missing
    try:
        index = read_index(str(idx))
        with RecordReader(str(rec)) as reader:
            faults = _sizes(rec, idx, reader.size, index) or _heads(rec, idx, reader, index)
    except RecordFault as fault:
        return [_of(fault)]
    except OSError as error:
        return [Fault(Path(error.filename or rec), f"cannot be read: {error.strerror}")]
    return faults + count_faults(idx, len(index), expected_count)


def quick_check_set(recs: Sequence[Path], idxs: Sequence[Path], expected_count: int | None) -> list[Fault]:
    """Faults of all shards of one split; `expected_count` is of all of them together."""
    faults = [fault for rec, idx in zip(recs, idxs, strict=True) for fault in quick_check(rec, idx, None)]
    if faults or not idxs:
        return faults
    return count_faults(idxs[0], sum(len(read_index(str(idx))) for idx in idxs), expected_count)


def count_faults(idx: Path, found: int, expected: int | None) -> list[Fault]:
    """A fault when `found` is off `expected` by more than COUNT_TOLERANCE."""
    reason = None if expected is None else count_fault(found, expected)
    return [] if reason is None else [Fault(idx, reason)]


def count_fault(found: int, expected: int) -> str | None:
    """Why a number of records is not what is expected; None when it is near enough."""
    if abs(found - expected) <= expected * COUNT_TOLERANCE:
        return None
    return f"{found} records, expected {expected}"


def _missing(rec: Path, idx: Path) -> list[Fault]:
    absent = [path for path in (rec, idx) if not path.is_file()]
    if len(absent) == 2:
        return [Fault(path, "not there") for path in absent]
    return [Fault(path, f"not there; expected beside {(idx if path == rec else rec).name}") for path in absent]


def _sizes(rec: Path, idx: Path, size: int, index: Index) -> list[Fault]:
    if size == 0:
        return [Fault(rec, "the file is empty (0 bytes)", 0)]
    if not len(index):
        return [Fault(idx, f"the index is empty, {rec.name} has {size} bytes")]
    outside = [(at, offset) for at, offset in enumerate(index.offsets) if offset >= size or offset % 4]
    if outside:
        record, offset = outside[0]
        kind = f"lies outside {rec.name} ({size} bytes)" if offset >= size else "is no multiple of four"
        more = f"; {len(outside)} such offsets" if len(outside) > 1 else ""
        return [Fault(idx, f"offset {kind}: the index is of another file{more}", offset, record)]
    first = min(index.offsets)
    if first != 0:
        return [Fault(idx, f"no entry for offset 0, the first is {first}: the index is of another file", first)]
    return []


def _heads(rec: Path, idx: Path, reader: RecordReader, index: Index) -> list[Fault]:
    """Read records spread over the file, the first and the last in the file among them; each ends where the next
    begins."""
    order = file_order(index.offsets)
    step = max(1, len(order) // NUM_SAMPLED_HEADS)
    places = sorted({*range(0, len(order), step), len(order) - 1})
    faults = []
    for place in places:
        record = order[place]
        offset = index.offsets[record]
        behind = index.offsets[order[place + 1]] if place + 1 < len(order) else reader.size
        try:
            payload, end = reader.read_with_end(offset)
            image_fault = image_kind_fault(payload)
        except RecordFault as fault:
            faults.append(Fault(rec, fault.reason, offset, record))
            continue
        if end != behind:
            where = "the file ends" if behind == reader.size else "the index names the next"
            faults.append(Fault(idx, f"record ends at {end}, {where} at {behind}", offset, record))
        elif image_fault:
            faults.append(Fault(rec, image_fault, offset, record))
    return faults


def image_kind_fault(payload: bytes) -> str | None:
    """Why the payload is no image record, judged by its first bytes; None when it looks like one."""
    try:
        _, image = unpack_image(payload)
    except ValueError as error:
        return str(error)
    start = bytes(image[:8])
    if start[:3] == b"\xff\xd8\xff" or start == b"\x89PNG\r\n\x1a\n":
        return None
    return f"image begins with {start.hex() or 'nothing'}, expected JPEG (ffd8ff) or PNG"


def label_fault(label: float) -> str | None:
    """Why a label cannot be the number of a class; None when it can."""
    if label >= 0 and label.is_integer():  # NaN is neither
        return None
    return f"label {label:g} is no class, expected a whole number from 0 on"


def _of(fault: RecordFault) -> Fault:
    return Fault(Path(fault.path), fault.reason, fault.offset)
