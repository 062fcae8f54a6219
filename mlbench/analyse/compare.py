"""Comparing two run sets, metric by metric, with a test that fits five runs.

The test is an exact permutation test of the difference of mean logarithms: under "no difference" every way to deal
the runs into two groups is as likely, so the share of deals at least as far apart as the real one is the p-value. It
needs no normal distribution, and the 95 % interval of the ratio is what the same test does not refuse, so interval and
verdict cannot disagree.

What it cannot tell: with three runs against three the smallest possible p-value is 0.1, so no difference can be shown
(`too few runs`); with five against five the smallest is 2/252 = 0.008. "Within noise" does not mean "equal": it means
that these runs cannot tell the two apart. Runs of one set share a machine, a day and a configuration; a difference
between sets can come from any of those.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mlbench.wording import count_of

SIGNIFICANCE = 0.05
_MAX_EXACT_DEALS = 20_000  # C(16, 8) = 12,870 is still exact; beyond it deals are drawn
_NUM_DRAWN_DEALS = 10_000
_BISECTIONS = 40


class Direction(Enum):
    lower = "lower is better"
    higher = "higher is better"


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing to compare. `words` are said for a better and a worse value."""

    key: str
    label: str
    unit: str
    direction: Direction
    words: tuple[str, str] = ("faster", "slower")


TIME_TO_TRAIN = Metric("time_to_train_s", "time to train", "s", Direction.lower)
SAMPLES_PER_S = Metric("samples_per_s", "samples/s", "samples/s", Direction.higher)
SAMPLES_PER_S_FIRST = Metric("samples_per_s_first_epoch", "samples/s, first epoch", "samples/s", Direction.higher)
TIME_PER_EPOCH = Metric("time_per_epoch_s", "time per epoch", "s", Direction.lower)
EPOCHS = Metric("epochs", "epochs to target", "epochs", Direction.lower, ("fewer", "more"))
BUSBW = Metric("busbw_peak_gb_per_s", "all-reduce busbw, peak", "GB/s", Direction.higher)
STORAGE_SEQUENTIAL = Metric("storage_sequential_bytes_per_s", "storage, sequential", "bytes/s", Direction.higher)
STORAGE_RANDOM = Metric("storage_random_bytes_per_s", "storage, random", "bytes/s", Direction.higher)
STORAGE_TRAINING = Metric("storage_training_bytes_per_s", "storage, training pattern", "bytes/s", Direction.higher)
METRICS = (
    TIME_TO_TRAIN,
    SAMPLES_PER_S,
    SAMPLES_PER_S_FIRST,
    TIME_PER_EPOCH,
    EPOCHS,
    BUSBW,
    STORAGE_SEQUENTIAL,
    STORAGE_RANDOM,
    STORAGE_TRAINING,
)


class Outcome(Enum):
    """`better` and `worse` are said in the metric's own words."""

    better = "better"
    worse = "worse"
    within_noise = "within noise"
    too_few_runs = "too few runs"
    not_available = "n/a"


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric's values over the good runs of one run set, and how many were asked for."""

    values: tuple[float, ...]
    num_asked: int

    @property
    def mean(self) -> float | None:
        return math.fsum(self.values) / len(self.values) if self.values else None

    @property
    def cv(self) -> float | None:
        """Sample standard deviation (n - 1) over mean; None for fewer than two values: one run has no spread."""
        mean = self.mean
        if mean is None or len(self.values) < 2 or mean == 0:
            return None
        variance = math.fsum((value - mean) ** 2 for value in self.values) / (len(self.values) - 1)
        return math.sqrt(variance) / mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`other` against `base`. `ratio` is mean(other) / mean(base); `interval` is its 95 % interval."""

    metric: Metric
    base: Sample
    other: Sample
    ratio: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    outcome: Outcome
    reason: str | None

    @property
    def worsening(self) -> float | None:
        """How much worse the mean is, as a share of the base: 0.02 is 2 % worse, negative is better; None is n/a."""
        if self.ratio is None:
            return None
        return self.ratio - 1.0 if self.metric.direction is Direction.lower else 1.0 - self.ratio

    @property
    def verdict(self) -> str:
        """The outcome in the metric's words: faster, slower, within noise, too few runs, n/a."""
        if self.outcome is Outcome.better:
            return self.metric.words[0]
        if self.outcome is Outcome.worse:
            return self.metric.words[1]
        return str(self.outcome.value)

    @property
    def in_words(self) -> str:
        """`1.4 % faster`, whatever the noise; `no change`; or `n/a` with the reason."""
        worsening = self.worsening
        if worsening is None:
            return f"n/a ({self.reason})" if self.reason else "n/a"
        percent = f"{abs(worsening) * 100:.1f}"
        if percent == "0.0":
            return "no change"
        return f"{percent} % {self.metric.words[0 if worsening < 0 else 1]}"


def compare_metric(metric: Metric, base: Sample, other: Sample) -> Comparison:
    """Compare one metric. Never raises: a missing, zero or negative value is `n/a` with the reason."""
    ratio, reason = _ratio(base, other)
    if ratio is None:
        return side_by_side_only(metric, base, other, reason)
    first = [math.log(value) for value in base.values]
    second = [math.log(value) for value in other.values]
    p_value = interval = None
    if smallest_p_value(len(first), len(second)) > SIGNIFICANCE:
        outcome = Outcome.too_few_runs
        reason = f"{len(first)} against {count_of(len(second), 'run')} cannot show a difference at {SIGNIFICANCE:.0%}"
    else:
        p_value = permutation_p_value(first, second)
        interval = _interval(first, second)
        outcome = _outcome(metric, math.fsum(second) / len(second) - math.fsum(first) / len(first), p_value)
    return Comparison(
        metric=metric,
        base=base,
        other=other,
        ratio=ratio,
        interval=interval,
        p_value=p_value,
        outcome=outcome,
        reason=reason,
    )


def side_by_side_only(metric: Metric, base: Sample, other: Sample, reason: str | None) -> Comparison:
    """Both values without a ratio and without a verdict, and why."""
    return Comparison(
        metric=metric,
        base=base,
        other=other,
        ratio=None,
        interval=None,
        p_value=None,
        outcome=Outcome.not_available,
        reason=reason,
    )


def _ratio(base: Sample, other: Sample) -> tuple[float | None, str | None]:
    for name, sample in (("first", base), ("second", other)):
        if not sample.values:
            return None, f"not measured in the {name}"
        if any(not math.isfinite(value) or value <= 0 for value in sample.values):
            return None, f"zero is not a measurement: {min(sample.values):g} in the {name}"
    base_mean, other_mean = base.mean, other.mean
    assert base_mean is not None
    assert other_mean is not None
    return other_mean / base_mean, None


def _outcome(metric: Metric, log_difference: float, p_value: float) -> Outcome:
    if p_value > SIGNIFICANCE:
        return Outcome.within_noise
    lower = log_difference < 0
    return Outcome.better if lower is (metric.direction is Direction.lower) else Outcome.worse


def smallest_p_value(num_first: int, num_second: int) -> float:
    """The smallest p-value that these numbers of runs can give: the one most extreme deal, and its mirror image
    when the sides are of one size."""
    extreme = 2 if num_first == num_second else 1
    return min(1.0, extreme / math.comb(num_first + num_second, num_first))


def permutation_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the difference of means, over all deals, or 10,000 drawn ones when there are too many.

    Args: first, second: shape (n,), (m,), any finite numbers (logarithms of a metric here).
    Source: E. S. Edgington, Randomization Tests, chapter 4: the observed deal counts itself.
    """
    return _p_value(tuple(first), tuple(second), _deals(len(first), len(second)))


def _deals(num_first: int, num_second: int) -> list[tuple[int, ...]]:
    """Positions that go to the first group, one tuple a deal."""
    total = num_first + num_second
    if math.comb(total, num_first) <= _MAX_EXACT_DEALS:
        return list(itertools.combinations(range(total), num_first))
    draw = random.Random(0)  # the same deals each time: a verdict must not change between two readings
    observed = tuple(range(num_first))
    return [observed, *(tuple(draw.sample(range(total), num_first)) for _ in range(_NUM_DRAWN_DEALS))]


def _p_value(first: tuple[float, ...], second: tuple[float, ...], deals: list[tuple[int, ...]]) -> float:
    pool = first + second
    centre = math.fsum(pool) / len(pool)
    centred = [value - centre for value in pool]
    # With the pool centred, the difference of means is a fixed multiple of the first group's sum.
    observed = abs(math.fsum(centred[: len(first)]))
    slack = 1e-12 * (1.0 + math.fsum(abs(value) for value in centred))
    extreme = sum(abs(math.fsum(centred[i] for i in deal)) >= observed - slack for deal in deals)
    return extreme / len(deals)


def _interval(first: list[float], second: list[float]) -> tuple[float, float]:
    """Ratios exp(d) that the test does not refuse when d is taken out of the second group."""
    deals = _deals(len(first), len(second))
    estimate = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    spread = max(max(first) - min(first), max(second) - min(second), 1e-9)

    def refused(shift: float) -> bool:
        return _p_value(tuple(first), tuple(value - shift for value in second), deals) <= SIGNIFICANCE

    edges = []
    for sign in (-1.0, 1.0):
        inside, outside = 0.0, 2.0 * spread
        while not refused(estimate + sign * outside):
            outside *= 2.0
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if refused(estimate + sign * middle) else (middle, outside)
        edges.append(math.exp(estimate + sign * outside))
    return edges[0], edges[1]


class OutlierCause(Enum):
    more_epochs = "more epochs"
    slow_system = "slow system"
    both = "more epochs and slow system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A run far from the median of its set. `time_excess`, `epochs_excess` and `epoch_time_excess` are shares of the
    median: 0.2 is 20 % above."""

    position: int
    time_excess: float
    epochs_excess: float | None
    epoch_time_excess: float | None
    cause: OutlierCause | None


def outliers(times_s: Sequence[float], epochs: Sequence[float | None], *, threshold: float = 0.03) -> list[Outlier]:
    """Runs whose time is more than `threshold` above the median, each with what it is made of.

    Time is epochs times time per epoch; the factor that carries at least three quarters of the excess (in logarithms)
    is named. 3 % is where one published five-run set in twenty-five lies (eight of 201 sets).

    Args: times_s, epochs: shape (num_runs,), same order; an unknown number of epochs is None.
    """
    if len(times_s) < 3:
        return []
    middle = _median(times_s)
    known = [count for count in epochs if count]
    middle_epochs = _median(known) if known else None
    middle_epoch_time = _median([t / e for t, e in zip(times_s, epochs, strict=True) if e]) if known else None
    found = []
    for position, (time_s, count) in enumerate(zip(times_s, epochs, strict=True)):
        excess = time_s / middle - 1.0
        if excess <= threshold:
            continue
        if not count or not middle_epochs or not middle_epoch_time:
            found.append(
                Outlier(position=position, time_excess=excess, epochs_excess=None, epoch_time_excess=None, cause=None)
            )
            continue
        epochs_factor = count / middle_epochs
        share = math.log(epochs_factor) / math.log(1.0 + excess)
        cause = (
            OutlierCause.more_epochs
            if share >= 0.75
            else OutlierCause.slow_system
            if share <= 0.25
            else OutlierCause.both
        )
        found.append(
            Outlier(
                position=position,
                time_excess=excess,
                epochs_excess=epochs_factor - 1.0,
                epoch_time_excess=time_s / count / middle_epoch_time - 1.0,
                cause=cause,
            )
        )
    return found


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose values differ; None on one side is "not there"."""

    key: str
    base: object
    other: object


def differences(base: object, other: object, prefix: str = "") -> list[Difference]:
    """The leaves in which two nested structures of dicts and lists differ, and nothing else, ordered by key."""
    if isinstance(base, dict) and isinstance(other, dict):
        found: list[Difference] = []
        for key in sorted(set(base) | set(other), key=str):
            found += differences(base.get(key), other.get(key), f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(base, dict) and other is None:
        return differences(base, {}, prefix)
    if isinstance(other, dict) and base is None:
        return differences({}, other, prefix)
    return [] if base == other else [Difference(prefix, base, other)]
