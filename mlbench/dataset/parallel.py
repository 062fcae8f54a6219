"""Work in several processes, with progress that the parent can see while they run."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mlbench.errors import InputError

_POLL_S = 0.25
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_counters: Any = None
"""In a worker process: shared numbers of items and bytes done."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is."""

    items: int
    bytes: int


Report = Callable[[Progress], None]


def no_report(_: Progress) -> None:
    """For callers that show nothing."""


def default_workers() -> int:
    """One process for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count(items: int, num_bytes: int) -> None:
    """Called in a worker: so much more is done."""
    if _counters is not None:
        with _counters.get_lock():
            _counters[0] += items
            _counters[1] += num_bytes


def _set_up(counters: Any) -> None:
    global _counters
    _counters = counters


def _start_worker(counters: Any) -> None:
    """The parent tells that it was interrupted and ends the pool; a worker only goes."""
    _set_up(counters)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the workers are started: it would leave a half-made pool, and tracebacks of the workers,
    which inherit this and let it in once they are ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_all(work: Callable[[T], R], tasks: Sequence[T], num_workers: int, report: Report) -> Iterator[R]:
    """Results in the order in which tasks end; one worker is this very process. Stopping early gives up the tasks that
    have not begun.

    Raises: what `work` raises; InputError: a worker process died."""
    context = multiprocessing.get_context("spawn")
    counters = context.Array("Q", 2)
    if min(num_workers, len(tasks)) <= 1:
        _set_up(counters)
        for task in tasks:
            yield work(task)
            report(Progress(items=counters[0], bytes=counters[1]))
        return
    pool = ProcessPoolExecutor(
        max(1, min(num_workers, len(tasks))), mp_context=context, initializer=_start_worker, initargs=(counters,)
    )
    try:
        with _interrupts_held():
            waiting: set[Future[R]] = {pool.submit(work, task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            report(Progress(items=counters[0], bytes=counters[1]))
            for future in done:
                yield future.result()
    except BrokenProcessPool as error:
        raise InputError("a worker process was killed (out of memory?); run again with fewer --workers") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
