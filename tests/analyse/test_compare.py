"""Comparison: direction, noise, the test's own limits, and what cannot be compared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbench.analyse import compare
from mlbench.analyse.compare import Outcome, OutlierCause, Sample, compare_metric, differences

# Minutes of cases.md section 1 (Dell v1.0 DSS8440x8A100; NVIDIA v1.0 DGX A100, converged runs).
DSS8440_MIN = (36.35662, 36.43612, 36.33768, 36.36950, 36.38397)
DGXA100_MIN = (28.74237, 28.82862, 28.51213, 28.74160)


def _sample(*values: float, asked: int | None = None) -> Sample:
    return Sample(tuple(values), asked or len(values))


def test_time_half_a_minute_less_is_1_4_percent_faster() -> None:
    found = compare_metric(compare.TIME_TO_TRAIN, _sample(36.5), _sample(36.0))
    assert found.in_words == "1.4 % faster"  # cases.md D13


def test_bandwidth_131_to_118_is_10_percent_slower() -> None:
    found = compare_metric(compare.BUSBW, _sample(131.4), _sample(118.3))
    assert found.in_words == "10.0 % slower"  # cases.md D13


def test_published_systems_differ_beyond_noise() -> None:
    found = compare_metric(compare.TIME_TO_TRAIN, Sample(DSS8440_MIN, 5), Sample(DGXA100_MIN, 5))
    assert found.outcome is Outcome.better
    assert found.verdict == "faster"
    assert found.p_value == pytest.approx(1 / 126)  # the one most extreme deal of C(9, 4)
    assert found.interval is not None
    assert found.interval[0] < found.ratio < found.interval[1] < 1.0  # type: ignore[operator]


def test_overlapping_runs_are_within_noise_and_not_faster() -> None:
    found = compare_metric(
        compare.TIME_TO_TRAIN, _sample(36.5, 36.0, 37.0, 36.2, 36.8), _sample(36.4, 36.1, 36.9, 36.2, 36.7)
    )
    assert found.outcome is Outcome.within_noise
    assert found.interval is not None
    assert found.interval[0] < 1.0 < found.interval[1]


def test_five_against_five_apart_has_the_smallest_p_value() -> None:
    assert compare.permutation_p_value([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / math.comb(10, 5))


def test_three_against_three_is_too_few_to_tell() -> None:
    found = compare_metric(compare.TIME_TO_TRAIN, _sample(1.0, 1.1, 1.2), _sample(9.0, 9.1, 9.2))
    assert found.outcome is Outcome.too_few_runs  # 2 / C(6, 3) = 0.1
    assert found.interval is None
    assert found.in_words == "727.3 % slower"


@pytest.mark.parametrize(
    ("base", "other", "reason"),
    [
        (_sample(0.0, 1.0), _sample(1.0), "zero is not a measurement: 0 in the first"),
        (_sample(1.0), _sample(asked=5), "not measured in the second"),
        (_sample(asked=5), _sample(1.0), "not measured in the first"),
        (_sample(1.0), _sample(float("nan")), "zero is not a measurement: nan in the second"),
    ],
)
def test_value_missing_or_zero_is_not_available(base: Sample, other: Sample, reason: str) -> None:
    found = compare_metric(compare.SAMPLES_PER_S, base, other)
    assert found.outcome is Outcome.not_available
    assert found.in_words == f"n/a ({reason})"
    assert found.worsening is None


def test_epochs_speak_of_fewer_and_more() -> None:
    found = compare_metric(compare.EPOCHS, _sample(35, 35, 36, 35, 35), _sample(39, 39, 40, 39, 39))
    assert found.verdict == "more"


def test_cv_of_one_run_is_not_known() -> None:
    assert _sample(3.0).cv is None
    assert _sample(10.0, 14.0).cv == pytest.approx(math.sqrt(8) / 12)


def test_outlier_with_more_epochs_is_told_from_a_slow_system() -> None:
    # cases.md section 1: Krai v3.1 (39 epochs instead of 35) and CASIA v2.0 (36 epochs in all runs), minutes.
    krai = compare.outliers([271, 271, 271, 271, 303], [35, 35, 35, 35, 39])
    casia = compare.outliers([18.6, 18.7, 18.6, 18.7, 22.3], [36] * 5)
    assert [(item.position, item.cause) for item in krai] == [(4, OutlierCause.more_epochs)]
    assert [(item.position, item.cause) for item in casia] == [(4, OutlierCause.slow_system)]


def test_outlier_without_epochs_has_no_cause() -> None:
    assert compare.outliers([10, 10, 12], [None, None, None])[0].cause is None


def test_differences_name_exactly_what_differs() -> None:
    # cases.md P50: two runs that differ in driver and one config key.
    base = {"host": {"driver": "450.51", "kernel": "5.3"}, "config": {"cache": "drop", "gpus": 8}}
    other = {"host": {"driver": "470.57", "kernel": "5.3"}, "config": {"cache": "evict", "gpus": 8}, "new": {"a": 1}}
    assert [(d.key, d.base, d.other) for d in differences(base, other)] == [
        ("config.cache", "drop", "evict"),
        ("host.driver", "450.51", "470.57"),
        ("new.a", None, 1),
    ]


positive = st.floats(min_value=1e-3, max_value=1e6)


@given(st.lists(positive, min_size=4, max_size=5), st.lists(positive, min_size=4, max_size=5))
def test_interval_and_verdict_never_disagree(first: list[float], second: list[float]) -> None:
    found = compare_metric(compare.TIME_TO_TRAIN, Sample(tuple(first), 5), Sample(tuple(second), 5))
    assert found.interval is not None
    low, high = found.interval
    if found.outcome is Outcome.within_noise:
        assert low <= 1.0 + 1e-6
        assert high >= 1.0 - 1e-6
    else:
        assert low >= 1.0 - 1e-6 or high <= 1.0 + 1e-6


@pytest.mark.slow
@given(st.lists(positive, min_size=4, max_size=5), st.lists(positive, min_size=4, max_size=5))
def test_swapping_the_sides_swaps_the_verdict(first: list[float], second: list[float]) -> None:
    one = compare_metric(compare.TIME_TO_TRAIN, Sample(tuple(first), 5), Sample(tuple(second), 5))
    two = compare_metric(compare.TIME_TO_TRAIN, Sample(tuple(second), 5), Sample(tuple(first), 5))
    swapped = {Outcome.better: Outcome.worse, Outcome.worse: Outcome.better}
    assert two.outcome is swapped.get(one.outcome, one.outcome)
