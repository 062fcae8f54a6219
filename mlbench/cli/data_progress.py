"""Progress of a data verb: a bar on a terminal, a line every few seconds in a pipe; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlbench.cli.console import make_console, print_text
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.dataset.parallel import Progress

LINE_EVERY_S = 5.0


class Meter:
    """Shows how far a step is; `total` may become known after the start."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._total: int | None = None
        self._kept = 0
        self._start = self._last = time.monotonic()

    def set_total(self, total: int, kept: int = 0) -> None:
        """`total` images in all, `kept` of them done by an earlier call."""
        self._total, self._kept = total, kept
        if kept:
            images = count_of(total, "image is", "images are")
            print_text(f"{kept} of {images} there from an interrupted import", stderr=True)

    def report(self, progress: Progress) -> None:
        """Take the newest state."""
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_S:
            self._last = now
            print_text(self._sentence(progress, now - self._start), stderr=True)

    def _sentence(self, progress: Progress, elapsed_s: float) -> str:
        total = f" of {self._total}" if self._total is not None else ""
        rate, mb_per_s = progress.items / elapsed_s, progress.bytes / elapsed_s / 1e6
        return f"{self._what}: {self._kept + progress.items}{total} images, {rate:.0f} images/s, {mb_per_s:.1f} MB/s"


class BarMeter(Meter):
    """The same as a bar."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(TextColumn("{task.description}"), BarColumn(), console=make_console(stderr=True))
        self._task = self._bar.add_task(what, total=None)

    def set_total(self, total: int, kept: int = 0) -> None:
        super().set_total(total, kept)
        self._bar.update(self._task, total=total)

    def report(self, progress: Progress) -> None:
        sentence = self._sentence(progress, max(1e-3, time.monotonic() - self._start))
        self._bar.update(self._task, completed=self._kept + progress.items, description=sentence)

    def __enter__(self) -> BarMeter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


@contextmanager
def metering(what: str) -> Iterator[Meter]:
    """A meter that fits stderr."""
    if not sys.stderr.isatty():
        yield Meter(what)
        return
    with BarMeter(what) as meter:
        yield meter
