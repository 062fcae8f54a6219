"""How a run set ended, and the exit status that says the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlbench.analyse.score import ScoreStatus
from mlbench.check.finding import Finding, Verdict
from mlbench.choices import BenchmarkKind, Stage
from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder, last_attempts
from mlbench.runner.context import StageReport
from mlbench.runner.events import StageState
from mlbench.runner.judge import ended_by_itself
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.store.tables import RunSet

EXIT_GOOD, EXIT_RUN_FAILED, EXIT_NOT_COMPLIANT, EXIT_INTERRUPTED = 0, 3, 4, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """What the official compliance checker said; `verdict` None: not checked, and `reason` says why."""

    verdict: Verdict | None
    ruleset: str
    findings: tuple[Finding, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesResult:
    """`row` is the run set as its files tell it, whether or not the database took it; None when it cannot be read.
    `fault` is the sentence that ended the series early. `num_missing` counts repetitions still to be run."""

    folder: RunFolder
    identity: RunSetFile
    reports: Mapping[Stage, StageReport]
    row: RunSet | None
    official: Official
    num_missing: int
    interrupted: bool
    fault: str | None = None
    store_fault: str | None = None
    differences: tuple[str, ...] = field(default=())
    """Facts that differ from the first call, accepted by --force."""

    @property
    def exit_status(self) -> int:
        return exit_status(self)

    @property
    def last_line(self) -> str:
        return last_line(self)


def exit_status(result: SeriesResult) -> int:
    """0 good; 3 a run failed or is missing, or a stage failed; 4 all ended, but the set is no good; 130 interrupted."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    failed = any(report.state is StageState.failed for report in result.reports.values())
    if result.fault is not None or result.num_missing or failed or result.row is None or lost_runs(result):
        return EXIT_RUN_FAILED
    return EXIT_NOT_COMPLIANT if broken(result) else EXIT_GOOD


def lost_runs(result: SeriesResult) -> list[int]:
    """Runs that ended well by their record, and whose log no longer says so: it was changed or removed since."""
    if result.row is None:
        return []
    return [run.index for run in last_attempts(result.row.runs) if not ended_by_itself(run.status)]


def broken(result: SeriesResult) -> str | None:
    """Why a set whose runs all ended is no good, None when it is."""
    row = result.row
    if row is None or Stage.train not in result.reports:
        return None
    if row.score_status == ScoreStatus.invalid.value:
        return f"the run set is invalid: {row.score_reason}"
    if result.identity.benchmark_kind == BenchmarkKind.train.value:
        lost = row.num_runs - row.num_converged
        if lost > 1 or row.num_converged == 0:
            return f"{row.num_converged} of {count_of(row.num_runs, 'run')} converged"
    if result.official.verdict is Verdict.not_compliant:
        return f"not compliant with ruleset {result.official.ruleset}"
    return None


def last_line(result: SeriesResult) -> str:
    """One line that says what the exit status says."""
    name = result.identity.run_set
    resume = f"`mlbench resume {name}` runs what is missing"
    match exit_status(result):
        case 130:
            return f"Interrupted: {_unfinished(result)}; {resume}."
        case 3:
            if result.fault is not None:
                return f"Failed: {result.fault}."
            if result.num_missing:
                return f"Failed: {_missing(result)}; {resume}."
            if lost := lost_runs(result):
                return (
                    f"Failed: the log of run {', '.join(map(str, lost))} no longer holds what its record says; put the "
                    "file back and write `mlbench db rebuild`, or start a new run set."
                )
            bad = [stage.value for stage, report in result.reports.items() if report.state is StageState.failed]
            return f"Failed: stage {', '.join(bad)}." if bad else "Failed: the files of the run set cannot be read."
        case 4:
            return f"Not good: {broken(result)}."
    if result.row is not None and result.row.score_status == ScoreStatus.valid.value:
        return f"Good: score {result.row.score_s:.3f} s." if result.row.score_s is not None else "Good."
    if result.row is not None and result.row.score_reason and Stage.train in result.reports:
        return f"Done. Raw, not a score: {result.row.score_reason}."
    return "Done."


def _unfinished(result: SeriesResult) -> str:
    if Stage.train.value in result.identity.stages:
        return _missing(result)
    done = {stage.value for stage, report in result.reports.items() if report.state is StageState.measured}
    left = [stage for stage in result.identity.stages if stage not in done]
    stages = count_of(len(result.identity.stages), "stage is", "stages are")
    return f"{len(done)} of {stages} finished, missing is {', '.join(left) or 'nothing'}"


def _missing(result: SeriesResult) -> str:
    total = result.identity.repeats + result.identity.warmup_runs
    runs = count_of(total, "run is", "runs are")
    return f"{total - result.num_missing} of {runs} finished and stored, {result.num_missing} missing"
