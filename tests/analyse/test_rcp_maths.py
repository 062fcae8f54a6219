from __future__ import annotations

import math

import pytest

from mlbench.analyse.rcp import (
    RcpBasis,
    ReferencePoint,
    find_reference,
    interpolate,
    min_accepted_mean,
    prune,
    rcp_test,
    reference_point,
    student_t_cdf,
)

RULES_EXAMPLE = [16, 14, 16, 17, 16, 16, 15, 16, 15, 16]


def point(batch: int, mean: float, stdev: float = 1.0) -> ReferencePoint:
    lowest = min_accepted_mean(mean, stdev, num_reference=8)
    return ReferencePoint(batch_size=batch, mean_epochs=mean, stdev_epochs=stdev, min_epochs=lowest)


def test_reference_point_rules_example_as_the_official_tool_has_it() -> None:
    found = reference_point(1, RULES_EXAMPLE)
    # style.md, section 4, ran: rcp_checker.py gives 0.781 and 14.78
    assert found.mean_epochs == 15.75
    assert found.stdev_epochs == pytest.approx(0.781, abs=5e-4)
    assert found.min_epochs == pytest.approx(14.78, abs=5e-3)


def test_reference_point_rules_example_as_the_rules_text_has_it() -> None:
    found = reference_point(1, RULES_EXAMPLE, trim_deviation=True)
    # training_rules.adoc:724-726: 0.43 and at least 15.21
    assert found.stdev_epochs == pytest.approx(0.43, abs=5e-3)
    assert found.min_epochs == pytest.approx(15.21, abs=5e-3)


def test_reference_point_too_few_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="none is left"):
        reference_point(1, [35.0, 36.0])


def test_min_accepted_mean_without_spread_is_the_mean() -> None:
    assert min_accepted_mean(35.0, 0.0, num_reference=8) == 35.0


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [
        # quantiles of Student's t, Abramowitz and Stegun table 26.10
        (6.314, 1, 0.95),
        (1.812, 10, 0.95),
        (2.764, 10, 0.99),
        (-1.812, 10, 0.05),
        (1.658, 120, 0.95),
        (0.0, 7, 0.5),
    ],
)
def test_student_t_equals_the_tables(t: float, freedom: int, expected: float) -> None:
    assert student_t_cdf(t, freedom) == pytest.approx(expected, abs=1e-4)


def test_student_t_equals_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with mlperf_logging")
    for freedom in (1, 2, 5, 9, 24, 200):
        for t in (-30.0, -3.0, -1.7, -1e-6, 0.0, 0.4, 2.0, 12.0):
            assert student_t_cdf(t, freedom) == pytest.approx(float(stats.t.cdf(t, freedom)), rel=1e-10, abs=1e-15)


def test_interpolate_is_linear_in_the_batch() -> None:
    middle = interpolate(150, point(100, 10.0, 1.0), point(200, 20.0, 3.0))
    assert (middle.mean_epochs, middle.stdev_epochs) == (15.0, 2.0)


def test_prune_drops_points_slower_than_their_neighbours() -> None:
    points = [point(100, 12.0), point(200, 10.0), point(300, 19.0), point(400, 14.0), point(500, 16.0)]
    # 100 is smaller than the fastest; 300 lies above the line from 200 to 400
    assert [item.batch_size for item in prune(points)] == [200, 400, 500]


def test_prune_nothing_is_nothing() -> None:
    assert prune([]) == ()


@pytest.mark.parametrize(
    ("batch", "basis", "reference"),
    [
        (100, RcpBasis.found, 100),
        (150, RcpBasis.interpolated, 150),
        (50, RcpBasis.smallest, 100),
        (201, RcpBasis.missing, None),
    ],
)
def test_find_reference_by_batch(batch: int, basis: RcpBasis, reference: int | None) -> None:
    found, item = find_reference(batch, [point(100, 10.0), point(200, 20.0)])
    assert found is basis
    assert (item.batch_size if item else None) == reference


def test_rcp_test_slower_than_the_reference_is_not_scaled() -> None:
    assert rcp_test([12.0] * 5, 100, [point(100, 10.0)]).factor == 1.0


@pytest.mark.parametrize("epochs", [[], [1.0, 2.0], [0.0] * 5, [math.inf] * 5])
def test_rcp_test_nothing_to_compare_is_neither_passed_nor_failed(epochs: list[float]) -> None:
    result = rcp_test(epochs, 100, [point(100, 10.0)])
    assert (result.passed, result.factor) == (None, None)
