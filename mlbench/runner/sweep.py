"""Several run sets that differ in one or more settings, and the scaling table over them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mlbench.analyse.scaling import ScalingPoint, ScalingRow, scaling_table
from mlbench.runner.outcome import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_NOT_COMPLIANT, EXIT_RUN_FAILED, SeriesResult
from mlbench.secret_names import mask_override
from mlbench.wording import count_of

_WORST_FIRST = (EXIT_INTERRUPTED, EXIT_RUN_FAILED, EXIT_NOT_COMPLIANT)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """`label` is what differs from the other points, `gpus=8`."""

    label: str
    result: SeriesResult


def new_sweep_id(now: datetime) -> str:
    return f"sweep-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def sweep_labels(points: Sequence[Sequence[str]]) -> list[str]:
    """What differs between the points, for each of them: `gpus=8`."""
    shared = set(points[0]).intersection(*map(set, points[1:])) if len(points) > 1 else set()
    return [" ".join(mask_override(text) for text in point if text not in shared) for point in points]


def run_points(
    points: Sequence[tuple[str, Callable[[], SeriesResult]]], on_result: Callable[[SweepPoint], None]
) -> list[SweepPoint]:
    """Run the points in order; one that fails does not keep the others from running, an interrupted one does."""
    done = []
    for label, start in points:
        point = SweepPoint(label, start())
        done.append(point)
        on_result(point)
        if point.result.interrupted:
            break
    return done


def sweep_status(points: Sequence[SweepPoint]) -> int:
    """The worst of the points' exit statuses."""
    statuses = {point.result.exit_status for point in points}
    return next((status for status in _WORST_FIRST if status in statuses), EXIT_GOOD)


def sweep_last_line(points: Sequence[SweepPoint], num_asked: int) -> str:
    """One line that says what `sweep_status` says."""
    good = sum(point.result.exit_status == EXIT_GOOD for point in points)
    count = f"{good} of {count_of(num_asked, 'point is', 'points are')} good"
    bad = ", ".join(point.label for point in points if point.result.exit_status != EXIT_GOOD)
    match sweep_status(points):
        case 130:
            return f"Interrupted: {count}."
        case 3:
            return f"Failed: {count}; not {bad}."
        case 4:
            return f"Not good: {count}; not {bad}."
    return f"Done: {count}."


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
