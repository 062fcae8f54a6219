from __future__ import annotations

import math

import pytest

from mlbench.analyse.score import (
    RunResult,
    ScoreStatus,
    Target,
    TooFewRunsError,
    median_window,
    olympic_mean,
    score_run_set,
    why_not_converged,
)
from mlbench.collect.mllog import fold
from mlbench.collect.mllog_scan import scan
from tests.support.run_logs import BASE_MINUTES, run_lines


def good(*minutes: float) -> list[RunResult]:
    return [RunResult(time_s=value * 60, converged=True) for value in minutes]


def lost(minutes: float | None) -> RunResult:
    return RunResult(time_s=None if minutes is None else minutes * 60, converged=False)


def test_olympic_mean_base_set_is_36_5_and_leaves_its_argument_alone() -> None:
    times = list(BASE_MINUTES)
    assert olympic_mean(times) == pytest.approx(36.5, rel=1e-12)  # cases.md, section 4
    assert times == list(BASE_MINUTES)


def test_olympic_mean_dell_v1_0_times_give_published_mean() -> None:
    times = [36.35661666666667, 36.43611666666666, 36.33768333333333, 36.3695, 36.383966666666666]
    assert olympic_mean(times) == pytest.approx(36.37002777777778, rel=1e-12)  # cases.md, section 1


def test_olympic_mean_one_failed_run_is_the_slowest() -> None:
    # cases.md, section 1: NVIDIA v1.0, the aborted run of 30.3 minutes taken as slowest
    times = [28.742366666666666, math.inf, 28.828616666666665, 28.512133333333335, 28.7416]
    assert olympic_mean(times) == pytest.approx(28.770861111111106, rel=1e-12)


def test_olympic_mean_two_failed_runs_is_inf() -> None:
    assert olympic_mean([1.0, 2.0, 3.0, math.inf, math.inf]) == math.inf


def test_olympic_mean_unet3d_drops_four_at_each_end() -> None:
    assert olympic_mean([100.0] * 4 + [1.0] * 4 + [2.0, 4.0], num_dropped=4) == 3.0


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0]])
def test_olympic_mean_too_few_runs_is_refused(times: list[float]) -> None:
    with pytest.raises(TooFewRunsError, match="more than 2"):
        olympic_mean(times)


def test_score_five_good_runs_is_valid_and_says_its_formula() -> None:
    score = score_run_set(good(*BASE_MINUTES), num_asked=5)
    assert score.score_status is ScoreStatus.valid
    assert score.score_s == pytest.approx(36.5 * 60, rel=1e-12)
    assert score.score_reason is None
    assert score.formula == "olympic mean, 5 converged of 5 runs, 5 asked"


def test_score_one_lost_run_is_slowest_even_when_it_was_fastest() -> None:
    runs = good(30.0, 31.0, 32.0, 33.0)
    for minutes in (1.0, 99.0, None):
        score = score_run_set([lost(minutes), *runs], num_asked=5)
        assert score.score_status is ScoreStatus.valid
        assert score.score_s == pytest.approx(32.0 * 60)
        assert (score.num_runs, score.num_converged) == (5, 4)
        assert score.min_s == 30.0 * 60  # statistics are over converged runs only


def test_score_two_lost_runs_is_invalid_without_a_number() -> None:
    score = score_run_set([lost(1.0), lost(2.0), *good(3.0, 4.0, 5.0)], num_asked=5)
    assert score.score_status is ScoreStatus.invalid
    assert score.score_s is None
    assert score.olympic_mean_s is None
    assert score.score_reason == "3 of 5 converged; at most one run may be lost"


def test_score_no_run_converged_is_invalid_and_does_not_crash() -> None:
    score = score_run_set([lost(None)] * 5, num_asked=5)
    assert score.score_status is ScoreStatus.invalid
    assert (score.mean_s, score.min_s, score.max_s, score.cv) == (None, None, None, None)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_score_fewer_runs_than_asked_is_raw(count: int) -> None:
    score = score_run_set(good(*BASE_MINUTES[:count]), num_asked=5)
    assert score.score_status is ScoreStatus.raw
    assert score.score_s is None
    assert score.score_reason == ("1 run of 5 asked" if count == 1 else f"{count} runs of 5 asked")


def test_score_rehearsal_or_warm_is_raw_and_keeps_the_mean() -> None:
    score = score_run_set(good(*BASE_MINUTES), num_asked=5, raw_reasons=["rehearsal", "warm cache"])
    assert score.score_status is ScoreStatus.raw
    assert score.score_s is None
    assert score.olympic_mean_s == pytest.approx(36.5 * 60)
    assert score.score_reason == "rehearsal; warm cache"


def test_score_broken_rule_is_invalid() -> None:
    score = score_run_set(good(*BASE_MINUTES), num_asked=5, broken_rules=["no reference for batch 131072"])
    assert score.score_status is ScoreStatus.invalid
    assert score.score_s is None
    assert score.score_reason == "no reference for batch 131072"


def test_score_scaling_file_wins_over_own_reference_factor() -> None:
    score = score_run_set(good(*BASE_MINUTES), num_asked=5, scaling_factor=1.01, rcp_factor=1.02)
    assert score.score_s == pytest.approx(36.5 * 60 * 1.01)
    assert "scaling.json" in score.formula


def test_score_own_reference_factor_only_slows() -> None:
    slower = score_run_set(good(*BASE_MINUTES), num_asked=5, rcp_factor=1.0043956044)
    assert slower.score_s is not None
    assert slower.score_s / 60 == pytest.approx(36.66044, abs=5e-6)  # cases.md, section 4
    same = score_run_set(good(*BASE_MINUTES), num_asked=5, rcp_factor=0.9)
    assert same.score_s == pytest.approx(36.5 * 60)


def test_score_unknown_rules_are_raw() -> None:
    assert score_run_set(good(1.0, 2.0, 3.0), num_asked=None).score_status is ScoreStatus.raw


def test_score_more_runs_than_asked_is_raw_unless_launched_as_one_group() -> None:
    runs = good(10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0)
    assert score_run_set(runs, num_asked=5).score_reason == "7 runs of 5 asked"
    score = score_run_set(runs, num_asked=5, allow_window=True)
    # olympic means of the three windows are 12, 13, 14: the median is that of runs 1 to 5
    assert score.window == (1, 6)
    assert score.score_s == 13.0 * 60
    assert "runs 1 to 5" in score.formula


def test_median_window_even_number_takes_the_slower_middle() -> None:
    times = [10.0, 10.0, 10.0, 10.0, 10.0, 20.0, 20.0, 20.0]
    # windows 0..3 have olympic means 10, 10, 40/3, 50/3: the slower middle one is 40/3
    assert median_window(times, 5) == (2, 7)


def test_median_window_lost_runs_can_not_be_dodged() -> None:
    runs = [*good(1.0, 1.0, 1.0, 1.0, 1.0), lost(1.0), lost(1.0)]
    score = score_run_set(runs, num_asked=5, allow_window=True)
    # windows: no loss 1.0, one loss 1.0, two losses inf; the median is the one-loss window
    assert score.window == (1, 6)
    assert score.score_status is ScoreStatus.valid
    worse = score_run_set([*runs, lost(1.0)], num_asked=5, allow_window=True)
    assert worse.score_status is ScoreStatus.invalid


def read(lines: list[str]):  # type: ignore[no-untyped-def]
    import io

    return fold(scan(io.BytesIO("\n".join(lines).encode())), "result_0.txt")


@pytest.mark.parametrize(
    ("accuracy", "status", "reason"),
    [
        (0.759, "success", None),  # the target itself is reached: style.md, section 4
        (0.7589, "success", "best eval_accuracy 0.7589 of 0.759"),
        (0.7602, "aborted", "run_stop status 'aborted', expected 'success'"),
        (1.0, "success", None),
        (1.5, "success", "best eval_accuracy 0.31 of 0.759"),  # not a share, so not an accuracy
    ],
)
def test_convergence_of_one_run(accuracy: float, status: str, reason: str | None) -> None:
    assert why_not_converged(read(run_lines(accuracy=accuracy, status=status)), Target(0.759)) == reason


def test_convergence_without_a_known_target_is_never_reached() -> None:
    assert why_not_converged(read(run_lines()), None) == "the quality target is not known"


def test_target_of_a_loss_is_reached_from_above() -> None:
    target = Target(2.69, higher_is_better=False)
    assert target.reached(2.6)
    assert not target.reached(2.7)
