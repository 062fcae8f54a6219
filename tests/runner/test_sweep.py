"""Several run sets at once: labels, statuses, scaling."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from mlbench.runner.outcome import SeriesResult
from mlbench.runner.sweep import (
    SweepPoint,
    new_sweep_id,
    run_points,
    scaling_rows,
    sweep_labels,
    sweep_last_line,
    sweep_status,
)
from tests.runner.test_outcome import IDENTITY, a_result, a_row


def point(num_ranks: int, samples_per_s: float | None, **fields: object) -> SweepPoint:
    row = a_row(samples_per_s=samples_per_s, olympic_mean_s=None, mean_s=None)
    result = a_result(identity=replace(IDENTITY, num_ranks=num_ranks), row=row, **fields)
    return SweepPoint(f"gpus={num_ranks}", result)


def test_sweep_labels_hold_only_what_differs() -> None:
    points = [["+hardware=dgxa100", "gpus=8", "seed=1"], ["+hardware=dgxa100", "gpus=16", "seed=1"]]
    assert sweep_labels(points) == ["gpus=8", "gpus=16"]


def test_sweep_status_is_the_worst_and_the_last_line_says_it() -> None:
    good, failed, bad = point(8, 1.0), point(16, 1.0, num_missing=1), point(32, None, interrupted=True)
    assert (sweep_status([good]), sweep_last_line([good], 1)) == (0, "Done: 1 of 1 point is good.")
    assert sweep_status([good, failed]) == 3
    assert sweep_last_line([good, failed], 2) == "Failed: 1 of 2 points are good; not gpus=16."
    assert sweep_status([failed, bad]) == 130
    assert sweep_last_line([good, bad], 3) == "Interrupted: 1 of 3 points are good."


def test_sweep_goes_on_after_a_failure_and_stops_when_interrupted() -> None:
    started = []
    said = []

    def starter(item: SweepPoint) -> tuple[str, object]:
        def start() -> SeriesResult:
            started.append(item.label)
            return item.result

        return item.label, start

    points = [point(8, 1.0, num_missing=1), point(16, 1.0, interrupted=True), point(32, 1.0)]
    done = run_points([starter(item) for item in points], said.append)  # type: ignore[misc]
    assert started == ["gpus=8", "gpus=16"]
    assert said == done


def test_scaling_rows_of_a_sweep_are_against_the_smallest() -> None:
    rows = scaling_rows([point(16, 190.0), point(8, 100.0), SweepPoint("gpus=32", a_result(row=None))])
    assert [(row.point.num_ranks, row.speedup, row.efficiency) for row in rows] == [(8, 1.0, 1.0), (16, 1.9, 0.95)]


def test_new_sweep_ids_differ() -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    assert new_sweep_id(now) != new_sweep_id(now)
