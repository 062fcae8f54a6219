"""From run results to the score of a run set, as the MLPerf training rules compute it.

Source: mlcommons/training_policies training_rules.adoc, section on scoring (commit d73e20f).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mlbench.collect.runlog import RunLog
from mlbench.errors import InputError
from mlbench.plan.rules import CLOSED_REPEATS
from mlbench.wording import count_of

RUNS_ASKED = {"resnet": CLOSED_REPEATS}
"""Runs the rules ask of the benchmarks that mlbench scores."""


class TooFewRunsError(InputError):
    """Dropping the fastest and the slowest leaves nothing."""


class ScoreStatus(Enum):
    valid = "valid"
    invalid = "invalid"  # more than one run lost, or a rule broken
    raw = "raw"  # not what the rules ask to be scored


def olympic_mean(times_s: Sequence[float], *, num_dropped: int = 1) -> float:
    """Mean run result after dropping the `num_dropped` fastest and slowest runs.

    Args: times_s: shape (num_runs,), seconds, any order, not modified; `inf` = run did not converge.
    Returns: seconds; `inf` if a run that did not converge is left.
    Raises: TooFewRunsError: num_runs <= 2 * num_dropped.
    Source: mlcommons/training_policies training_rules.adoc:509 (d73e20f).
    """
    if len(times_s) <= 2 * num_dropped:
        raise TooFewRunsError(
            f"an olympic mean of {count_of(len(times_s), 'run')}: more than {2 * num_dropped} are needed to drop "
            f"{num_dropped} at each end"
        )
    kept = sorted(times_s)[num_dropped : len(times_s) - num_dropped]
    return math.inf if math.inf in kept else statistics.fmean(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What scoring needs of one run. `time_s` is from run_start to run_stop, None when one of them is missing."""

    time_s: float | None
    converged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetScore:
    """`score_s` is None unless `score_status` is valid. The statistics are over the converged runs."""

    num_runs: int
    num_asked: int | None
    num_converged: int
    olympic_mean_s: float | None
    scaling_factor: float | None
    rcp_factor: float | None
    score_s: float | None
    score_status: ScoreStatus
    score_reason: str | None
    mean_s: float | None
    min_s: float | None
    max_s: float | None
    cv: float | None
    window: tuple[int, int] | None = None
    """First and one past the last run that were scored, when more were run than asked."""

    @property
    def formula(self) -> str:
        """How the score came about, in words, with n good of n asked."""
        asked = self.num_asked if self.num_asked is not None else self.num_runs
        text = f"olympic mean, {self.num_converged} converged of {count_of(self.num_runs, 'run')}, {asked} asked"
        if self.window is not None:
            text += f", runs {self.window[0]} to {self.window[1] - 1} (median window)"
        if self.scaling_factor is not None:
            text += f", x {self.scaling_factor:.10g} (scaling.json)"
        elif self.rcp_factor is not None and self.rcp_factor > 1:
            text += f", x {self.rcp_factor:.10g} (reference convergence)"
        return text


def score_run_set(
    runs: Sequence[RunResult],
    *,
    num_asked: int | None,
    raw_reasons: Sequence[str] = (),
    broken_rules: Sequence[str] = (),
    scaling_factor: float | None = None,
    rcp_factor: float | None = None,
    allow_window: bool = False,
) -> RunSetScore:
    """The benchmark result of the runs of one set, in the order they were run.

    Args:
        num_asked: runs the rules ask; None: no rules are known, so nothing can be a score.
        raw_reasons: why this is not a score whatever the numbers: rehearsal, warm cache.
        broken_rules: why the set is invalid although enough runs converged.
        scaling_factor: what the round's reviewers put into scaling.json; it wins over `rcp_factor`.
        rcp_factor: reference mean epochs over own mean epochs; only a factor above 1 is applied.
        allow_window: more runs than asked were launched as one group; the window of `num_asked` consecutive runs
            whose olympic mean is the median is scored (the slower of the two middle ones of an even number).
    """
    num_converged = sum(run.converged and run.time_s is not None for run in runs)
    good = [run.time_s for run in runs if run.converged and run.time_s is not None]
    mean_s = statistics.fmean(good) if good else None
    cv = statistics.stdev(good) / mean_s if mean_s and len(good) > 1 else None
    times_s = [run.time_s if run.converged and run.time_s is not None else math.inf for run in runs]
    window: tuple[int, int] | None = None
    if num_asked is not None and allow_window and len(runs) > num_asked:
        window = median_window(times_s, num_asked)
        times_s = times_s[window[0] : window[1]]
    olympic_s = None
    if num_asked is not None and len(times_s) == num_asked:
        mean = olympic_mean(times_s)
        olympic_s = mean if math.isfinite(mean) else None

    reasons = list(raw_reasons)
    if num_asked is None and not reasons:
        reasons.append("no rules are known that say how many runs to score")
    elif num_asked is not None and len(times_s) != num_asked:
        reasons.append(f"{count_of(len(runs), 'run')} of {num_asked} asked")
    invalid = list(broken_rules)
    if num_asked is not None and len(times_s) == num_asked and olympic_s is None:
        lost = sum(math.isinf(time_s) for time_s in times_s)
        invalid.insert(0, f"{num_asked - lost} of {num_asked} converged; at most one run may be lost")
    reason: str | None
    if reasons:
        status, reason, score_s = ScoreStatus.raw, "; ".join(reasons), None
    elif invalid or olympic_s is None:
        status, reason, score_s = ScoreStatus.invalid, "; ".join(invalid), None
    else:
        factor = scaling_factor if scaling_factor is not None else max(1.0, rcp_factor or 1.0)
        lost = sum(math.isinf(time_s) for time_s in times_s)
        reason = "one run did not converge and counts as the slowest" if lost else None
        status, score_s = ScoreStatus.valid, olympic_s * factor
    return RunSetScore(
        num_runs=len(runs),
        num_asked=num_asked,
        num_converged=num_converged,
        olympic_mean_s=olympic_s,
        scaling_factor=scaling_factor,
        rcp_factor=rcp_factor,
        score_s=score_s,
        score_status=status,
        score_reason=reason,
        mean_s=mean_s,
        min_s=min(good, default=None),
        max_s=max(good, default=None),
        cv=cv,
        window=window,
    )


def median_window(times_s: Sequence[float], num_runs: int) -> tuple[int, int]:
    """The window of `num_runs` consecutive runs whose olympic mean is the median of all windows'.

    Of an even number of windows the slower middle one is taken: a choice may never flatter.
    Returns: first and one past the last index.
    """
    starts = range(len(times_s) - num_runs + 1)
    ranked = sorted(starts, key=lambda start: (olympic_mean(times_s[start : start + num_runs]), start))
    start = ranked[len(ranked) // 2]
    return start, start + num_runs


def time_to_train_s(log: RunLog) -> float | None:
    """run_start to run_stop, seconds; None when one is missing, or when the log contradicts itself."""
    if log.run_start_ms is None or log.run_stop_ms is None or log.untrusted:
        return None
    return (log.run_stop_ms - log.run_start_ms) / 1000.0


@dataclass(frozen=True, slots=True)
class Target:
    """The quality a benchmark must reach. Losses are reached from above."""

    value: float
    higher_is_better: bool = True

    def reached(self, accuracy: float) -> bool:
        return accuracy >= self.value if self.higher_is_better else accuracy <= self.value


def why_not_converged(log: RunLog, target: Target | None) -> str | None:
    """None when the run converged, else the first reason, for a reader."""
    if log.run_start_ms is None or log.run_stop_ms is None:
        missing = "run_start" if log.run_start_ms is None else "run_stop"
        return f"no usable {missing}: {_first(log)}" if log.untrusted else f"no {missing}"
    if log.run_stop_status != "success":
        return f"run_stop status {log.run_stop_status!r}, expected 'success'"
    if log.untrusted:
        return f"the log cannot be trusted: {_first(log)}"
    if target is None:
        return "the quality target is not known"
    if not log.evaluations:
        return "no eval_accuracy"
    best = best_accuracy(log, target)
    if best is None:
        return "no eval_accuracy from 0 to 1"
    if not target.reached(best):
        return f"best eval_accuracy {best!r} of {target.value!r}"
    return None


def _first(log: RunLog) -> str:
    first = log.untrusted[0]
    return first.text + (f" (line {first.line})" if first.line else "")


def best_accuracy(log: RunLog, target: Target | None) -> float | None:
    """The best evaluation of a log. An accuracy of ResNet is a share: what is outside 0 to 1 is not one."""
    values = [item.accuracy for item in log.evaluations if log.benchmark != "resnet" or 0.0 <= item.accuracy <= 1.0]
    if target is not None and not target.higher_is_better:
        return min(values, default=None)
    return max(values, default=None)
