"""How throughput and time to train grow with the number of ranks: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """One measured point. None: not measured."""

    num_ranks: int
    samples_per_s: float | None
    samples_per_s_first_epoch: float | None = None
    time_to_train_s: float | None = None
    samples_per_s_cv: float | None = None
    """Spread over the point's runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """`speedup` is samples/s over those of the base; `efficiency` is speedup over the growth in ranks (1 is linear);
    `time_speedup` is the base's time to train over this one's."""

    point: ScalingPoint
    speedup: float | None
    efficiency: float | None
    efficiency_first_epoch: float | None
    time_speedup: float | None


def scaling_table(points: Sequence[ScalingPoint]) -> list[ScalingRow]:
    """Rows by number of ranks against the smallest point that was measured.

    Without a measured base a quantity is None in every row, never zero."""
    ordered = sorted(points, key=lambda point: point.num_ranks)
    base = next((point for point in ordered if point.samples_per_s), None)
    base_first = next((point for point in ordered if point.samples_per_s_first_epoch), None)
    base_time = next((point for point in ordered if point.time_to_train_s), None)
    rows = []
    for point in ordered:
        speedup = _ratio(point.samples_per_s, base.samples_per_s if base else None)
        first = _ratio(point.samples_per_s_first_epoch, base_first.samples_per_s_first_epoch if base_first else None)
        rows.append(
            ScalingRow(
                point=point,
                speedup=speedup,
                efficiency=_per_rank(speedup, point, base),
                efficiency_first_epoch=_per_rank(first, point, base_first),
                time_speedup=_ratio(base_time.time_to_train_s if base_time else None, point.time_to_train_s),
            )
        )
    return rows


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _per_rank(speedup: float | None, point: ScalingPoint, base: ScalingPoint | None) -> float | None:
    return None if speedup is None or base is None else speedup / (point.num_ranks / base.num_ranks)


def serial_fraction(rows: Sequence[ScalingRow]) -> float | None:
    """Amdahl's serial fraction s, fitted to the speed-ups: 1 / speedup = s + (1 - s) / k for k times the base's ranks.

    Least squares through the base; with one point beside the base it is the Karp-Flatt metric. Negative: faster than
    linear. None: no point beside the base.
    """
    base = next((row.point.num_ranks for row in rows if row.speedup is not None), None)
    pairs = [
        (1 - base / row.point.num_ranks, 1 / row.speedup - base / row.point.num_ranks)
        for row in rows
        if base is not None and row.speedup and row.point.num_ranks > base
    ]
    weight = sum(a * a for a, _ in pairs)
    return sum(a * b for a, b in pairs) / weight if weight else None
