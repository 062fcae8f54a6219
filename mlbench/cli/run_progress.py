"""What is shown while a run set runs: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from mlbench.cli.console import escape_control
from mlbench.collect.runfiles import AttemptFile
from mlbench.runner.events import (
    AttemptEnded,
    AttemptProgress,
    AttemptStarted,
    Event,
    RunSetStarted,
    Said,
    StageEnded,
    StageStarted,
    StageState,
)
from mlbench.runner.tail import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LINE_INTERVAL_S = 10.0
"""Between two lines of a running repetition in a pipe."""


class Pace:
    """Time left, from what has been seen: the mean lifetime of finished attempts, else the pace of the epochs."""

    def __init__(self) -> None:
        self._lifetimes_s: list[float] = []
        self._epochs_done = 0.0
        self._done_at_s = 0.0

    def begun(self) -> None:
        self._epochs_done = 0.0

    def ended(self, lifetime_s: float | None) -> None:
        if lifetime_s is not None:
            self._lifetimes_s.append(lifetime_s)

    def left_s(self, started: AttemptStarted, progress: Progress, elapsed_s: float) -> float | None:
        """Seconds to the end of the last attempt of this call; None before there is anything to go by."""
        if progress.num_epochs_done > self._epochs_done:
            self._epochs_done, self._done_at_s = progress.num_epochs_done, elapsed_s
        waiting = started.total - started.number
        if self._lifetimes_s:
            mean_s = sum(self._lifetimes_s) / len(self._lifetimes_s)
            return max(0.0, mean_s - elapsed_s) + waiting * mean_s
        if self._epochs_done <= 0:
            return None
        expected = started.expected_epochs
        num_epochs = expected if self._epochs_done < expected else started.max_epochs
        whole_s = self._done_at_s / self._epochs_done * num_epochs
        return max(0.0, whole_s - elapsed_s) + waiting * whole_s


def name_of(started: AttemptStarted | AttemptFile) -> str:
    """`run 2`, `warm-up 0`, with the attempt when it is not the first."""
    name = f"{'warm-up' if started.warmup else 'run'} {started.index}"
    return f"{name} (attempt {started.attempt + 1})" if started.attempt else name


def describe_progress(progress: Progress) -> str:
    """`epoch 3, 58.1 samples/s, accuracy 0.7612`: what is known of it."""
    if not progress.run_started:
        return "starting" if progress.num_records == 0 else "initialising"
    parts = [f"epoch {progress.epoch:g}"] if progress.epoch is not None else ["training"]
    if progress.samples_per_s is not None:
        parts.append(f"{progress.samples_per_s:.1f} samples/s")
    if progress.accuracy is not None:
        parts.append(f"accuracy {progress.accuracy:.4f}")
    return ", ".join(parts)


def describe_end(event: AttemptEnded) -> list[str]:
    """One line for a good end; for a failure also where its log is and the end of it."""
    record, progress = event.record, event.progress
    seconds = "" if record.lifetime_s is None else f" after {record.lifetime_s:.1f} s"
    if record.status == "success":
        extra = f"; {record.reason}" if record.reason else ""
        return [f"{name_of(record)}: ended{seconds}, {describe_progress(progress)}{extra}"]
    lines = [f"{name_of(record)}: {record.status}{seconds}: {record.reason}"]
    if record.log is not None:
        lines.append(f"  log {event.path}/{record.log}, its last lines:")
        lines += [f"  | {line}" for line in record.last_lines]
    else:
        lines.append(f"  files in {event.path}")
    return lines


def clock(seconds: float | None) -> str:
    """`4:07`, or `-` when not known."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class LineListener:
    """Plain lines, for pipes, files and CI."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()
        self._started: AttemptStarted | None = None
        self._said_at = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptProgress):
            self._progress(event)
            return
        for line in self._lines(event):
            self._say(line)

    def close(self) -> None:
        self._stream.flush()

    def _say(self, line: str) -> None:
        self._stream.write(escape_control(line) + "\n")
        self._stream.flush()
        self._said_at = time.monotonic()

    def _progress(self, event: AttemptProgress) -> None:
        if self._started is None or time.monotonic() - self._said_at < _LINE_INTERVAL_S:
            return
        left = clock(self._pace.left_s(self._started, event.progress, event.elapsed_s))
        self._say(f"{name_of(self._started)}: {describe_progress(event.progress)}, time left {left}")

    def _lines(self, event: Event) -> list[str]:
        match event:
            case AttemptStarted():
                self._started = event
                self._pace.begun()
                return [f"{name_of(event)} ({event.number} of {event.total}): started, seed {event.seed}"]
            case AttemptEnded():
                self._pace.ended(event.record.lifetime_s)
                self._started = None
                return describe_end(event)
        return describe(event)


def describe(event: Event) -> list[str]:
    """Lines of the events that are not about an attempt."""
    match event:
        case RunSetStarted():
            return [f"run set {event.run_set}{' resumed' if event.resumed else ''}: {event.path}"]
        case Said():
            return [f"{'warning: ' if event.warning else ''}{event.text}"]
        case StageStarted():
            return [f"stage {event.stage.value} ({event.number} of {event.num_stages})"]
        case StageEnded():
            state = event.state.value.replace("_", " ")
            return [f"stage {event.stage.value}: {state}: {event.text}"]
    return []


class BarListener:
    """A progress bar at the foot of a terminal; what is to be kept is printed above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._bar: Bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            TextColumn("left {task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
            refresh_per_second=5,
        )
        self._pace = Pace()
        self._started: AttemptStarted | None = None
        self._task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._begin(event)
            case AttemptProgress():
                self._update(event)
            case AttemptEnded():
                self._end(event)
            case _:
                style = "bold red" if _is_bad(event) else None
                for line in describe(event):
                    self._print(line, style)

    def close(self) -> None:
        self._bar.stop()

    def _print(self, line: str, style: str | None = None) -> None:
        self._console.print(escape_control(line), style=style, soft_wrap=True)

    def _begin(self, event: AttemptStarted) -> None:
        self._started = event
        self._pace.begun()
        self._bar.start()
        description = f"{name_of(event)} ({event.number} of {event.total})"
        self._task = self._bar.add_task(description, total=event.max_epochs, state="starting", left="-")

    def _update(self, event: AttemptProgress) -> None:
        if self._started is None or self._task is None:
            return
        self._bar.update(
            self._task,
            completed=event.progress.num_epochs_done,
            state=escape_control(describe_progress(event.progress)),
            left=clock(self._pace.left_s(self._started, event.progress, event.elapsed_s)),
        )

    def _end(self, event: AttemptEnded) -> None:
        self._pace.ended(event.record.lifetime_s)
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._bar.stop()
        self._started = self._task = None
        first, *rest = describe_end(event)
        self._print(first, None if event.record.status == "success" else "bold red")
        for line in rest:
            self._print(line)


def _is_bad(event: Event) -> bool:
    if isinstance(event, Said):
        return event.warning
    return isinstance(event, StageEnded) and event.state is StageState.failed


class Guarded:
    """Passes events on until they cannot be shown: a reader that has gone, a terminal that was closed. The run set
    then goes on in silence, for a run is worth more than its progress."""

    def __init__(self, inner: LineListener | BarListener) -> None:
        self._inner: LineListener | BarListener | None = inner

    def __call__(self, event: Event) -> None:
        if self._inner is None:
            return
        try:
            self._inner(event)
        except OSError:
            self._inner = None

    def close(self) -> None:
        if self._inner is None:
            return
        try:
            self._inner.close()
        except OSError:
            self._inner = None


def make_listener(stream: TextIO) -> Guarded:
    """A bar when `stream` is a terminal, else lines."""
    return Guarded(BarListener(stream) if stream.isatty() else LineListener(stream))
