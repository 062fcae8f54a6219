"""Several run sets that differ in one or more settings, and the scaling table over them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mlbench.analyse.scaling import ScalingPoint, ScalingRow, scaling_table
from mlbench.runner.outcome import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_NOT_COMPLIANT, EXIT_RUN_FAILED, SeriesResult

_WORST_FIRST = (EXIT_INTERRUPTED, EXIT_RUN_FAILED, EXIT_NOT_COMPLIANT)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """`label` is what differs from the other points, `gpus=8`."""

    label: str
    result: SeriesResult


def new_sweep_id(now: datetime) -> str:
    return f"sweep-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def run_points(points: Sequence[tuple[str, Callable[[], SeriesResult]]]) -> list[SweepPoint]:
    """Run the points in order; one that fails does not keep the others from running, an interrupted one does."""
    done = []
    for label, start in points:
        result = start()
        done.append(SweepPoint(label, result))
        if result.interrupted:
            break
    return done


def sweep_status(points: Sequence[SweepPoint]) -> int:
    """The worst of the points' exit statuses."""
    statuses = {point.result.exit_status for point in points}
    return next((status for status in _WORST_FIRST if status in statuses), EXIT_GOOD)


def scaling_rows(points: Sequence[SweepPoint]) -> list[ScalingRow]:
    """One row for each point that was measured, by number of ranks."""
    return scaling_table(
        [
            ScalingPoint(
                num_ranks=point.result.identity.num_ranks,
                samples_per_s=point.result.row.samples_per_s,
                samples_per_s_first_epoch=point.result.row.samples_per_s_first_epoch,
                time_to_train_s=point.result.row.olympic_mean_s or point.result.row.mean_s,
            )
            for point in points
            if point.result.row is not None
        ]
    )
