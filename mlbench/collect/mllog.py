"""One log file to one RunLog.

What is logged once is taken, what is repeated alike is taken once, what contradicts itself is decided against the run:
the earliest run_start, the latest run_stop, the worst status. Reasons and cases are in docs/concepts.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench.collect.mllog_scan import Event, HashingStream, Oddity, Torn, finite, scan
from mlbench.collect.runlog import Evaluation, Note, Record, RunLog, Span
from mlbench.errors import InputError
from mlbench.wording import count_of

MAX_NOTES = 200
MAX_SPANS = 100_000
MAX_KEYS = 1_000
MAX_LIST = 100
MAX_TEXT_CHARS = 1_000
MAX_COUNT = 2**53
MAX_CLOCK_SKEW_MS = 1_000.0
"""Ranks of several nodes may disagree this much; a log that contradicts itself by more proves nothing."""

_SUCCESS = "success"
_INTERVALS = {
    "epoch_start": "INTERVAL_START",
    "epoch_stop": "INTERVAL_END",
    "block_start": "INTERVAL_START",
    "block_stop": "INTERVAL_END",
    "eval_start": "INTERVAL_START",
    "eval_stop": "INTERVAL_END",
    "run_start": "INTERVAL_START",
    "run_stop": "INTERVAL_END",
    "init_start": "INTERVAL_START",
    "init_stop": "INTERVAL_END",
}
_IN_RUN = {"epoch_start", "epoch_stop", "block_start", "block_stop", "eval_start", "eval_stop", "eval_accuracy"}
_VITAL = {"run_start", "run_stop", "quality_target"}
_SETTING_PREFIXES = ("opt_", "lars_", "sgd_", "gradient_", "model_")
_NOT_A_SETTING = object()
_NOT_HYPERPARAMETERS = {"weights_initialization", "tracked_stats", "throughput"}


def read_log(path: Path, *, name: str | None = None) -> RunLog:
    """Read one log of any size in bounded memory.

    Args: name: how the file is called in notes; by default its own name.
    Raises: InputError: the file cannot be opened or read. A file without records is not an error: all is None.
    """
    try:
        with path.open("rb", buffering=0) as raw:
            stream = HashingStream(raw)
            log = fold(scan(stream), name if name is not None else path.name)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); a log file was expected") from error
    log.sha256 = stream.hexdigest()
    return log


def fold(events: Iterable[Event], name: str) -> RunLog:
    """Fold the events of one file, in file order, into what they say together."""
    folder = _Folder(RunLog(file=name))
    for event in events:
        if isinstance(event, Record):
            folder.record(event)
        elif isinstance(event, Torn):
            folder.torn(event)
        else:
            folder.oddity(event)
    return folder.finish()


@dataclass(slots=True)
class _Intervals:
    """Starts and stops of one kind, paired by number; repeats by other ranks add nothing."""

    open: dict[float | None, tuple[float, float | None]] = field(default_factory=dict)  # num -> start, num_epochs
    orphans: dict[float | None, float] = field(default_factory=dict)  # stops that came before their start
    spans: dict[tuple[float | None, float], Span] = field(default_factory=dict)
    last: dict[float | None, Span] = field(default_factory=dict)
    num_uncounted: int = 0

    def start(self, num: float | None, time_ms: float, num_epochs: float | None) -> None:
        last = self.last.get(num)
        if num is not None and last is not None and last.start_ms <= time_ms <= last.stop_ms:
            return  # another rank says the same
        if num is not None and num in self.open:
            known, count = self.open[num]
            self.open[num] = (min(known, time_ms), count if count is not None else num_epochs)
            return
        self.open[num] = (time_ms, num_epochs)
        stop_ms = self.orphans.pop(num, None)
        if stop_ms is not None and stop_ms >= time_ms:
            self.stop(num, stop_ms)

    def stop(self, num: float | None, time_ms: float) -> None:
        started = self.open.pop(num, None)
        if started is None:
            last = self.last.get(num)
            if last is None or num is None:
                self.orphans[num] = time_ms
            elif time_ms > last.stop_ms and time_ms - last.stop_ms <= MAX_CLOCK_SKEW_MS:
                self._add(Span(num, last.num_epochs, last.start_ms, time_ms))
            return
        start_ms, num_epochs = started
        if num_epochs is None:
            self.num_uncounted += 1
        elif time_ms >= start_ms:
            self._add(Span(num, num_epochs, start_ms, time_ms))

    def _add(self, span: Span) -> None:
        if len(self.spans) < MAX_SPANS:
            self.spans[(span.num, span.start_ms)] = span
            self.last[span.num] = span

    def sorted(self) -> list[Span]:
        return sorted(self.spans.values(), key=lambda span: (span.start_ms, span.stop_ms))


class _Folder:
    def __init__(self, log: RunLog) -> None:
        self.log = log
        self.kinds: dict[str, list[int]] = {}  # kind of oddity -> first line, count
        self.kind_text: dict[str, str] = {}
        self.num_left_out = 0
        self.epochs, self.blocks, self.evals = _Intervals(), _Intervals(), _Intervals()
        self.first_in_run: tuple[float, int] | None = None
        self.last_in_run: tuple[float, int] | None = None
        self.run_stops: list[Record] = []
        self.targets: list[Record] = []
        self.conflicts: set[str] = set()
        self.last_time_ms = 0.0
        self.seen_evaluations: set[tuple[float | None, float, float | None]] = set()

    # -- events

    def torn(self, event: Torn) -> None:
        self.log.num_torn += 1
        what = f" of {event.key}" if event.key else ""
        text = f"torn record{what}: {shown(event.text)}"
        if event.key in _VITAL:
            self.untrust(event.line, f"{text}; what it said about the result is lost")
        else:
            self.note(event.line, text)

    def oddity(self, event: Oddity) -> None:
        seen = self.kinds.setdefault(event.kind, [event.line, 0])
        seen[1] += 1
        self.kind_text.setdefault(event.kind, event.text)

    def record(self, record: Record) -> None:
        self.log.num_records += 1
        expected = _INTERVALS.get(record.key)
        if expected is not None and record.event_type not in (None, expected, "POINT_IN_TIME"):
            # a start that ends, a stop that starts: two torn records that look like one
            self.torn(Torn(record.line, record.key, f"{record.key} with event_type {record.event_type}"))
            return
        if record.time_ms is None and record.key not in _VITAL:
            self.oddity(Oddity(record.line, "time", f"{record.key} has no usable time_ms"))
        elif record.time_ms is not None and record.time_ms < self.last_time_ms:
            self.oddity(Oddity(record.line, "order", "time_ms goes backwards"))
        if record.time_ms is not None:
            self.last_time_ms = record.time_ms
        if not record.metadata:
            self.oddity(Oddity(record.line, "metadata", f"{record.key} has no metadata"))
        if record.event_type is None:
            self.oddity(Oddity(record.line, "event_type", f"{record.key} has no event_type"))
        elif expected is not None and record.event_type != expected:
            self.oddity(Oddity(record.line, "interval", f"{record.key} with event_type {record.event_type}"))
        if record.key in _IN_RUN and record.time_ms is not None:
            self.in_run(record.time_ms, record.line)
        handler = _HANDLERS.get(record.key)
        if handler is not None:
            handler(self, record)
        elif record.key not in _NOT_HYPERPARAMETERS:
            self.hyperparameter(record)

    def in_run(self, time_ms: float, line: int) -> None:
        if self.first_in_run is None or time_ms < self.first_in_run[0]:
            self.first_in_run = (time_ms, line)
        # an evaluation that is logged after run_stop may well end after it
        if not self.run_stops and (self.last_in_run is None or time_ms > self.last_in_run[0]):
            self.last_in_run = (time_ms, line)

    # -- keys

    def text(self, record: Record, name: str) -> None:
        if not isinstance(record.value, str):
            if record.value is not None:
                self.note(record.line, f"{record.key} is {shown(record.value)}, not a text")
            return
        known = getattr(self.log, name)
        value = storable(record.value)
        if known is None:
            setattr(self.log, name, value)
        elif known != value:
            self.conflict(record, known)

    def count(self, record: Record, name: str) -> None:
        number = finite(record.value)
        if number is None or not 0 <= number <= MAX_COUNT or number != int(number):
            self.note(record.line, f"{record.key} is {shown(record.value)}, not a count")
            return
        known = getattr(self.log, name)
        if known is None:
            setattr(self.log, name, int(number))
        elif known != int(number):
            self.conflict(record, known)

    def conflict(self, record: Record, known: Any) -> None:
        self.note(
            record.line, f"{record.key} is {shown(record.value)} here and {shown(known)} before; the first is used"
        )

    def cache_clear(self, record: Record) -> None:
        if not isinstance(record.value, bool):
            self.note(record.line, f"cache_clear is {shown(record.value)}, not true or false")
        elif self.log.cache_clear is None:
            self.log.cache_clear = record.value
        elif self.log.cache_clear != record.value:
            self.log.cache_clear = False
            self.note(record.line, "cache_clear is logged true and false; false is used")

    def input_pipeline(self, record: Record) -> None:
        self.text(record, "input_pipeline")
        reason = record.metadata.get("reason")
        if isinstance(reason, str) and self.log.input_pipeline_reason is None:
            self.log.input_pipeline_reason = storable(reason)

    def seed(self, record: Record) -> None:
        value = record.value
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            if value not in self.log.seeds and len(self.log.seeds) < MAX_KEYS:
                self.log.seeds.append(value)
        else:
            self.note(record.line, f"seed is {shown(value)}, not a whole number")

    def init_start(self, record: Record) -> None:
        self.log.init_start_ms = _earliest(self.log.init_start_ms, record.time_ms)

    def init_stop(self, record: Record) -> None:
        self.log.init_stop_ms = _latest(self.log.init_stop_ms, record.time_ms)

    def run_start(self, record: Record) -> None:
        known = self.log.run_start_ms
        if record.time_ms is None:
            self.untrust(record.line, "run_start without a usable time_ms")
        elif known is not None and known != record.time_ms:
            self.note(record.line, "run_start is logged again with another time; the earliest is used")
        self.log.run_start_ms = _earliest(known, record.time_ms)

    def run_stop(self, record: Record) -> None:
        known = self.log.run_stop_ms
        status = record.metadata.get("status")
        if record.time_ms is None:
            self.untrust(record.line, "run_stop without a usable time_ms")
        elif known is not None and known != record.time_ms:
            self.note(record.line, "run_stop is logged again with another time; the latest is used")
        if not isinstance(status, str):
            self.note(record.line, f"run_stop has no status; expected metadata.status {_SUCCESS!r} or 'aborted'")
            status = None
        if not self.run_stops:
            self.log.run_stop_status = status
        elif status != self.log.run_stop_status:
            self.note(record.line, f"run_stop is logged with two statuses, {self.log.run_stop_status!r} and {status!r}")
            if self.log.run_stop_status == _SUCCESS:
                self.log.run_stop_status = status
        if known is None or (record.time_ms is not None and record.time_ms > known):
            self.log.run_stop_line = record.line
        if len(self.run_stops) < 2:
            self.run_stops.append(record)
        self.log.run_stop_ms = _latest(known, record.time_ms)

    def quality_target(self, record: Record) -> None:
        number = finite(record.value)
        if number is None:
            self.untrust(record.line, f"quality_target is {shown(record.value)}, not a number")
        elif self.log.quality_target is not None and self.log.quality_target != number:
            self.untrust(record.line, f"quality_target is {number!r} here and {self.log.quality_target!r} before")
        else:
            self.log.quality_target = number

    def eval_accuracy(self, record: Record) -> None:
        number = finite(record.value)
        if isinstance(record.value, dict):
            self.oddity(Oddity(record.line, "accuracy", "eval_accuracy holds several numbers and is not compared"))
            return
        if number is None:
            self.note(record.line, f"eval_accuracy is {shown(record.value)}, not a number")
            return
        epoch_num = finite(record.metadata.get("epoch_num"))
        identity = (epoch_num, number, record.time_ms)
        if identity in self.seen_evaluations or len(self.log.evaluations) >= MAX_SPANS:
            return
        self.seen_evaluations.add(identity)
        self.log.evaluations.append(Evaluation(epoch_num, number, record.time_ms, record.line))

    def interval(self, record: Record, intervals: _Intervals, num_key: str, *, counted: bool, start: bool) -> None:
        if record.time_ms is None:
            return
        num = finite(record.metadata.get(num_key))
        if start:
            num_epochs = finite(record.metadata.get("epoch_count")) if counted else 1.0
            intervals.start(num, record.time_ms, num_epochs)
        else:
            intervals.stop(num, record.time_ms)

    def hyperparameter(self, record: Record) -> None:
        """A plain value that stays the same is a setting; one that changes is a measurement and is left out."""
        key, values = record.key, self.log.hyperparameters
        if key in self.conflicts or record.event_type in ("INTERVAL_START", "INTERVAL_END"):
            return
        value = _setting(record.value)
        if value is _NOT_A_SETTING:
            return
        if key not in values:
            if len(values) + len(self.conflicts) < MAX_KEYS:
                values[key] = value
        elif json.dumps(values[key]) != json.dumps(value):
            del values[key]
            self.conflicts.add(key)
            if key.startswith(_SETTING_PREFIXES):
                self.note(record.line, f"{key} is logged with several values, so it is not known")

    # -- the end

    def finish(self) -> RunLog:
        log = self.log
        for intervals, what in ((self.epochs, "epoch"), (self.blocks, "block"), (self.evals, "evaluation")):
            if intervals.num_uncounted:
                self.note(None, f"{count_of(intervals.num_uncounted, what)} without epoch_count left out")
        log.epochs, log.blocks = self.epochs.sorted(), self.blocks.sorted()
        log.evals = [(span.start_ms, span.stop_ms) for span in self.evals.sorted()]
        log.evaluations.sort(key=lambda item: (item.time_ms if item.time_ms is not None else 0.0, item.line))
        self._check_times()
        for kind, (line, count) in self.kinds.items():
            more = f" ({count} times, first here)" if count > 1 else ""
            self.note(line, self.kind_text[kind] + more)
        log.notes.sort(key=lambda note: note.line or 0)
        if self.num_left_out:
            log.notes.append(
                Note(log.file, None, f"{count_of(self.num_left_out, 'more note is', 'more notes are')} left out")
            )
        return log

    def _check_times(self) -> None:
        """A run cannot be shorter than what happened in it.

        Only so for ResNet: where evaluation goes on beside training, as in minigo and some BERT logs, run_stop is
        dated back to the evaluation that reached the target.
        """
        log = self.log
        if log.num_records == 0:
            self.note(None, "no MLLOG record in this file")
        if log.benchmark not in (None, "resnet"):
            self.first_in_run = self.last_in_run = None
        if log.run_start_ms is not None and self.first_in_run is not None:
            early, line = self.first_in_run
            if log.run_start_ms - early > MAX_CLOCK_SKEW_MS:
                self.untrust(line, "a record of the run is more than a second earlier than run_start")
            elif early < log.run_start_ms:
                self.note(line, "a record of the run is earlier than run_start; its time is taken as the start")
                log.run_start_ms = early
        if log.run_stop_ms is not None and self.last_in_run is not None:
            late, line = self.last_in_run
            if late - log.run_stop_ms > MAX_CLOCK_SKEW_MS:
                self.untrust(line, "a record ahead of run_stop is more than a second later than it")
            elif late > log.run_stop_ms:
                self.note(line, "a record ahead of run_stop is later than it; its time is taken as the end")
                log.run_stop_ms = late
        if log.run_start_ms is not None and log.run_stop_ms is not None and log.run_stop_ms <= log.run_start_ms:
            self.untrust(log.run_stop_line, "run_stop is not later than run_start")

    def note(self, line: int | None, text: str) -> None:
        if len(self.log.notes) < MAX_NOTES:
            self.log.notes.append(Note(self.log.file, line, text))
        else:
            self.num_left_out += 1

    def untrust(self, line: int | None, text: str) -> None:
        if len(self.log.untrusted) < MAX_NOTES:
            self.log.untrusted.append(Note(self.log.file, line, text))
        self.note(line, text)


def _setting(value: Any) -> Any:
    """A plain value, or a short list of them, as it is kept; `_NOT_A_SETTING` for everything else."""
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list) and len(value) <= MAX_LIST:
        items = [_setting(item) for item in value if not isinstance(item, list)]
        if len(items) == len(value) and all(item is not _NOT_A_SETTING for item in items):
            return items
    return _NOT_A_SETTING


def _earliest(known: float | None, new: float | None) -> float | None:
    return new if known is None else known if new is None else min(known, new)


def _latest(known: float | None, new: float | None) -> float | None:
    return new if known is None else known if new is None else max(known, new)


def shown(value: Any, limit: int = 120) -> str:
    """A value from a log, short, on one line, control characters escaped."""
    text = ascii_escaped(value if isinstance(value, str) else repr(value))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def storable(text: str) -> str:
    """A text that every database takes: no lone surrogates, no NUL, not endless."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def ascii_escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _text(name: str) -> Any:
    return lambda folder, record: folder.text(record, name)


def _count(name: str) -> Any:
    return lambda folder, record: folder.count(record, name)


def _interval(which: str, num_key: str, *, counted: bool, start: bool) -> Any:
    return lambda folder, record: folder.interval(record, getattr(folder, which), num_key, counted=counted, start=start)


_HANDLERS: dict[str, Any] = {
    "submission_benchmark": _text("benchmark"),
    "submission_org": _text("org"),
    "submission_division": _text("division"),
    "submission_status": _text("submission_status"),
    "submission_platform": _text("platform"),
    "global_batch_size": _count("global_batch_size"),
    "train_samples": _count("train_samples"),
    "eval_samples": _count("eval_samples"),
    "cache_clear": _Folder.cache_clear,
    "input_pipeline": _Folder.input_pipeline,
    "seed": _Folder.seed,
    "init_start": _Folder.init_start,
    "init_stop": _Folder.init_stop,
    "run_start": _Folder.run_start,
    "run_stop": _Folder.run_stop,
    "quality_target": _Folder.quality_target,
    "eval_accuracy": _Folder.eval_accuracy,
    "epoch_start": _interval("epochs", "epoch_num", counted=False, start=True),
    "epoch_stop": _interval("epochs", "epoch_num", counted=False, start=False),
    "block_start": _interval("blocks", "first_epoch_num", counted=True, start=True),
    "block_stop": _interval("blocks", "first_epoch_num", counted=True, start=False),
    "eval_start": _interval("evals", "epoch_num", counted=False, start=True),
    "eval_stop": _interval("evals", "epoch_num", counted=False, start=False),
}
