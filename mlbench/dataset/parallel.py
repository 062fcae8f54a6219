"""Work in several processes or threads, with progress that the caller can see while they run."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mlbench.errors import InputError

_POLL_S = 0.25
_QUEUED = 4
"""Tasks begun or waiting for each worker."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_counters: Any = None
"""In a worker: shared numbers of items and bytes done."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is."""

    items: int
    bytes: int


class GivenUp(Exception):
    """Raised by `count` in a thread whose caller has gone."""


class ThreadCounters:
    """What multiprocessing.Array is for processes."""

    def __init__(self) -> None:
        self._numbers = [0, 0]
        self._lock = threading.Lock()
        self.given_up = threading.Event()

    def get_lock(self) -> threading.Lock:
        if self.given_up.is_set():
            raise GivenUp
        return self._lock

    def __getitem__(self, place: int) -> int:
        return self._numbers[place]

    def __setitem__(self, place: int, number: int) -> None:
        self._numbers[place] = number


Report = Callable[[Progress], None]


def no_report(_: Progress) -> None:
    """For callers that show nothing."""


def default_workers() -> int:
    """One process for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count(items: int, num_bytes: int) -> None:
    """Called in a worker: so much more is done. Raises: GivenUp: in a thread, that nobody waits for any more."""
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
        yield from _run_here(work, tasks, counters, report)
        return
    pool = ProcessPoolExecutor(
        max(1, min(num_workers, len(tasks))), mp_context=context, initializer=_start_worker, initargs=(counters,)
    )
    waiting_tasks = iter(tasks)
    try:
        with _interrupts_held():
            begun = {pool.submit(work, task) for task in itertools.islice(waiting_tasks, _QUEUED * num_workers)}
        yield from _results(begun, lambda task: pool.submit(work, task), waiting_tasks, counters, report)
    except BrokenProcessPool as error:
        raise InputError("a worker process was killed (out of memory?); run again with fewer --workers") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_threads(work: Callable[[T], R], tasks: Sequence[T], num_workers: int, report: Report) -> Iterator[R]:
    """The same in threads, for work that does not hold the interpreter's lock: nothing is started, copied or imported.
    Stopping early also ends tasks that have begun, at their next `count`.

    Raises: what `work` raises."""
    counters = ThreadCounters()
    if min(num_workers, len(tasks)) <= 1:
        yield from _run_here(work, tasks, counters, report)
        return
    _set_up(counters)
    pool = ThreadPoolExecutor(min(num_workers, len(tasks)))
    waiting_tasks = iter(tasks)
    try:
        begun = {pool.submit(work, task) for task in itertools.islice(waiting_tasks, _QUEUED * num_workers)}
        yield from _results(begun, lambda task: pool.submit(work, task), waiting_tasks, counters, report)
    finally:
        counters.given_up.set()
        pool.shutdown(wait=True, cancel_futures=True)
        _set_up(None)


def _run_here(work: Callable[[T], R], tasks: Sequence[T], counters: Any, report: Report) -> Iterator[R]:
    _set_up(counters)
    for task in tasks:
        yield work(task)
        report(Progress(items=counters[0], bytes=counters[1]))


def _results(
    begun: set[Future[R]], submit: Callable[[T], Future[R]], tasks: Iterator[T], counters: Any, report: Report
) -> Iterator[R]:
    """Results of what was `begun` and of the `tasks` behind it; few are begun at a time, for waiting costs for each."""
    while begun:
        done, begun = wait(begun, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        report(Progress(items=counters[0], bytes=counters[1]))
        begun |= {submit(task) for task in itertools.islice(tasks, len(done))}
        for future in done:
            yield future.result()
