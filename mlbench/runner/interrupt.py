"""Ctrl-C, SIGTERM and a closed terminal: once is a clean stop, twice is at once.

While a launch is supervised the signal must wake it, so KeyboardInterrupt is raised; anywhere else it is only noted, so
that no file is left half written and no transaction half done, and the series ends at its next step.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """`requested` is true once the user wants the run set to end."""

    def __init__(self) -> None:
        self.requested = False
        self._waking = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals over; outside the main thread, where Python delivers none, nothing is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What is ignored stays so: nohup ignores SIGHUP, a shell ignores SIGINT for its background jobs.
        taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in taken}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def waking(self) -> Iterator[None]:
        """In here the first signal, too, raises KeyboardInterrupt."""
        if self.requested:
            raise KeyboardInterrupt
        self._waking = True
        try:
            yield
        finally:
            self._waking = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if again or self._waking:
            raise KeyboardInterrupt
