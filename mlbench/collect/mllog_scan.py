"""MLLOG records out of any text: launcher prefixes, several records on a line, torn ones, any bytes at all.

Two layouts are known: `:::MLLOG {json}` (rounds v0.7 on) and `:::MLL <seconds> <key>: {json}` (v0.6).
The file is read in bounded pieces, so memory does not grow with the file or with its longest line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from mlbench.collect.runlog import Record

CHUNK_BYTES = 1 << 18
MAX_RECORD_BYTES = 1 << 16
"""The longest real record is under 2 KiB. What is longer is not a record."""

_TOKEN = b":::MLL"
_MARK = re.compile(r":::MLL(?:OG)?(?:v[\d.]+)?[ \t]*")
_OLD_HEAD = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)[ \t]+([A-Za-z0-9_]{1,128})[ \t]*:?[ \t]*")
_KEY = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_DECIMAL = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_OWN_TAIL = frozenset('}],"')
_BARE_FIELD = b'"time_ms"'
_KEY_IN_FRAGMENT = re.compile(r'"key"\s*:\s*"([A-Za-z0-9_]{1,128})')

EVENT_TYPES = {"INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"}


@dataclass(frozen=True, slots=True)
class Torn:
    """What is left of a record that cannot be read. `key` is None when it was lost too."""

    line: int
    key: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something strange beside or in a record that was still read. Equal `kind`s are counted, not repeated."""

    line: int
    kind: str
    text: str


Event = Record | Torn | Oddity


class _RepeatedKeyError(ValueError):
    """One JSON object names a member twice; which one is meant cannot be known."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedKeyError("a member is there twice")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


class Readable(Protocol):
    """A stream of bytes; all that `scan` asks of one."""

    def read(self, size: int, /) -> bytes: ...


class HashingStream:
    """Passes bytes on and keeps their sha256, so that a file is read once."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        chunk = self._stream.read(size)
        self._hash.update(chunk)
        return chunk

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def scan(stream: Readable) -> Iterator[Event]:
    """Every record of a stream of bytes, in order, and what was strange about it.

    Lines are counted by line feeds, from 1. Raises whatever `stream.read` raises.
    """
    buffer = b""
    line = 1
    while True:
        chunk = stream.read(CHUNK_BYTES)
        buffer += chunk
        position = 0
        while True:
            mark = buffer.find(_TOKEN, position)
            if mark < 0:
                keep = len(buffer) if not chunk else _gap_end(buffer, position)
                yield from _bare(buffer[position:keep], line)
                line += buffer.count(b"\n", position, keep)
                position = keep
                break
            yield from _bare(buffer[position:mark], line)
            line += buffer.count(b"\n", position, mark)
            end = buffer.find(b"\n", mark, mark + MAX_RECORD_BYTES)
            if end < 0:
                if chunk and len(buffer) - mark < MAX_RECORD_BYTES:
                    position = mark
                    break
                end = min(len(buffer), mark + MAX_RECORD_BYTES)
            position = mark + (yield from _record_line(buffer[mark:end], line))
        buffer = buffer[position:]
        if not chunk:
            return


def _gap_end(buffer: bytes, position: int) -> int:
    """Where text without a mark may be let go: its last line may still be cut by the end of the buffer."""
    newline = buffer.rfind(b"\n", position)
    begin = newline + 1 if newline >= 0 else position
    return begin if len(buffer) - begin < MAX_RECORD_BYTES else len(buffer) - len(_BARE_FIELD)


def _bare(gap: bytes, line: int) -> Iterator[Event]:
    """A record whose `:::MLLOG` is lost is torn, not silence."""
    start = gap.find(_BARE_FIELD)
    while start >= 0:
        text = gap[start : start + 400].split(b"\n", 1)[0].decode("utf-8", "replace")
        yield Torn(line + gap.count(b"\n", 0, start), _fragment_key(text), text)
        next_line = gap.find(b"\n", start)
        start = gap.find(_BARE_FIELD, next_line) if next_line >= 0 else -1


def _record_line(piece: bytes, line: int) -> Generator[Event, None, int]:
    """The record at the start of `piece`, which begins with a mark and ends before a line feed.

    Returns: how many bytes were used: up to the record's end, or up to the next mark when it is torn.
    """
    text = piece.decode("utf-8", "surrogateescape")
    found = _MARK.match(text)
    start = found.end() if found else len(_TOKEN)
    event, end = _record(text, start, line)
    if isinstance(event, Record) and text[end : end + 1] in _OWN_TAIL:
        event = Torn(line, event.key, "")  # what follows is its own tail: something inside is lost
    if isinstance(event, Torn):
        # the next mark on the same line may be whole: start again there
        following = piece.find(_TOKEN, len(_TOKEN))
        used = following if following >= 0 else len(piece)
        yield Torn(line, event.key, piece[: min(used, 400)].decode("utf-8", "replace"))
        return used
    used = end
    if not piece.isascii():
        used = len(text[:end].encode("utf-8", "surrogateescape"))
        if _has_surrogates(text[:end]):
            yield Oddity(line, "bytes", "bytes that are not UTF-8 in a record")
            again, _ = _record(piece[:used].decode("utf-8", "replace"), start, line)
            event = again if isinstance(again, Record) else event
    yield event
    if used < len(piece):
        following = piece.find(_TOKEN, used)
        rest = piece[used : following if following >= 0 else len(piece)]
        if rest.strip(b" \t\r\x00"):
            yield Oddity(line, "glued", "other text follows a record on its line")
        elif following >= 0:
            yield Oddity(line, "two", "two records on one line")
    return used


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _record(text: str, start: int, line: int) -> tuple[Record | Torn, int]:
    """The record whose body starts at `start`, and the position after it."""
    old = _OLD_HEAD.match(text, start) if text[start : start + 1].isdigit() else None
    if old is not None:
        start = old.end()
    try:
        body, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return Torn(line, old[2] if old else _fragment_key(text[start : start + 4096]), ""), start
    if not isinstance(body, dict):
        return Torn(line, old[2] if old else None, ""), start
    if old is not None:
        body = {**body, "key": old[2], "time_ms": round(float(old[1]) * 1000.0, 6)}
    key = body.get("key")
    event_type = body.get("event_type")
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return Torn(line, None, ""), start
    if old is not None:
        event_type = _event_type_of(key)
    metadata = body.get("metadata")
    record = Record(
        line=line,
        key=key,
        value=body.get("value"),
        time_ms=_time(body.get("time_ms")),
        event_type=event_type if isinstance(event_type, str) and event_type in EVENT_TYPES else None,
        metadata=metadata if isinstance(metadata, dict) else {},
    )
    return record, end


def _event_type_of(key: str) -> str:
    """The v0.6 layout tells by the key's ending what later ones say in a member of its own."""
    if key.endswith("_start"):
        return "INTERVAL_START"
    return "INTERVAL_END" if key.endswith("_stop") else "POINT_IN_TIME"


def _fragment_key(text: str) -> str | None:
    found = _KEY_IN_FRAGMENT.search(text)
    return found[1] if found else None


def finite(value: Any) -> float | None:
    """A number as a float; None for everything else, NaN, infinities and numbers beyond floats included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _time(value: Any) -> float | None:
    """As `finite`, for times: a positive number, or the text of one."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
    number = finite(value)
    return number if number is not None and number > 0 else None
