"""Read every record of a data set: frame, header, and the image decoded; at the disk's speed, in parallel.

A file is cut into ranges at offsets of its index. A worker walks its range from record to record, so each byte is read
once and memory does not grow with the file. After a fault it goes on at the next record of the index, else at the next
head in the file."""

from __future__ import annotations

import io
import itertools
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlbench.dataset.layout import RecordFiles
from mlbench.dataset.parallel import Report, count, no_report, run_all
from mlbench.dataset.verify import Fault, quick_check
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
    """What was read. `faults` keeps the first ones; `num_faults` counts all."""

    num_records: int = 0
    image_bytes: int = 0
    num_faults: int = 0
    faults: list[Fault] = field(default_factory=list)
    labels: set[float] = field(default_factory=set)

    def add(self, fault: Fault) -> None:
        self.num_faults += 1
        if len(self.faults) < MAX_FAULTS_KEPT:
            self.faults.append(fault)

    def merge(self, other: Findings) -> None:
        self.num_records += other.num_records
        self.image_bytes += other.image_bytes
        self.num_faults += other.num_faults
        self.faults += other.faults[: MAX_FAULTS_KEPT - len(self.faults)]
        self.labels |= other.labels


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
    findings = Findings()
    ranges: list[Range] = []
    for pair in files:
        try:
            own, fault = _ranges(pair, decode)
        except OSError as error:
            raise InputError(f"{error.filename or pair.rec}: cannot be read: {error.strerror}") from error
        ranges += own
        for found in fault:
            findings.add(found)
    for result in run_all(verify_range, ranges, num_workers, report):
        findings.merge(result)
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
            offsets = array("Q", (found[place] for place in file_order(found)))
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


def _cut(rec: Path, size: int, offsets: array[int], known: bool, decode: bool) -> list[Range]:
    borders = [0, *offsets[RANGE_RECORDS::RANGE_RECORDS], size]
    ranges = []
    for number, (start, end) in enumerate(itertools.pairwise(borders)):
        expected = offsets[number * RANGE_RECORDS : (number + 1) * RANGE_RECORDS] if known else array("Q")
        ranges.append(Range(rec, start, end, number * RANGE_RECORDS, expected, decode))
    return ranges


def verify_range(what: Range) -> Findings:
    """Walk one range; runs in a worker process."""
    findings = Findings()
    seen: array[int] = array("Q")
    judge = Judge() if what.decode else None
    with RecordReader(str(what.rec)) as reader:
        at = what.start
        done = done_bytes = 0
        while at < what.end:
            number = what.first_record + len(seen)
            try:
                payload, behind = reader.read_with_end(at)
            except RecordFault as fault:
                findings.add(Fault(what.rec, fault.reason, at, number))
                if _names(what.expected, at):
                    seen.append(at)
                at = _resume(what, at)
                continue
            seen.append(at)
            _judge(judge, what, payload, at, number, findings)
            done += 1
            done_bytes += behind - at
            at = behind
            if done == _COUNT_EVERY:
                count(done, done_bytes)
                done = done_bytes = 0
        count(done, done_bytes)
    if judge:
        judge.close()
    _compare(what, seen, findings)
    return findings


def _judge(judge: Judge | None, what: Range, payload: bytes, at: int, number: int, findings: Findings) -> None:
    try:
        header, image = unpack_image(payload)
    except ValueError as error:
        findings.add(Fault(what.rec, str(error), at, number))
        return
    reason = judge.fault(image) if judge else None
    if reason:
        findings.add(Fault(what.rec, reason, at, number))
        return
    findings.num_records += 1
    findings.image_bytes += len(image)
    findings.labels.add(header.label)


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


class Judge:
    """Decodes images to see whether they can be: JPEGs through the native decoder where it is built, which also names
    damage that decoders mend in silence; everything else, and all without it, through Pillow."""

    def __init__(self) -> None:
        try:
            self._checker: native.Checker | None = native.Checker(native.load())
        except native.NativeError:
            self._checker = None

    def fault(self, image: memoryview) -> str | None:
        """Why an encoded image is not sound; None when it is."""
        if self._checker is not None:
            status, num_warnings, message = self._checker.check(bytes(image))
            if status == native.OK:
                return f"JPEG is damaged: {message}" if num_warnings else None
            if status != native.OTHER_FORMAT:
                return f"image cannot be decoded: {message}"
        return pillow_fault(image)

    def close(self) -> None:
        if self._checker is not None:
            self._checker.close()


def pillow_fault(image: memoryview) -> str | None:
    """Why Pillow cannot decode an image; None when it can. JPEGs are decoded at an eighth of their size: every coded
    bit is read, only the arithmetic behind it is saved."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image)) as picture:
            width, height = picture.size
            if width * height > native.MAX_PIXELS:
                return f"image of {width} x {height} pixels, more than {native.MAX_PIXELS}"
            picture.draft(None, (max(1, width // 8), max(1, height // 8)))
            picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"image cannot be decoded: {error}"
    return None


def quick_all(files: Sequence[RecordFiles]) -> list[Fault]:
    """The quick check of each file."""
    return [fault for pair in files for fault in quick_check(pair.rec, pair.idx, None)]
