"""Comparisons side by side: contestants take turns, round after round, and ratios are formed from the medians.

A ratio is always ours against the peer. Wall time is what a user feels; processor time is kept beside it, because it
holds on a machine that others use as well. Nothing here prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum

from tests.performance.machine import BUSY_CORES, LoadWatch


class PeerError(Exception):
    """A contestant could not be measured; the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One go: seconds of wall and processor time (None: not meaningful) for an amount of work."""

    wall_s: float
    cpu_s: float | None = None
    amount: float = 1.0


Metrics = Mapping[str, Sample]
"""What one go of a contestant measured, by name; most measure one thing."""


class Quantity(Enum):
    rate = "rate"
    """amount / seconds"""
    time = "time"
    """seconds / amount"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`of_ratio`: the bound is on ours / peer; else on ours itself, by processor time when `of_cpu`."""

    bound: float
    at_least: bool
    of_ratio: bool = True
    of_cpu: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='}{self.bound:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """`ours` and `peer` are (contestant, metric); without a peer only our own number is shown."""

    name: str
    unit: str
    quantity: Quantity
    ours: tuple[str, str]
    peer: tuple[str, str] | None = None
    goal: Goal | None = None


@dataclass(slots=True, kw_only=True)
class Experiment:
    """Contestants in the order of their turns. `setting` is entered before the first round and left after the last."""

    name: str
    about: str
    contestants: dict[str, Callable[[], Metrics]]
    ratios: list[Ratio]
    setting: Callable[[], AbstractContextManager[object]] = nullcontext
    missing: list[str] = field(default_factory=list)
    """What was left out, and what it needs."""
    max_rounds: int | None = None
    """For what takes minutes a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A ratio with its numbers; `cpu_*` from processor time, None where it was not kept."""

    ratio: Ratio
    ours: Spread
    peer: Spread | None
    wall_ratio: Spread | None
    cpu_ours: Spread | None
    cpu_peer: Spread | None
    cpu_ratio: Spread | None
    num_rounds: int

    @property
    def judged(self) -> float | None:
        """What the goal is compared with."""
        if self.ratio.goal is None:
            return None
        if not self.ratio.goal.of_ratio:
            found = self.cpu_ours if self.ratio.goal.of_cpu else self.ours
            return None if found is None else found.median
        return None if self.wall_ratio is None else self.wall_ratio.median

    @property
    def judged_by_cpu(self) -> float | None:
        """The same from processor time: what the goal would be compared with if nobody else used the machine."""
        if self.ratio.goal is None:
            return None
        found = self.cpu_ratio if self.ratio.goal.of_ratio else self.cpu_ours
        return None if found is None else found.median

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        value = self.judged
        return None if value is None or self.ratio.goal is None else self.ratio.goal.met(value)

    @property
    def met_by_cpu(self) -> bool:
        """Whether processor time alone meets the goal."""
        value = self.judged_by_cpu
        return value is not None and self.ratio.goal is not None and self.ratio.goal.met(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An experiment after its rounds."""

    experiment: Experiment
    outcomes: list[Outcome]
    failures: dict[str, str]
    """contestant -> why it could not be measured"""
    others_cores: float | None
    """Cores that other processes kept busy meanwhile, mean."""
    rounds: dict[str, list[Metrics]]

    @property
    def busy(self) -> bool:
        """Others used so much of the machine that wall times are doubtful."""
        return self.others_cores is not None and self.others_cores > BUSY_CORES


def spread(values: Sequence[float]) -> Spread:
    """Median with least and largest. Raises StatisticsError for nothing."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def run(
    experiment: Experiment, num_rounds: int, on_go: Callable[[str, int], None] = lambda name, number: None
) -> Report:
    """All rounds of an experiment: A B C A B C ... A contestant that fails is left out from then on.

    Args: on_go: called before each go with the contestant's name and the round, from 1.
    Raises: whatever entering the setting raises.
    """
    if experiment.max_rounds is not None:
        num_rounds = min(num_rounds, experiment.max_rounds)
    rounds: dict[str, list[Metrics]] = {name: [] for name in experiment.contestants}
    failures: dict[str, str] = {}
    with experiment.setting():
        watch = LoadWatch()
        for number in range(1, num_rounds + 1):
            for name, measure in experiment.contestants.items():
                if name in failures:
                    continue
                on_go(name, number)
                try:
                    rounds[name].append(measure())
                except PeerError as error:
                    failures[name] = str(error)
        others = watch.others_cores()
    outcomes = [outcome for ratio in experiment.ratios if (outcome := _outcome(ratio, rounds)) is not None]
    return Report(experiment=experiment, outcomes=outcomes, failures=failures, others_cores=others, rounds=rounds)


def _samples(rounds: Mapping[str, Sequence[Metrics]], source: tuple[str, str]) -> list[Sample]:
    contestant, metric = source
    return [metrics[metric] for metrics in rounds.get(contestant, ()) if metric in metrics]


def _values(samples: Sequence[Sample], quantity: Quantity, *, cpu: bool) -> list[float]:
    seconds = [sample.cpu_s if cpu else sample.wall_s for sample in samples]
    pairs = [(sample.amount, s) for sample, s in zip(samples, seconds, strict=True) if s is not None and s > 0]
    if len(pairs) < len(samples):
        return []
    return [amount / s if quantity is Quantity.rate else s / amount for amount, s in pairs]


def ratio_of(ours: Sequence[float], peer: Sequence[float]) -> Spread | None:
    """Ratio of the medians; its spread is that of the ratios of single rounds. None without numbers."""
    if not ours or not peer:
        return None
    each = [a / b for a, b in zip(ours, peer, strict=False)]
    return Spread(median=statistics.median(ours) / statistics.median(peer), low=min(each), high=max(each))


def _outcome(ratio: Ratio, rounds: Mapping[str, Sequence[Metrics]]) -> Outcome | None:
    """None when one of both sides has no number."""
    ours = _samples(rounds, ratio.ours)
    peer = _samples(rounds, ratio.peer) if ratio.peer is not None else []
    wall, wall_peer = (_values(samples, ratio.quantity, cpu=False) for samples in (ours, peer))
    cpu, cpu_peer = (_values(samples, ratio.quantity, cpu=True) for samples in (ours, peer))
    if not wall or (ratio.peer is not None and not wall_peer):
        return None
    return Outcome(
        ratio=ratio,
        ours=spread(wall),
        peer=spread(wall_peer) if wall_peer else None,
        wall_ratio=ratio_of(wall, wall_peer),
        cpu_ours=spread(cpu) if cpu else None,
        cpu_peer=spread(cpu_peer) if cpu_peer else None,
        cpu_ratio=ratio_of(cpu, cpu_peer),
        num_rounds=len(wall),
    )
