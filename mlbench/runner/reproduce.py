"""Whether a run set that repeats another one's stored configuration came out the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mlbench.collect.runfiles import read_run_set as read_identity
from mlbench.collect.runfolder import last_attempts
from mlbench.errors import InputError
from mlbench.runner.facts import all_facts, differences, read_hosts
from mlbench.runner.outcome import EXIT_GOOD, EXIT_NOT_COMPLIANT, SeriesResult
from mlbench.runner.stored import Stored
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.store.tables import RunSet


class Reproduced(Enum):
    within = "within"
    faster = "faster"
    slower = "slower"
    not_comparable = "not_comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The new mean against the spread of the old runs. `quantity` is `time to train, s` or `samples/s`."""

    old: str
    new: str
    verdict: Reproduced
    quantity: str
    old_low: float | None
    old_high: float | None
    old_mean: float | None
    new_mean: float | None
    num_old: int
    num_new: int
    differences: tuple[str, ...]
    """Software, hardware and environment facts that differ."""

    @property
    def sentence(self) -> str:
        where = {
            Reproduced.within: "lies within the spread of",
            Reproduced.faster: "is faster than every run of",
            Reproduced.slower: "is slower than every run of",
        }.get(self.verdict)
        if where is None or self.new_mean is None or self.old_low is None or self.old_high is None:
            runs = count_of(self.num_old, "usable run")
            return f"{self.new} cannot be compared with {self.old}: {self.num_new} and {runs}"
        return (
            f"{self.new} {where} {self.old}: {self.quantity} {self.new_mean:.4g} (mean of {self.num_new}), "
            f"there {self.old_low:.4g} to {self.old_high:.4g} ({count_of(self.num_old, 'run')})"
        )

    def exit_status(self, of_the_run: int) -> int:
        """4 when the new set is good but slower than every run of the old one."""
        if of_the_run == EXIT_GOOD and self.verdict is Reproduced.slower:
            return EXIT_NOT_COMPLIANT
        return of_the_run

    def last_line(self, of_the_run: int, line: str) -> str:
        """What `exit_status` says, in words."""
        if of_the_run != EXIT_GOOD:
            return line
        return f"{'Not good' if self.verdict is Reproduced.slower else 'Done'}: {self.sentence}."


def reproduce_stored(old: Stored, result: SeriesResult, volatile: frozenset[str]) -> Reproduction:
    """Compare the run set just run with the stored one it repeats, both from their files. Raises InputError."""
    from mlbench.ingest.run_set import read_run_set

    if result.row is None:
        raise InputError(f"{result.folder.path}: cannot be read back, so it cannot be compared")
    before = all_facts(old.identity, read_hosts(old.folder.hosts), volatile)
    now = all_facts(read_identity(result.folder.identity), read_hosts(result.folder.hosts), volatile)
    return compare_reproduction(read_run_set(old.folder), result.row, differences(before, now))


def compare_reproduction(old: RunSet, new: RunSet, differences: list[str]) -> Reproduction:
    """Compare the mean of the new set's usable runs with the lowest and highest of the old set's.

    Time to train when both sets have converged runs, else samples/s. With fewer than two old runs there is no spread,
    so nothing can be said."""
    quantity, lower_is_better = "time to train, s", True
    before, now = _times(old), _times(new)
    if not before or not now:
        quantity, lower_is_better = "samples/s", False
        before, now = _rates(old), _rates(new)
    new_mean = sum(now) / len(now) if now else None
    low, high = (min(before), max(before)) if before else (None, None)
    verdict = Reproduced.not_comparable
    if new_mean is not None and low is not None and high is not None and len(before) > 1:
        if low <= new_mean <= high:
            verdict = Reproduced.within
        else:
            verdict = Reproduced.faster if (new_mean < low) == lower_is_better else Reproduced.slower
    return Reproduction(
        old=old.run_set,
        new=new.run_set,
        verdict=verdict,
        quantity=quantity,
        old_low=low,
        old_high=high,
        old_mean=sum(before) / len(before) if before else None,
        new_mean=new_mean,
        num_old=len(before),
        num_new=len(now),
        differences=tuple(differences),
    )


def _times(row: RunSet) -> list[float]:
    runs = last_attempts(row.runs)
    return [run.time_to_train_s for run in runs if run.converged and run.time_to_train_s is not None]


def _rates(row: RunSet) -> list[float]:
    return [run.samples_per_s for run in last_attempts(row.runs) if run.samples_per_s is not None]
