"""Reference Convergence Points: how many epochs a run set should need, and what it means when it needs fewer.

The arithmetic is that of mlperf_logging's rcp_checker, which decides submissions. Where the rules' own example says
otherwise (training_rules.adoc:724 trims the deviation as well as the mean) both are computed here and tested.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

ALPHA = 0.05
"""Level of the one-sided t-test."""
TOLERANCE_EPOCHS = 0.0001
"""The bisection for the lowest accepted mean stops here, as the official tool's does."""


class RcpBasis(Enum):
    """What a batch size was compared with."""

    found = "found"
    interpolated = "interpolated"
    smallest = "smallest RCP"  # smaller than any reference: the smallest is used, which is stricter
    missing = "no reference"  # larger than any reference: cannot be judged
    none = "no references"  # the ruleset has none for this benchmark


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePoint:
    """Epochs to the target at one batch size. `min_epochs` is the lowest mean that is not suspiciously fast."""

    batch_size: int
    mean_epochs: float
    stdev_epochs: float
    min_epochs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RcpResult:
    """`passed` and `factor` are None when there is nothing to compare with, or when too many runs are lost.

    `factor` is reference mean over own mean, never below 1: what the score is multiplied with.
    """

    basis: RcpBasis
    reference: ReferencePoint | None = None
    mean_epochs: float | None = None
    passed: bool | None = None
    factor: float | None = None


def reference_point(
    batch_size: int, epochs: Sequence[float], *, num_runs: int = 5, num_dropped: int = 1, trim_deviation: bool = False
) -> ReferencePoint:
    """The reference point of the reference runs at one batch size.

    Args:
        epochs: shape (num_reference_runs,), epochs to converge of each, any order.
        num_runs: runs of a submission.
        num_dropped: reference runs dropped at each end of the mean.
        trim_deviation: drop them from the deviation too, as the rules' text has it; the official tool does not.
    Raises: ValueError: nothing is left after dropping.
    """
    if len(epochs) <= 2 * num_dropped:
        raise ValueError(f"{len(epochs)} reference runs, {2 * num_dropped} dropped: none is left")
    ordered = sorted(epochs)
    kept = ordered[num_dropped : len(ordered) - num_dropped]
    mean = statistics.fmean(kept)
    stdev = statistics.pstdev(kept if trim_deviation else ordered)
    return ReferencePoint(
        batch_size=batch_size,
        mean_epochs=mean,
        stdev_epochs=stdev,
        min_epochs=min_accepted_mean(mean, stdev, num_reference=len(kept), num_runs=num_runs),
    )


def min_accepted_mean(mean: float, stdev: float, *, num_reference: int, num_runs: int = 5) -> float:
    """The lowest mean of a submission that a one-sided t-test does not call faster than the reference.

    The submission is taken to spread as the reference does; two of its `num_runs` are dropped.
    """
    if stdev == 0:
        return mean
    num_scored = num_runs - 2
    freedom = num_reference + num_scored - 2
    error = math.sqrt(stdev * stdev * (1 / num_reference + 1 / num_scored))
    low, high = 0.0, mean
    middle = (low + high) / 2
    while high - low > TOLERANCE_EPOCHS:
        if student_t_cdf((middle - mean) / error, freedom) > ALPHA:
            high = middle
        else:
            low = middle
        middle = (low + high) / 2
    return middle


def interpolate(batch_size: int, low: ReferencePoint, high: ReferencePoint, *, num_runs: int = 5) -> ReferencePoint:
    """A reference between two others, linear in the batch size."""
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    mean = low.mean_epochs + share * (high.mean_epochs - low.mean_epochs)
    stdev = low.stdev_epochs + share * (high.stdev_epochs - low.stdev_epochs)
    lowest = min_accepted_mean(mean, stdev, num_reference=2 * num_runs, num_runs=num_runs)
    return ReferencePoint(batch_size=batch_size, mean_epochs=mean, stdev_epochs=stdev, min_epochs=lowest)


def prune(points: Sequence[ReferencePoint]) -> tuple[ReferencePoint, ...]:
    """The points a submission is compared with: those that are not slower than their neighbours suggest.

    Points with a smaller batch than the fastest one go; then each one above the line between its neighbours.
    """
    if not points:
        return ()
    ordered = sorted(points, key=lambda point: point.batch_size)
    fastest = min(ordered, key=lambda point: point.mean_epochs)
    kept = [point for point in ordered if point.batch_size >= fastest.batch_size]
    position = 1
    while position < len(kept) - 1:
        here, low, high = kept[position], kept[position - 1], kept[position + 1]
        if here.mean_epochs > interpolate(here.batch_size, low, high).mean_epochs:
            del kept[position]
        else:
            position += 1
    return tuple(kept)


def find_reference(batch_size: int, points: Sequence[ReferencePoint]) -> tuple[RcpBasis, ReferencePoint | None]:
    """The reference of a batch size among `points`, which are pruned already."""
    if not points:
        return RcpBasis.none, None
    for point in points:
        if point.batch_size == batch_size:
            return RcpBasis.found, point
    smaller = [point for point in points if point.batch_size < batch_size]
    larger = [point for point in points if point.batch_size > batch_size]
    if not larger:
        return RcpBasis.missing, None
    nearest_larger = min(larger, key=lambda point: point.batch_size)
    if not smaller:
        return RcpBasis.smallest, nearest_larger
    nearest_smaller = max(smaller, key=lambda point: point.batch_size)
    return RcpBasis.interpolated, interpolate(batch_size, nearest_smaller, nearest_larger)


def rcp_test(epochs: Sequence[float], batch_size: int, points: Sequence[ReferencePoint]) -> RcpResult:
    """Compare a run set with the references.

    Args: epochs: shape (num_runs,), epochs to converge, `inf` = run did not converge; the fastest and the slowest
        are dropped.
    """
    basis, reference = find_reference(batch_size, points)
    if len(epochs) <= 2:
        return RcpResult(basis=basis, reference=reference)
    mean = statistics.fmean(sorted(epochs)[1:-1])
    if not math.isfinite(mean) or mean <= 0:
        return RcpResult(basis=basis, reference=reference)
    if reference is None:
        return RcpResult(basis=basis, mean_epochs=mean)
    passed = mean >= reference.min_epochs or math.isclose(mean, reference.min_epochs, rel_tol=1e-12)
    factor = max(1.0, reference.mean_epochs / mean)
    return RcpResult(basis=basis, reference=reference, mean_epochs=mean, passed=passed, factor=factor)


def student_t_cdf(t: float, freedom: float) -> float:
    """P(T <= t) of Student's t distribution.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 with 26.5.27.
    """
    square = t * t
    if square < freedom:  # the complement, or the difference from one half drowns in rounding
        tail = 0.5 - 0.5 * _incomplete_beta(0.5, freedom / 2, square / (freedom + square))
    else:
        tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square))
    return tail if t < 0 else 1 - tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) by its continued fraction (ibid. 26.5.8), modified Lentz."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        m = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2 == 0:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _nonzero(1 + numerator * d)
        c = _nonzero(1 + numerator / c)
        fraction *= c * d
        if step > 0 and abs(1 - c * d) < 1e-15:
            break
    return math.exp(log_front) * (fraction - 1) / a


def _nonzero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
