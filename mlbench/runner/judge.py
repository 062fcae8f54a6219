"""How a run ended, by its own evidence: exit status, run_stop and accuracy. The word of a wrapper is no evidence."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from mlbench.collect.runlog import RunLog, RunStatus

SUCCESS = "success"
_SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True)
class Judgement:
    """`reason` is one clause; None when the run reached its target. A run with status `success` and a reason ended
    well without converging."""

    status: RunStatus
    reason: str | None

    @property
    def ended(self) -> bool:
        """The run came to its own end, good or bad; anything else is a fault, and `resume` runs it again."""
        return self.status in (RunStatus.success, RunStatus.aborted)


def ended_by_itself(status: str) -> bool:
    """The same question for the status of an attempt on disk."""
    return status in (RunStatus.success.value, RunStatus.aborted.value)


def judge(
    log: RunLog | None, *, exit_status: int | None, stopped: tuple[RunStatus, str] | None, target: float | None
) -> Judgement:
    """Judge one attempt.

    Args:
        log: what result.txt holds; None when it is not there or cannot be read.
        exit_status: of the launcher, 128 + number for a signal; None when its end was not seen (mlbench was killed).
        stopped: status and reason when mlbench itself ended the run.
        target: accuracy to reach; None for runs without evaluation.
    """
    finished = log is not None and log.run_stop_status is not None
    if stopped is not None and not (finished and exit_status == 0):
        return Judgement(*stopped)
    if exit_status is not None and exit_status != 0:
        after = " after run_stop" if finished else ""
        return Judgement(RunStatus.crashed, f"ended with {exit_text(exit_status)}{after}")
    if log is None or log.run_stop_status is None:
        end = "its end was not seen" if exit_status is None else "ended with status 0"
        held = "left no log" if log is None or log.num_records == 0 else "the log has no run_stop"
        status = RunStatus.interrupted if exit_status is None else RunStatus.incomplete
        return Judgement(status, f"{end}, but {held}")
    if log.run_stop_status != SUCCESS:
        return Judgement(RunStatus.aborted, f"run_stop status '{log.run_stop_status}', expected 'success'")
    return Judgement(RunStatus.success, _missed_target(log, target))


def _missed_target(log: RunLog, target: float | None) -> str | None:
    if target is None:
        return None
    if not log.evaluations:
        return "no eval_accuracy in the log, so the target was not shown to be reached"
    best = max((item.accuracy for item in log.evaluations if item.accuracy == item.accuracy), default=None)
    if best is None:
        return "no eval_accuracy is a number, so the target was not reached"
    return None if best >= target else f"best eval_accuracy {best:.4f} of {target:g}, so it did not converge"


def exit_text(status: int) -> str:
    """`status 1`, or `status 137 (SIGKILL)` as a shell shows a signal."""
    if status <= _SIGNAL_BASE:
        return f"status {status}"
    try:
        return f"status {status} ({signal.Signals(status - _SIGNAL_BASE).name})"
    except ValueError:
        return f"status {status}"
