"""Scaling against the smallest point."""

from __future__ import annotations

import pytest

from mlbench.analyse.scaling import ScalingPoint, scaling_table


def test_scaling_of_the_white_paper_is_nearly_linear() -> None:
    # H18597, figure 5: 39,747 images/s on 16 GPUs, 78,454 on 32.
    rows = scaling_table(
        [
            ScalingPoint(num_ranks=32, samples_per_s=78_454.0, time_to_train_s=1_000.0),
            ScalingPoint(num_ranks=16, samples_per_s=39_747.0, time_to_train_s=1_900.0),
        ]
    )
    assert [row.point.num_ranks for row in rows] == [16, 32]
    assert rows[0].speedup == 1.0
    assert rows[1].speedup == pytest.approx(1.9738, abs=1e-4)  # 78,454 / 39,747
    assert rows[1].efficiency == pytest.approx(0.9869, abs=1e-4)
    assert rows[1].time_speedup == pytest.approx(1.9)


def test_scaling_point_not_measured_stays_none_and_is_no_base() -> None:
    rows = scaling_table(
        [
            ScalingPoint(num_ranks=8, samples_per_s=None),
            ScalingPoint(num_ranks=16, samples_per_s=100.0),
            ScalingPoint(num_ranks=32, samples_per_s=150.0),
        ]
    )
    assert rows[0].speedup is None
    assert rows[0].efficiency is None
    assert rows[2].speedup == 1.5
    assert rows[2].efficiency == 0.75


def test_scaling_without_any_measurement_divides_by_nothing() -> None:
    rows = scaling_table([ScalingPoint(num_ranks=8, samples_per_s=0.0), ScalingPoint(num_ranks=16, samples_per_s=None)])
    assert [row.speedup for row in rows] == [None, None]


def test_scaling_of_nothing_is_empty() -> None:
    assert scaling_table([]) == []
