"""RecordIO files of images: read, write and index them. Standard library only, Python 3.8.

A record is `magic, length word, payload, zeros up to a multiple of four bytes`, both words little-endian uint32. The
length word keeps the payload's bytes in its low 29 bits and a continuation flag in its top three: 0 a whole record,
1 first, 2 middle, 3 last part. A payload that holds the magic at a multiple of four bytes is cut there and the magic
left out, so that a reader may find record heads anywhere in a file; joining the parts puts it back.

An image record starts with 24 bytes: flag (uint32), label (float32), id and id2 (uint64). With flag 0 the label is
the float; otherwise `flag` float32 labels follow the header. The encoded image is the rest.

An `.idx` file has one line a record, `key<TAB>offset`, the key an integer and the offset that of the record's magic.

Source of the format: apache/mxnet python/mxnet/recordio.py and dmlc-core src/recordio.cc.
"""

from __future__ import annotations

import os
import struct
from array import array
from itertools import islice
from typing import BinaryIO, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
MAX_PAYLOAD_BYTES = (1 << 29) - 1
_HEAD = struct.Struct("<II")
HEAD_BYTES = _HEAD.size
_IMAGE_HEAD = struct.Struct("<IfQQ")
IMAGE_HEAD_BYTES = _IMAGE_HEAD.size
MAX_LABELS = 1 << 16
"""More labels than this in one record is a broken header, not a label."""

_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
_READ_BYTES = 1 << 20


class RecordFault(Exception):
    """A record or an index that breaks the format. `path`, `offset` (bytes, of the record's head) and `reason` say
    where and why; `resume` is the offset behind the record where its length is known, else None."""

    def __init__(self, path: str, offset: int, reason: str, resume: Optional[int] = None) -> None:
        super().__init__("%s: offset %d: %s" % (path, offset, reason))
        self.path = path
        self.offset = offset
        self.reason = reason
        self.resume = resume


class ImageHeader(NamedTuple):
    """Header of an image record. `labels` has one value unless the file was made for several labels an image."""

    labels: Tuple[float, ...]
    id: int
    id2: int = 0

    @property
    def label(self) -> float:
        """The first label: the class of a classification set."""
        return self.labels[0]


class Index(NamedTuple):
    """Keys and offsets in the order of the `.idx` file; both arrays of unsigned 64-bit integers."""

    keys: "array[int]"
    offsets: "array[int]"

    def __len__(self) -> int:
        return len(self.offsets)


def pack_image(label: float, image_id: int, image: bytes) -> bytes:
    """Payload of an image record with a single label."""
    return _IMAGE_HEAD.pack(0, label, image_id, 0) + image


def unpack_image(payload: Union[bytes, memoryview]) -> Tuple[ImageHeader, memoryview]:
    """Header and encoded image (a view, not a copy) of a payload. Raises ValueError when it is too short."""
    if len(payload) < IMAGE_HEAD_BYTES:
        raise ValueError("image header cut short: %d bytes, expected at least %d" % (len(payload), IMAGE_HEAD_BYTES))
    flag, label, image_id, id2 = _IMAGE_HEAD.unpack_from(payload)
    if flag == 0:
        return ImageHeader((label,), image_id, id2), memoryview(payload)[IMAGE_HEAD_BYTES:]
    image_at = IMAGE_HEAD_BYTES + 4 * flag
    if flag > MAX_LABELS or image_at > len(payload):
        raise ValueError("image header names %d labels, more than a record of %d bytes holds" % (flag, len(payload)))
    labels = struct.unpack_from("<%df" % flag, payload, IMAGE_HEAD_BYTES)
    return ImageHeader(labels, image_id, id2), memoryview(payload)[image_at:]


def frame(payload: bytes) -> bytes:
    """A payload as it stands in the file, its parts framed and padded. Raises ValueError when it is too long."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError("record of %d bytes, at most %d fit" % (len(payload), MAX_PAYLOAD_BYTES))
    cuts = _aligned_magics(payload)
    padding = b"\0" * (-len(payload) % 4)
    if not cuts:
        return _HEAD.pack(MAGIC, len(payload)) + payload + padding
    pieces = []
    start = 0
    for cut in cuts:
        flag = _FIRST if start == 0 else _MIDDLE
        pieces += [_HEAD.pack(MAGIC, flag << 29 | (cut - start)), payload[start:cut]]
        start = cut + 4
    pieces += [_HEAD.pack(MAGIC, _LAST << 29 | (len(payload) - start)), payload[start:], padding]
    return b"".join(pieces)


def _aligned_magics(payload: bytes) -> List[int]:
    found = []
    at = payload.find(MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            found.append(at)
            at = payload.find(MAGIC_BYTES, at + 4)
        else:
            at = payload.find(MAGIC_BYTES, at + 1)
    return found


class RecordWriter:
    """Appends records to a `.rec` file and their lines to its `.idx` file; use as a context manager.

    The files are written where they are named; a caller that must not leave half a file renames them afterwards."""

    def __init__(self, rec_path: str, idx_path: str) -> None:
        self._rec = open(rec_path, "wb", buffering=_READ_BYTES)  # noqa: SIM115
        try:
            self._idx = open(idx_path, "w", encoding="ascii", newline="\n")  # noqa: SIM115
        except OSError:
            self._rec.close()
            raise
        self.offset = 0

    def write(self, key: int, payload: bytes) -> int:
        """Append one record; returns its offset."""
        return self.write_framed(key, frame(payload))

    def write_framed(self, key: int, framed: bytes) -> int:
        """Append a record that is already framed (copied from another file); returns its offset."""
        at = self.offset
        self._rec.write(framed)
        self._idx.write("%d\t%d\n" % (key, at))
        self.offset += len(framed)
        return at

    def sync(self) -> None:
        """Both files are on the disk when this returns."""
        for stream in (self._rec, self._idx):
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        self._rec.close()
        self._idx.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RecordReader:
    """Reads records of one `.rec` file by offset; safe to share between threads (it uses pread)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int) -> bytes:
        """The payload of the record whose head stands at `offset`. Raises RecordFault."""
        payload, _ = self.read_with_end(offset)
        return payload

    def read_with_end(self, offset: int) -> Tuple[bytes, int]:
        """The payload and the offset behind the record. Raises RecordFault."""
        pieces: List[bytes] = []
        at = offset
        while True:
            flag, length = self._head(offset, at)
            if (flag in (_WHOLE, _FIRST)) != (at == offset):
                raise RecordFault(self.path, offset, "part %d of a record where another was expected" % flag)
            at += HEAD_BYTES
            end = at + length + (-length % 4)
            if end > self.size:
                raise RecordFault(
                    self.path, offset, "record cut short: ends at %d, the file at %d" % (end, self.size), self.size
                )
            pieces.append(os.pread(self._fd, length, at))
            at = end
            if flag in (_WHOLE, _LAST):
                return pieces[0] if flag == _WHOLE else MAGIC_BYTES.join(pieces), at

    def _head(self, record: int, at: int) -> Tuple[int, int]:
        head = os.pread(self._fd, HEAD_BYTES, at) if at >= 0 else b""
        if len(head) < HEAD_BYTES:
            raise RecordFault(self.path, record, "no record head: the file ends at %d" % self.size)
        magic, word = _HEAD.unpack(head)
        if magic != MAGIC:
            raise RecordFault(self.path, record, "bad magic 0x%08x, expected 0x%08x" % (magic, MAGIC))
        return word >> 29, word & MAX_PAYLOAD_BYTES

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "RecordReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_record(raw: bytes, path: str, offset: int) -> Union[bytes, memoryview]:
    """The payload (a view, unless it was split) of a record whose bytes were read from `path` at `offset`.

    Raises RecordFault."""
    view = memoryview(raw)
    pieces: List[memoryview] = []
    at = 0
    while True:
        if at + HEAD_BYTES > len(raw):
            raise RecordFault(path, offset, "record cut short: no head at %d" % (offset + at))
        magic, word = _HEAD.unpack_from(raw, at)
        if magic != MAGIC:
            raise RecordFault(path, offset, "bad magic 0x%08x, expected 0x%08x" % (magic, MAGIC))
        flag, length = word >> 29, word & MAX_PAYLOAD_BYTES
        if (flag in (_WHOLE, _FIRST)) != (at == 0):
            raise RecordFault(path, offset, "part %d of a record where another was expected" % flag)
        at += HEAD_BYTES
        if at + length > len(raw):
            raise RecordFault(path, offset, "record cut short: ends at %d" % (offset + at + length))
        pieces.append(view[at : at + length])
        at += length + (-length % 4)
        if flag in (_WHOLE, _LAST):
            return pieces[0] if flag == _WHOLE else MAGIC_BYTES.join(pieces)


def iter_records(path: str, start: int = 0, end: Optional[int] = None) -> Iterator[Tuple[int, bytes]]:
    """(offset, payload) of each record from `start` up to the record that begins at or behind `end`.

    One record is held at a time. Raises RecordFault at the first record that breaks the format."""
    with RecordReader(path) as reader:
        stop = reader.size if end is None else end
        at = start
        while at < stop:
            payload, behind = reader.read_with_end(at)
            yield at, payload
            at = behind


def next_head(path: str, start: int, end: int) -> Optional[int]:
    """Offset of the first magic at a multiple of four bytes in [start, end) that begins a record, or None."""
    with open(path, "rb") as stream:
        stream.seek(start + (-start % 4))
        base = stream.tell()
        while base < end:
            block = stream.read(min(_READ_BYTES, end - base) + 4)
            for at in _aligned_magics(block):
                if base + at >= end:
                    return None
                if at + HEAD_BYTES > len(block):
                    stream.seek(base + at)
                    word_at = stream.read(HEAD_BYTES)
                else:
                    word_at = block[at : at + HEAD_BYTES]
                if len(word_at) == HEAD_BYTES and _HEAD.unpack(word_at)[1] >> 29 in (_WHOLE, _FIRST):
                    return base + at
            base += _READ_BYTES
            stream.seek(base)
    return None


def read_index(path: str) -> Index:
    """Read an `.idx` file. Raises RecordFault naming the offset of the first line that is not `key<TAB>offset`."""
    with open(path, "rb") as stream:
        return parse_index(stream, path)


def parse_index(lines: Iterable[bytes], path: str) -> Index:
    """An index from the lines of `path`. Raises RecordFault as read_index does."""
    keys: "array[int]" = array("Q")
    offsets: "array[int]" = array("Q")
    at = 0
    for line in lines:
        try:
            key, offset = line.split()
            pair = (int(key), int(offset))
            if max(pair) >= 1 << 64 or min(pair) < 0:
                raise ValueError("out of range")
        except ValueError:
            if line.strip():
                shown = line[:60].decode("ascii", "backslashreplace").strip()
                raise RecordFault(path, at, "index line %r, expected 'key<TAB>offset'" % shown)
        else:
            keys.append(pair[0])
            offsets.append(pair[1])
        at += len(line)
    return Index(keys, offsets)


def write_index(path: str, entries: Iterable[Tuple[int, int]]) -> None:
    """Write an `.idx` file of (key, offset) pairs."""
    with open(path, "w", encoding="ascii", newline="\n") as stream:
        for key, offset in entries:
            stream.write("%d\t%d\n" % (key, offset))


def scan_offsets(path: str) -> "array[int]":
    """Offsets of all records, by walking from head to head (for a `.rec` without its `.idx`). Raises RecordFault."""
    offsets: "array[int]" = array("Q")
    with open(path, "rb", buffering=1 << 16) as stream:
        size = os.fstat(stream.fileno()).st_size
        at = 0
        while at < size:
            flag, end = _skip_part(stream, path, at, size)
            if flag in (_WHOLE, _FIRST):
                offsets.append(at)
            at = end
    return offsets


def _skip_part(stream: BinaryIO, path: str, at: int, size: int) -> Tuple[int, int]:
    stream.seek(at)
    head = stream.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise RecordFault(path, at, "no record head: the file ends at %d" % size)
    magic, word = _HEAD.unpack(head)
    if magic != MAGIC:
        raise RecordFault(path, at, "bad magic 0x%08x, expected 0x%08x" % (magic, MAGIC))
    length = word & MAX_PAYLOAD_BYTES
    end = at + HEAD_BYTES + length + (-length % 4)
    if end > size:
        raise RecordFault(path, at, "record cut short: ends at %d, the file at %d" % (end, size), size)
    return word >> 29, end


def file_order(offsets: Sequence[int]) -> Sequence[int]:
    """Positions in `offsets` from the first record in the file to the last; a range when they rise already, as those
    of nearly every index do, for a list of a million numbers takes fifty megabytes."""
    if all(a <= b for a, b in zip(offsets, islice(offsets, 1, None))):
        return range(len(offsets))
    return sorted(range(len(offsets)), key=offsets.__getitem__)


def extents(offsets: Sequence[int], size: int) -> "array[int]":
    """Bytes each record takes in the file (head, payload and padding), in the order of `offsets`."""
    order = file_order(offsets)
    lengths: "array[int]" = array("Q", bytes(8 * len(offsets)))
    behind = size
    for position in reversed(order):
        lengths[position] = behind - offsets[position]
        behind = offsets[position]
    return lengths
