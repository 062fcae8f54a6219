"""How a run ended is read from the run itself: exit status, run_stop and accuracy."""

from __future__ import annotations

import math

import pytest

from mlbench.collect.runlog import Evaluation, RunLog, RunStatus
from mlbench.runner.judge import Judgement, ended_by_itself, exit_text, judge


def a_log(*, stop: str | None = "success", accuracy: float | None = 0.76) -> RunLog:
    log = RunLog(file="result.txt", run_start_ms=1000.0, run_stop_status=stop, num_records=10)
    if accuracy is not None:
        log.evaluations = [Evaluation(1.0, accuracy / 2, 1500.0, 5), Evaluation(2.0, accuracy, 2000.0, 9)]
    return log


def verdict(log: RunLog | None, exit_status: int | None = 0, **more: object) -> Judgement:
    given = {"stopped": None, "target": 0.759, **more}
    return judge(log, exit_status=exit_status, **given)  # type: ignore[arg-type]


def test_judge_run_that_reached_its_target_is_success_without_reason() -> None:
    assert verdict(a_log()) == Judgement(RunStatus.success, None)


def test_judge_accuracy_equal_to_the_target_counts() -> None:
    assert verdict(a_log(accuracy=0.759)).reason is None


def test_judge_status_0_without_run_stop_is_incomplete() -> None:
    found = verdict(a_log(stop=None))
    assert found.status is RunStatus.incomplete
    assert found.reason == "ended with status 0, but the log has no run_stop"


@pytest.mark.parametrize("log", [None, RunLog(file="result.txt")], ids=["no file", "no record"])
def test_judge_status_0_without_any_log_is_incomplete(log: RunLog | None) -> None:
    found = verdict(log)
    assert found.status is RunStatus.incomplete
    assert found.reason is not None
    assert "left no log" in found.reason


def test_judge_status_1_is_crashed_even_after_run_stop() -> None:
    found = verdict(a_log(), exit_status=1)
    assert found == Judgement(RunStatus.crashed, "ended with status 1 after run_stop")


def test_judge_killed_names_the_signal() -> None:
    assert verdict(a_log(stop=None), exit_status=137).reason == "ended with status 137 (SIGKILL)"


def test_judge_run_stop_aborted_is_aborted_and_quotes_it() -> None:
    found = verdict(a_log(stop="aborted"))
    assert found == Judgement(RunStatus.aborted, "run_stop status 'aborted', expected 'success'")


def test_judge_success_below_target_ended_but_says_so() -> None:
    found = verdict(a_log(accuracy=0.7512))
    assert found == Judgement(RunStatus.success, "best eval_accuracy 0.7512 of 0.759, so it did not converge")


def test_judge_success_without_evaluation_does_not_claim_the_target() -> None:
    found = verdict(a_log(accuracy=None))
    assert found.reason is not None
    assert "no eval_accuracy" in found.reason


def test_judge_accuracy_that_is_no_number_does_not_reach_the_target() -> None:
    log = a_log(accuracy=None)
    log.evaluations = [Evaluation(1.0, math.nan, 1500.0, 5)]
    assert verdict(log).reason == "no eval_accuracy is a number, so the target was not reached"


def test_judge_throughput_run_needs_no_accuracy() -> None:
    assert verdict(a_log(accuracy=None), target=None) == Judgement(RunStatus.success, None)


def test_judge_limit_of_ours_is_timeout() -> None:
    stopped = (RunStatus.timeout, "stopped after 5 s without a new record")
    assert verdict(a_log(stop=None), exit_status=143, stopped=stopped) == Judgement(*stopped)


def test_judge_run_that_ended_well_as_it_was_stopped_keeps_its_result() -> None:
    stopped = (RunStatus.interrupted, "stopped by the user")
    assert verdict(a_log(), exit_status=0, stopped=stopped).status is RunStatus.success


def test_judge_end_not_seen_with_run_stop_keeps_the_result() -> None:
    assert verdict(a_log(), exit_status=None) == Judgement(RunStatus.success, None)


def test_judge_end_not_seen_without_run_stop_is_interrupted() -> None:
    assert verdict(a_log(stop=None), exit_status=None).status is RunStatus.interrupted


@pytest.mark.parametrize(
    ("status", "own_end"),
    [
        ("success", True),
        ("aborted", True),
        ("crashed", False),
        ("incomplete", False),
        ("timeout", False),
        ("interrupted", False),
    ],
)
def test_ended_by_itself_only_for_runs_that_logged_their_end(status: str, own_end: bool) -> None:
    assert ended_by_itself(status) is own_end


def test_exit_text_unknown_signal_number_stays_a_status() -> None:
    assert exit_text(255) == "status 255"
