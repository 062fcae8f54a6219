"""Following the log of a run while it grows: only what is new is read, a torn last line waits for its rest."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_MARKER = b":::MLLOG "
_READ_BYTES = 1_000_000
_MAX_LINE_BYTES = 1_000_000
_MAX_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Progress:
    """What the log says so far. Times are the log's own; None is "not yet"."""

    num_records: int = 0
    last_record: str | None = None
    epoch: float | None = None
    num_epochs_done: float = 0.0
    accuracy: float | None = None
    samples_per_s: float | None = None
    """Training samples of the epochs that have ended, divided by the time in them: evaluation and warm-up left out."""
    run_started: bool = False
    run_stopped: bool = False


class LogTail:
    """Reads MLLOG records of a growing file. `poll` is cheap when nothing is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._epoch_start_ms: float | None = None
        self._train_ms = 0.0
        self._samples: float | None = None
        self.progress = Progress()

    def poll(self) -> bool:
        """Read what has been added. True when there was a new record."""
        before = self.progress.num_records
        for line in self._new_lines():
            marker = line.find(_MARKER)
            if marker >= 0:
                self._take(line[marker + len(_MARKER) :])
        return self.progress.num_records > before

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read(_READ_BYTES)
        except OSError:
            return []  # not there yet, or the file system is away: the limit for new records decides
        if not data:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            self._rest = b""
        return lines

    def _take(self, text: bytes) -> None:
        try:
            record = json.loads(text)
        except ValueError:
            return
        if not isinstance(record, dict) or not isinstance(record.get("key"), str):
            return
        shown = _shown(text)
        self.progress = replace(self.progress, num_records=self.progress.num_records + 1, last_record=shown)
        metadata = record.get("metadata")
        self._fold(record, metadata if isinstance(metadata, dict) else {})

    def _fold(self, record: dict[str, Any], metadata: dict[str, Any]) -> None:
        key, value, time_ms = record["key"], record.get("value"), _number(record.get("time_ms"))
        progress = self.progress
        if key == "run_start":
            progress = replace(progress, run_started=True)
        elif key == "run_stop":
            progress = replace(progress, run_stopped=True)
        elif key == "train_samples":
            self._samples = _number(value)
        elif key == "epoch_start":
            self._epoch_start_ms = time_ms
            progress = replace(progress, epoch=_number(metadata.get("epoch_num")) or progress.epoch)
        elif key == "epoch_stop":
            done = progress.num_epochs_done + 1
            if self._epoch_start_ms is not None and time_ms is not None:
                self._train_ms += max(0.0, time_ms - self._epoch_start_ms)
            self._epoch_start_ms = None
            progress = replace(progress, num_epochs_done=done, samples_per_s=self._rate(done))
        elif key == "eval_accuracy":
            accuracy = _number(value)
            progress = replace(progress, accuracy=progress.accuracy if accuracy is None else accuracy)
        self.progress = progress

    def _rate(self, num_epochs: float) -> float | None:
        if self._samples is None or self._train_ms <= 0:
            return None
        return num_epochs * self._samples / self._train_ms * 1e3


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shown(text: bytes) -> str:
    line = text.decode("utf-8", "replace").strip()
    safe = "".join(letter if letter.isprintable() else "?" for letter in line)
    return safe if len(safe) <= _MAX_SHOWN else safe[: _MAX_SHOWN - 3] + "..."


def last_lines(path: Path, num: int = 20, max_bytes: int = 64_000) -> list[str]:
    """The last lines of a text file, unprintable characters escaped; empty when it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            size = stream.tell()
            stream.seek(max(0, size - max_bytes))
            text = stream.read(max_bytes).decode("utf-8", "replace")
    except OSError:
        return []
    lines = text.splitlines()[-num:]
    return ["".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in line)[:500] for line in lines]
