"""A run set from its first file to its last: identity, stages in order, verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mlbench.check.finding import Severity
from mlbench.choices import LauncherName, Stage
from mlbench.collect.runfiles import SCHEMA_VERSION, RunSetFile, write_json
from mlbench.collect.runfolder import RunFolder
from mlbench.collect.safety import storable_arguments, storable_environment
from mlbench.compose import to_yaml
from mlbench.errors import InputError, MlbenchError, PreflightError, RunFailedError
from mlbench.plan.data import mean_image_bytes
from mlbench.plan.types import Plan
from mlbench.runner.context import StageContext, StageReport
from mlbench.runner.events import Listener, RunSetStarted, Said, StageEnded, StageStarted, StageState
from mlbench.runner.findings import drop_findings, put_finding, read_findings
from mlbench.runner.identity import create_run_folder, held
from mlbench.runner.interrupt import StopRequest
from mlbench.runner.missing import attempts_of, missing_slots
from mlbench.runner.outcome import Official, SeriesResult
from mlbench.runner.provenance import gather
from mlbench.runner.ready import Ready
from mlbench.runner.secrets import masked
from mlbench.runner.stages import load_stage
from mlbench.runner.storing import Keeper
from mlbench.runner.verdict import official_verdict
from mlbench.store.url import resolve_url, storable_url

if TYPE_CHECKING:
    from mlbench.store.tables import RunSet


def start_series(
    ready: Ready,
    *,
    command_line: Sequence[str],
    listener: Listener,
    stop: StopRequest,
    reproduces: str | None = None,
    sweep: str | None = None,
) -> SeriesResult:
    """Make a new run set and run it.

    Raises PreflightError: the folder cannot be made; nothing was launched."""
    plan, now = ready.plan, datetime.now(UTC)
    folder = create_run_folder(plan.runs_dir, plan.config.benchmark.name, now)
    identity = describe(
        plan, folder, now, ready.clock_offsets_s, command_line=command_line, reproduces=reproduces, sweep=sweep
    )
    try:
        folder.config.write_text(to_yaml(masked(plan.config)), encoding="utf-8")
        write_json(folder.hosts, {host: dict(facts) for host, facts in ready.hosts.items()})
        write_json(folder.identity, identity)
    except OSError as error:
        raise PreflightError(
            f"{folder.path}: cannot be written ({error.strerror}); nothing was launched; make room, or give another "
            "folder with runs_dir=FOLDER"
        ) from error
    listener(RunSetStarted(folder.run_set, str(folder.path), resumed=False))
    for note in (*plan.notes, *ready.notes):
        listener(Said(note))
    with held(folder):
        return run_stages(plan, folder, identity, listener=listener, stop=stop)


def describe(
    plan: Plan,
    folder: RunFolder,
    now: datetime,
    clock_offsets_s: Mapping[str, float],
    *,
    command_line: Sequence[str],
    reproduces: str | None,
    sweep: str | None,
) -> RunSetFile:
    """What run_set.json says of a planned run set."""
    config = plan.config
    rehearsal = config.launcher.name is LauncherName.rehearsal
    provenance = gather(plan, clock_offsets_s)
    version = provenance.packages.get("mxnet")
    return RunSetFile(
        schema_version=SCHEMA_VERSION,
        run_set=folder.run_set,
        created_at=now.isoformat(timespec="milliseconds"),
        command_line=storable_arguments(command_line),
        rehearsal=rehearsal,
        repeats=config.repeats,
        warmup_runs=config.warmup_runs,
        stages=[stage.value for stage in plan.stages],
        launcher=config.launcher.name.value,
        system_name=plan.system_name,
        org=config.submission.org,
        platform=plan.platform,
        division=config.submission.division.value,
        submission_status=config.submission.status.value,
        ruleset=config.submission.ruleset,
        benchmark=config.benchmark.name,
        benchmark_kind=config.benchmark.kind.value,
        mlperf_name=config.benchmark.mlperf_name,
        model=config.benchmark.model,
        framework=None if rehearsal or version is None else f"MXNet {version}",
        device=plan.device.value,
        hosts={host.name: host.slots for host in plan.placement.hosts},
        num_nodes=plan.placement.num_nodes,
        num_accelerators=plan.num_accelerators,
        num_ranks=plan.num_ranks,
        global_batch_size=plan.global_batch_size,
        target_accuracy=plan.schedule.target_accuracy,
        train_samples=config.data.num_train,
        eval_samples=config.data.num_val,
        data_name=config.data.name,
        data_path=plan.data.path,
        data_path_given=plan.data.path_given,
        mean_image_bytes=mean_image_bytes(config.data),
        cache=config.cache.value,
        environment=storable_environment(plan.environment),
        notes=list(plan.notes),
        provenance=provenance,
        reproduces=reproduces,
        sweep=sweep,
        database=storable_url(resolve_url(config.db.url)),
    )


def run_stages(
    plan: Plan,
    folder: RunFolder,
    identity: RunSetFile,
    *,
    listener: Listener,
    stop: StopRequest,
    differences: Sequence[str] = (),
) -> SeriesResult:
    """Run the stages that are not done, in order, and say how the run set stands."""
    keeper = Keeper(folder, plan.config.db.url, listener)
    context = StageContext(plan, folder, identity, listener, stop, keeper)
    reports: dict[Stage, StageReport] = {}
    fault: str | None = None
    with stop.installed():
        keeper.keep()
        try:
            for number, stage in enumerate(plan.stages, start=1):
                if stop.requested:
                    break
                reports[stage] = _run_stage(context, stage, number)
        except RunFailedError as error:
            fault = str(error)
        except KeyboardInterrupt:
            stop.requested = True
        if fault is None and not stop.requested:
            official = official_verdict(folder, identity)
        else:
            official = Official(verdict=None, ruleset=identity.ruleset, reason="the run set is not finished")
        keeper.keep(last=True)
        row = _row(keeper, listener)
        keeper.close()
    return SeriesResult(
        folder=folder,
        identity=identity,
        reports=reports,
        row=row,
        official=official,
        num_missing=_num_missing(context),
        interrupted=stop.requested,
        fault=fault,
        store_fault=keeper.fault,
        differences=tuple(differences),
    )


def _run_stage(context: StageContext, stage: Stage, number: int) -> StageReport:
    runner = load_stage(stage)
    if runner is None:
        report = StageReport(StageState.not_measured, f"this mlbench cannot measure {stage.value}")
    elif runner.is_done(context):
        report = _earlier(context, stage)
        context.listener(StageEnded(stage, report.text, report.state))
        return report
    else:
        context.listener(StageStarted(stage, number, len(context.plan.stages)))
        report = runner.run(context)
    _note(context, stage, report)
    context.listener(StageEnded(stage, report.text, report.state))
    return report


def _earlier(context: StageContext, stage: Stage) -> StageReport:
    """The report of a stage that an earlier call has done; one that failed then is not good now."""
    for item in read_findings(context.folder):
        if item.get("rule") == _rule_of(stage) and item.get("severity") == Severity.error.value:
            return StageReport(StageState.failed, f"in an earlier call: {item.get('text')}")
    return StageReport(StageState.measured, "in an earlier call")


def _rule_of(stage: Stage) -> str:
    return f"STAGE-{stage.value}"


def _note(context: StageContext, stage: Stage, report: StageReport) -> None:
    """A stage that measured nothing leaves a finding, so that no reader takes silence for health."""
    rule = _rule_of(stage)
    try:
        if report.state is StageState.measured:
            drop_findings(context.folder, [rule])
            return
        severity = Severity.error if report.state is StageState.failed else Severity.note
        put_finding(context.folder, rule, severity, f"{report.state.value.replace('_', ' ')}: {report.text}")
    except OSError as error:
        raise RunFailedError(f"{context.folder.findings}: cannot be written ({error.strerror})") from error
    except InputError as error:
        context.listener(Said(str(error), warning=True))


def _row(keeper: Keeper, listener: Listener) -> RunSet | None:
    try:
        return keeper.read()
    except MlbenchError as error:
        listener(Said(f"the run set cannot be read back: {error}", warning=True))
        return None


def _num_missing(context: StageContext) -> int:
    if Stage.train not in context.plan.stages:
        return 0
    attempts = attempts_of(context.folder)
    return len(missing_slots(attempts, repeats=context.identity.repeats, warmup_runs=context.identity.warmup_runs))
