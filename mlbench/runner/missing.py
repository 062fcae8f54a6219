"""What of a run set is on disk, and what is still to be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlbench.collect.runfiles import AttemptFile, read_attempt
from mlbench.collect.runfolder import AttemptFolder, RunFolder
from mlbench.runner.judge import ended_by_itself


@dataclass(frozen=True, slots=True)
class Slot:
    """One repetition to be run: attempt number `attempt` of run (or warm-up) `index`."""

    index: int
    attempt: int
    warmup: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt folder and its record; no record: it was cut short."""

    folder: AttemptFolder
    record: AttemptFile | None


def attempts_of(folder: RunFolder) -> list[Attempt]:
    """Every attempt there is, ordered. Raises InputError: an attempt.json is damaged."""
    found = []
    for item in folder.attempts():
        record = read_attempt(item.outcome) if item.outcome.is_file() else None
        found.append(Attempt(item, record))
    return found


def missing_slots(attempts: Sequence[Attempt], *, repeats: int, warmup_runs: int) -> list[Slot]:
    """Repetitions without an attempt that came to its own end, warm-ups first, in order.

    A run that ended but did not converge is a result and is not run again: that would be picking."""
    done: set[tuple[bool, int]] = set()
    next_attempt: dict[tuple[bool, int], int] = {}
    for item in attempts:
        key = (item.folder.warmup, item.folder.index)
        next_attempt[key] = max(next_attempt.get(key, 0), item.folder.attempt + 1)
        if item.record is not None and ended_by_itself(item.record.status):
            done.add(key)
    wanted = [(True, index) for index in range(warmup_runs)] + [(False, index) for index in range(repeats)]
    return [Slot(key[1], next_attempt.get(key, 0), key[0]) for key in wanted if key not in done]
