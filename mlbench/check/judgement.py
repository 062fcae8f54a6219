"""Which runs of a set converged, the reference test and the score, as the rules are applied by `check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlbench.analyse.rcp import RcpResult
from mlbench.analyse.score import (
    RunResult,
    RunSetScore,
    Target,
    score_run_set,
    time_to_train_s,
    why_not_converged,
)
from mlbench.check import rcp
from mlbench.check.rulesets import at_least, max_lost_runs, num_runs_asked
from mlbench.check.subject import LogFile, ResultSet
from mlbench.check.targets import target_of as ruleset_target_of
from mlbench.collect.runlog import RunLog, RunStatus

SCORED_BENCHMARK = "resnet"
MIN_EPOCHS, MAX_EPOCHS = 0.001, 1e6
"""What lies outside is a damaged record, not a number of epochs to convergence."""
ENDED = (RunStatus.success.value, RunStatus.aborted.value)
"""An attempt that came to its own end, good or bad."""


def target_of(log: RunLog, ruleset: str | None, described: str | None = None) -> Target | None:
    """What a run must reach; None where neither log nor ruleset says so in a plain number.

    The open division may set a target of its own, logged as `quality_target`; the open rule of 0.7.0 may not.
    Args: ruleset: None for an import of no known round. described: the division of the system description, which a
        log cannot leave by calling itself open.
    """
    is_open = log.division == "open" and described != "closed"
    may_choose = is_open and (ruleset is None or at_least(ruleset, "1.0.0") or log.benchmark != SCORED_BENCHMARK)
    return ruleset_target_of(log.benchmark, ruleset, log.quality_target if may_choose else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """`why_lost` follows the logs of the set; None where the run converged."""

    targets: Sequence[Target | None]
    why_lost: Sequence[str | None]
    num_missing: int
    """Runs of a run set of mlbench that left no log."""
    batch_size: int | None
    rcp: RcpResult | None

    @property
    def num_lost(self) -> int:
        return self.num_missing + sum(reason is not None for reason in self.why_lost)

    def may_lose(self, benchmark: str | None) -> bool:
        """Whether the lost runs are few enough to count as the slowest ones."""
        return self.num_lost <= max_lost_runs(benchmark or SCORED_BENCHMARK)


def judge(item: ResultSet) -> Judged:
    targets = [target_of(file.log, item.ruleset, _described_division(item)) for file in item.logs]
    why_lost = [
        _ended_badly(item, file) or _why_lost(file, target) for file, target in zip(item.logs, targets, strict=True)
    ]
    sizes = {file.log.global_batch_size for file in item.logs}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    missing = sum(not run.has_log for run in item.own.runs.values()) if item.own is not None else 0
    result: RcpResult | None = None
    if item.scored and item.logs and item.benchmark == SCORED_BENCHMARK and rcp.applies(item.ruleset, item.division):
        epochs = [
            None if reason is not None else _epochs(file) for file, reason in zip(item.logs, why_lost, strict=True)
        ]
        result = rcp.convergence([*epochs, *[None] * missing], batch_size=size, ruleset=item.ruleset)
    return Judged(targets=targets, why_lost=why_lost, num_missing=missing, batch_size=size, rcp=result)


def score(item: ResultSet, judged: Judged, broken_rules: Sequence[str]) -> RunSetScore | None:
    """The score that this set would get under its ruleset; None for what is not scored at all."""
    if not item.scored or not item.logs or item.benchmark != SCORED_BENCHMARK:
        return None
    runs = [
        RunResult(time_s=time_to_train_s(file.log), converged=reason is None)
        for file, reason in zip(item.logs, judged.why_lost, strict=True)
    ]
    runs += [RunResult(time_s=None, converged=False)] * judged.num_missing
    factor = judged.rcp.factor if judged.rcp is not None and rcp.normalises(item.ruleset, item.division) else None
    raw = ["a rehearsal, not a measurement"] if item.own is not None and item.own.identity.rehearsal else []
    if any(file.log.cache_clear is False for file in item.logs):
        raw.append("the cache was not proven cold")
    return score_run_set(
        runs,
        num_asked=num_runs_asked(SCORED_BENCHMARK),
        raw_reasons=raw,
        broken_rules=broken_rules,
        rcp_factor=factor,
    )


def _ended_badly(item: ResultSet, file: LogFile) -> str | None:
    """What the runner saw of a run of mlbench wins over what its log says."""
    run = item.own.runs.get(file.index) if item.own is not None else None
    if run is None:
        return None
    if run.attempt is None:
        return "the attempt was cut short"
    if run.attempt.status in ENDED:
        return None
    return f"status {run.attempt.status}: {run.attempt.reason or 'no reason recorded'}"


def _described_division(item: ResultSet) -> str | None:
    division = item.description.data.get("division") if item.description and item.description.data else None
    return division.strip().lower() if isinstance(division, str) else None


def _why_lost(file: LogFile, target: Target | None) -> str | None:
    if target is not None:
        return why_not_converged(file.log, target)
    if file.log.run_stop_ms is None:
        return "no run_stop"
    status = file.log.run_stop_status
    return None if status == "success" else f"run_stop status {status!r}, expected 'success'"


def _epochs(file: LogFile) -> float | None:
    """`epoch_num` of the last evaluation, as the official tool takes it; None when it cannot be a number of epochs."""
    last = file.log.evaluations[-1] if file.log.evaluations else None
    if last is None or last.epoch_num is None or not MIN_EPOCHS <= last.epoch_num <= MAX_EPOCHS:
        return None
    return last.epoch_num
