"""The all-reduce stage: is the fabric healthy? One table a backend, checked in the same run.

`backend=auto` takes nccl-tests where GPUs and its binary are, else Horovod's own path, which is what training uses;
on CPUs with MPI installed, plain MPI is measured beside it as the ceiling that Horovod can reach.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from pathlib import Path

from mlbench.analyse.plausibility import allreduce_doubts
from mlbench.check.finding import Severity
from mlbench.choices import AllReduceBackend, Device, LauncherName, Transport
from mlbench.collect.allreduce import AllReduceTable, dump_tables, load_worker_result
from mlbench.collect.nccl import parse_nccl_tests
from mlbench.collect.runfiles import write_json
from mlbench.errors import InputError, RunFailedError
from mlbench.launch.base import Launch
from mlbench.launch.factory import Attempt, make_container, make_launch
from mlbench.launch.supervisor import EndedBy, Outcome
from mlbench.plan.jobs import allreduce_job_for
from mlbench.plan.types import Plan
from mlbench.runner.context import StageContext, StageReport
from mlbench.runner.events import Said, StageState
from mlbench.runner.findings import drop_findings, put_finding
from mlbench.runner.secrets import write_job
from mlbench.runner.stages.folders import new_folder
from mlbench.runner.stages.launching import run_to_end
from mlbench.runner.tail import last_lines

TIME_LIMIT_S = 1800.0
_TUNED_CYCLE_MS = "0.1"
"""Horovod's default of 1 ms is longer than a small all-reduce takes; the published DGX A100 runs set 0.1."""
_RULES = ("ALLREDUCE-LINK", "ALLREDUCE-SLOW", "ALLREDUCE-FAILED")


class AllReduceStage:
    """Measures every chosen backend; a backend that fails is a finding, and the run set goes on."""

    def is_done(self, context: StageContext) -> bool:
        return context.folder.allreduce.is_file()

    def run(self, context: StageContext) -> StageReport:
        """Raises RunFailedError: the disk does not take the files, or a process could not be ended."""
        reason = _not_measurable(context.plan)
        if reason is not None:
            return StageReport(StageState.not_measured, reason)
        drop_findings(context.folder, _RULES)
        tables = []
        for backend in choose_backends(context.plan):
            if context.stop.requested:
                break
            context.listener(Said(f"all-reduce: {backend.value}, {context.plan.num_ranks} ranks"))
            tables.append(_measure(context, backend))
        if not tables:
            return StageReport(StageState.not_measured, "stopped by the user before anything was measured")
        try:
            write_json(context.folder.allreduce, dump_tables(tables))
        except OSError as error:
            raise RunFailedError(f"{context.folder.allreduce}: cannot be written ({error.strerror})") from error
        _judge(context, tables)
        context.keeper.keep()
        return _report(tables)


def choose_backends(plan: Plan) -> tuple[AllReduceBackend, ...]:
    """What is measured, the backend that training uses first."""
    asked = plan.config.benchmark.allreduce.backend
    if asked is not AllReduceBackend.auto:
        return (asked,)
    if plan.device is Device.gpu:
        has_binary = shutil.which(plan.config.benchmark.allreduce.binary) is not None
        return (AllReduceBackend.nccl_tests if has_binary else AllReduceBackend.horovod,)
    with_mpi = shutil.which("mpirun") is not None and importlib.util.find_spec("mpi4py") is not None
    return (AllReduceBackend.horovod, AllReduceBackend.mpi) if with_mpi else (AllReduceBackend.horovod,)


def _not_measurable(plan: Plan) -> str | None:
    if plan.config.launcher.name is LauncherName.rehearsal:
        return "a rehearsal touches no fabric"
    if plan.num_ranks < 2:
        return f"{plan.num_ranks} rank moves nothing over the fabric; gpus=2 or more"
    return None


def _measure(context: StageContext, backend: AllReduceBackend) -> AllReduceTable:
    folder = new_folder(context.folder.path / "allreduce", backend.value)
    mark = f"{context.folder.run_set}.allreduce.{folder.name}"
    plan = _plan_for(context.plan, backend)
    try:
        job = allreduce_job_for(plan, folder=folder, backend=backend.value, job_id=mark)
        write_job(folder / "job.json", job)
    except OSError as error:
        raise RunFailedError(f"{folder}: cannot be written ({error.strerror})") from error
    launch = dataclasses.replace(
        make_launch(
            plan,
            make_container(plan),
            Attempt(job=folder / "job.json", rank_log_dir=folder, log=folder / "launcher.log", mark=mark),
        ),
        time_limit_s=TIME_LIMIT_S,
    )
    if backend is AllReduceBackend.nccl_tests:
        launch = _nccl_launch(plan, launch)
    return _read(plan, backend, folder, run_to_end(context, plan, launch))


def _plan_for(plan: Plan, backend: AllReduceBackend) -> Plan:
    """Rounds must not be glued together, and plain MPI and nccl-tests are started by mpirun."""
    config = plan.config
    compute = config.hardware.compute
    environment = {
        **plan.environment,
        # Training on a CPU waits longer between its cycles; alone, the all-reduce has the core for itself.
        "HOROVOD_CYCLE_TIME": _TUNED_CYCLE_MS,
        **({} if compute is None else compute.environment),
        "HOROVOD_FUSION_THRESHOLD": "0",
    }
    if backend is not AllReduceBackend.horovod and config.launcher.name is LauncherName.local:
        config = dataclasses.replace(config, launcher=dataclasses.replace(config.launcher, transport=Transport.mpi))
    return dataclasses.replace(plan, environment=environment, config=config)


def nccl_command(plan: Plan) -> tuple[str, ...]:
    """nccl-tests on one GPU a rank, with its own check of values."""
    settings = plan.config.benchmark.allreduce
    return (
        settings.binary,
        *("-b", str(settings.min_bytes), "-e", str(settings.max_bytes), "-f", "2", "-g", "1"),
        *("-w", str(settings.num_warmup), "-n", str(settings.num_iterations), "-c", "1"),
    )


def _nccl_launch(plan: Plan, launch: Launch) -> Launch:
    bare = dataclasses.replace(launch, command=nccl_command(plan))
    container = make_container(plan)
    return bare if container is None else dataclasses.replace(bare, command=container.wrap(bare))


def _read(plan: Plan, backend: AllReduceBackend, folder: Path, outcome: Outcome) -> AllReduceTable:
    """The table, or an empty one that says why there is none."""
    try:
        if backend is AllReduceBackend.nccl_tests:
            text = (folder / "launcher.log").read_text(encoding="utf-8", errors="replace")
            table = parse_nccl_tests(text, num_ranks=plan.num_ranks)
        else:
            table = load_worker_result(folder / "result.json")
    except (InputError, OSError) as error:
        return _failed(plan, backend, _why(folder, outcome) or str(error))
    failure = _why(folder, outcome) or table.failure
    return dataclasses.replace(table, failure=failure)


def _why(folder: Path, outcome: Outcome) -> str | None:
    if outcome.succeeded:
        return None
    if outcome.ended_by is EndedBy.interrupted:
        return "stopped by the user"
    logs = [path for path in (*sorted(folder.glob("rank_*.log")), folder / "launcher.log") if path.is_file()]
    said = next((lines[-1].strip() for path in logs if (lines := last_lines(path, 3))), "nothing was said")
    how = f"status {outcome.exit_status}" if outcome.ended_by is EndedBy.exited else outcome.ended_by.value
    return f"ended with {how}: {said[:300]} (logs in {folder})"


def _failed(plan: Plan, backend: AllReduceBackend, reason: str) -> AllReduceTable:
    return AllReduceTable(
        backend=backend.value,
        transport="unknown",
        num_ranks=plan.num_ranks,
        hosts=tuple(host.name for host in plan.placement.hosts),
        rows=(),
        failure=reason,
    )


def _judge(context: StageContext, tables: list[AllReduceTable]) -> None:
    compute = context.plan.config.hardware.compute
    several = context.plan.placement.num_nodes > 1
    link = None
    if compute is not None:
        link = compute.compute_link_gb_per_s if several else compute.intra_node_link_gb_per_s
    for table in tables:
        name = f"{table.backend} over {table.transport}"
        if table.failure is not None:
            put_finding(context.folder, "ALLREDUCE-FAILED", Severity.error, f"{name}: {table.failure}", file=name)
        elif table.peak is not None:
            for doubt in allreduce_doubts(table.peak.busbw_gb_per_s, link):
                text = f"{name}: {doubt.found}, expected {doubt.expected}; {doubt.remedy}"
                put_finding(context.folder, doubt.rule, Severity.warning, text, file=name)


def _report(tables: list[AllReduceTable]) -> StageReport:
    texts = []
    for table in tables:
        peak, average = table.peak, table.average_busbw_gb_per_s
        name = f"{table.backend} over {table.transport}, {table.num_ranks} ranks"
        if table.failure is not None or peak is None or average is None:
            texts.append(f"{name}: failed: {table.failure}")
        else:
            texts.append(
                f"{name}: peak busbw {peak.busbw_gb_per_s:.2f} GB/s at {peak.size_bytes / 2**20:g} MiB, "
                f"average {average:.2f} GB/s over all sizes"
            )
    good = tables[0].failure is None
    return StageReport(StageState.measured if good else StageState.failed, "; ".join(texts))
