"""Read every record of a data set: frame, header, and the image's codes; in parallel.

A file is cut into ranges at offsets of its index. A worker walks its range from record to record, so each byte is read
once and memory does not grow with the file. After a fault it goes on at the next record of the index, else at the next
head in the file.

With the native decoder workers are threads: C passes sound records in batches without the interpreter's lock, and only
a record that is not plainly sound comes to Python, which says what is wrong with it. Without, they are processes."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mlbench.dataset.judge import Decoder, Judge, native_library
from mlbench.dataset.layout import RecordFiles, Split, set_faults
from mlbench.dataset.parallel import Report, count, no_report, run_all, run_threads
from mlbench.dataset.verify import Fault, label_fault, quick_check
from mlbench.errors import InputError
from mlbench.worker.native import library as native
from mlbench.worker.recordio import (
    RecordFault,
    RecordReader,
    file_order,
    next_head,
    read_index,
    scan_offsets,
    unpack_image,
)

MAX_FAULTS_KEPT = 1000
"""Of one range; more are counted only."""
RANGE_RECORDS = 2000
RANGE_BYTES = 16 << 20
"""A range ends at whichever comes first: enough work to be worth a decoder, and enough ranges for every core."""
DAMAGED_CODES = "JPEG is damaged: invalid Huffman codes, which decoders pass over in silence"
_COUNT_EVERY = 64


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one file between two offsets, and the offsets that the index names there, rising."""

    rec: Path
    start: int
    end: int
    first_record: int
    expected: array[int]
    decode: bool


@dataclass(slots=True)
class Findings:
    """What was read. `faults` keeps the first ones; `num_faults` counts all. `decoder` is what read the images (None:
    they were not decoded), `why_slow` why that is not the native one."""

    num_records: int = 0
    image_bytes: int = 0
    num_faults: int = 0
    faults: list[Fault] = field(default_factory=list)
    labels: set[float] = field(default_factory=set)
    decoder: Decoder | None = None
    why_slow: str = ""

    def pass_records(self, num_records: int, image_bytes: int, labels: Iterable[float]) -> None:
        """So many more are sound."""
        self.num_records += num_records
        self.image_bytes += image_bytes
        self.labels.update(labels)

    def add(self, fault: Fault) -> None:
        self.num_faults += 1
        if len(self.faults) < MAX_FAULTS_KEPT:
            self.faults.append(fault)

    def merge(self, other: Findings) -> None:
        self.pass_records(other.num_records, other.image_bytes, other.labels)
        self.num_faults += other.num_faults
        self.faults += other.faults[: MAX_FAULTS_KEPT - len(self.faults)]


def record_files(path: Path) -> list[RecordFiles]:
    """The `.rec` files of a folder, or the one named. Raises: InputError: none there."""
    if path.is_dir():
        found = sorted(path.glob("*.rec"))
        if not found:
            raise InputError(f"{path}: no .rec file in this folder; expected train.rec and val.rec, or shards of them")
        return [RecordFiles.of_rec(rec) for rec in found]
    if path.suffix == ".idx":
        path = path.with_suffix(".rec")
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder; expected a .rec file or a folder of them")
    return [RecordFiles.of_rec(path)]


def verify_all(
    files: Sequence[RecordFiles], *, num_workers: int, decode: bool = True, report: Report = no_report
) -> Findings:
    """Read every record of these files. Faults come in the order of file and offset.

    Raises: InputError: a file cannot be read at all."""
    library, reason = native_library()
    findings = Findings()
    if decode:
        findings.decoder, findings.why_slow = Decoder.pillow if library is None else Decoder.native, reason
    ranges: list[Range] = []
    try:
        for pair in files:
            own, faults = _ranges(pair, decode)
            ranges += own
            for fault in faults:
                findings.add(fault)
        if library is None:
            results = run_all(verify_range, ranges, num_workers, report)
        else:
            results = run_threads(partial(verify_range, library=library), ranges, num_workers, report)
        for result in results:
            findings.merge(result)
    except OSError as error:
        raise InputError(f"{error.filename or files[0].rec}: cannot be read: {error.strerror}") from error
    order = {pair.rec: number for number, pair in enumerate(files)}
    findings.faults.sort(key=lambda fault: (order.get(fault.path.with_suffix(".rec"), 0), fault.offset or 0))
    return findings


def _ranges(pair: RecordFiles, decode: bool) -> tuple[list[Range], list[Fault]]:
    """Ranges of a file, and the faults that its index shows before a record is read."""
    size = pair.rec.stat().st_size
    faults: list[Fault] = []
    offsets: array[int] = array("Q")
    if size == 0:
        return [], [Fault(pair.rec, "the file is empty (0 bytes)", 0)]
    if not pair.idx.is_file():
        faults.append(Fault(pair.idx, f"not there; expected beside {pair.rec.name}"))
    else:
        try:
            found = read_index(str(pair.idx)).offsets
            offsets, own = _each_once(pair, found, size)
            faults += own
        except RecordFault as fault:
            faults.append(Fault(pair.idx, fault.reason, fault.offset))
    inside = bisect_left(offsets, size)
    faults += [
        Fault(pair.idx, f"offset lies outside {pair.rec.name} ({size} bytes): the index is of another file", offset)
        for offset in offsets[inside : inside + 1]
    ]
    offsets = offsets[:inside]
    known = bool(offsets)
    if not known:
        try:
            offsets = scan_offsets(str(pair.rec))
        except RecordFault:
            offsets = array("Q")  # the walk over the file finds the fault again, and what lies behind it
    return _cut(pair.rec, size, offsets, known, decode), faults


def _each_once(pair: RecordFiles, offsets: Sequence[int], size: int) -> tuple[array[int], list[Fault]]:
    """Offsets of an index, rising and each once, and what is wrong with their number."""
    if not offsets:
        return array("Q"), [Fault(pair.idx, f"the index is empty, {pair.rec.name} has {size} bytes")]
    once: array[int] = array("Q")
    faults = []
    for place in file_order(offsets):
        if once and offsets[place] == once[-1]:
            faults.append(Fault(pair.idx, "the index names this record twice", offsets[place], place))
        else:
            once.append(offsets[place])
    return once, faults


def _cut(rec: Path, size: int, offsets: array[int], known: bool, decode: bool) -> list[Range]:
    starts = [0]  # places in `offsets`
    while (place := _next_range(offsets, starts[-1])) < len(offsets):
        starts.append(place)
    borders = [0, *(offsets[place] for place in starts[1:]), size]
    ranges = []
    for place, behind, (start, end) in zip(starts, [*starts[1:], None], itertools.pairwise(borders), strict=True):
        expected = offsets[place:behind] if known else array("Q")
        ranges.append(Range(rec, start, end, place, expected, decode))
    return ranges


def _next_range(offsets: array[int], place: int) -> int:
    """Where the range behind the one that begins at this place begins."""
    if place >= len(offsets):
        return place
    return min(place + RANGE_RECORDS, bisect_left(offsets, offsets[place] + RANGE_BYTES, place + 1))


def verify_range(what: Range, library: Any = None) -> Findings:
    """Walk one range with the native decoder's library, or without (None)."""
    findings = Findings()
    seen: array[int] = array("Q")
    with ExitStack() as stack:
        reader = stack.enter_context(RecordReader(str(what.rec)))
        judge = stack.enter_context(closing(Judge(library))) if what.decode else None
        walker = None
        if library is not None:
            stream = stack.enter_context(what.rec.open("rb", buffering=0))
            walker = stack.enter_context(closing(native.Walker(library, stream.fileno(), what.decode)))
        at, done, done_bytes, is_damaged = what.start, 0, 0, False
        while at < what.end:
            if walker is not None:
                walk, offsets, labels = walker.walk(at, what.end)
                if any(map(label_fault, set(labels))):  # a set first: there are far fewer classes than records
                    for offset in offsets:
                        _verify_record(what, reader, judge, offset, seen, findings, False)
                else:
                    seen.extend(offsets)
                    findings.pass_records(walk.num_records, walk.image_bytes, labels)
                count(walk.num_records, walk.behind - at)
                at = walk.behind
                if not walk.is_odd:
                    continue
                is_damaged = bool(walk.is_damaged)
            behind = _verify_record(what, reader, judge, at, seen, findings, is_damaged)
            done += 1
            done_bytes += behind - at
            at = behind
            if done == _COUNT_EVERY:
                count(done, done_bytes)
                done = done_bytes = 0
        count(done, done_bytes)
    _compare(what, seen, findings)
    return findings


def _verify_record(
    what: Range,
    reader: RecordReader,
    judge: Judge | None,
    at: int,
    seen: array[int],
    findings: Findings,
    is_damaged: bool,
) -> int:
    """Judge one record, sound or not; where to go on. `is_damaged`: its codes are, whatever the judge says."""
    number = what.first_record + len(seen)
    try:
        payload, behind = reader.read_with_end(at)
    except RecordFault as fault:
        findings.add(Fault(what.rec, fault.reason, at, number))
        if _names(what.expected, at):
            seen.append(at)
        return _resume(what, at)
    seen.append(at)
    try:
        header, image = unpack_image(payload)
    except ValueError as error:
        findings.add(Fault(what.rec, str(error), at, number))
        return behind
    reason = (judge.fault(image) if judge else None) or (DAMAGED_CODES if is_damaged else label_fault(header.label))
    if reason:
        findings.add(Fault(what.rec, reason, at, number))
    else:
        findings.pass_records(1, len(image), (header.label,))
    return behind


def _names(offsets: array[int], at: int) -> bool:
    place = bisect_left(offsets, at)
    return place < len(offsets) and offsets[place] == at


def _resume(what: Range, at: int) -> int:
    """Where to go on behind a fault: the next record of the index, else the next head."""
    place = bisect_left(what.expected, at + 1)
    if place < len(what.expected):
        return what.expected[place]
    head = next_head(str(what.rec), at + 4, what.end) if not what.expected else None
    return what.end if head is None else head


def _compare(what: Range, seen: array[int], findings: Findings) -> None:
    """Records that the index does not name, and entries that are no record."""
    if not what.expected or what.expected == seen:
        return
    named, found = set(what.expected), set(seen)
    for offset in sorted(found - named):
        findings.add(Fault(what.rec, "record is not in the index", offset))
    for offset in sorted(named - found):
        findings.add(Fault(what.rec.with_suffix(".idx"), "offset is not on a record's head", offset))


def quick_all(files: Sequence[RecordFiles]) -> list[Fault]:
    """The quick check of each file."""
    return [fault for pair in files for fault in quick_check(pair.rec, pair.idx, None)]


def whole_set_faults(path: Path) -> list[Fault]:
    """What is missing or too much in a folder of record files; nothing is known of a single file."""
    if not path.is_dir():
        return []
    return [Fault(file, reason) for split in Split for file, reason in set_faults(path, split)]
