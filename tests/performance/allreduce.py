"""All-reduce: our MPI backend against a bare mpi4py loop, and Horovod over MPI against plain MPI."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from mlbench.choices import AllReduceBackend
from mlbench.launch.base import Launch, Launcher
from mlbench.plan.types import Plan
from tests.performance.command import PEERS, json_of, python, run_command
from tests.performance.context import Context, has_mpi, has_training
from tests.performance.harness import Experiment, Goal, Metrics, PeerError, Quantity, Ratio, Sample

MIN_BYTES, MAX_BYTES = 1 << 16, 1 << 26
SHOWN = (1 << 16, 1 << 20, 1 << 23, 1 << 26)
HOROVOD_SHOWN = (1 << 20, 1 << 22, 1 << 24, 1 << 26)


def experiments(context: Context) -> Iterator[Experiment]:
    """One: two ranks on this machine, the same mpirun for all."""
    missing = []
    if not has_mpi():
        missing.append("Open MPI and mpi4py (apt-get install openmpi-bin libopenmpi-dev, pip install mpi4py)")
    if not has_training():
        missing.append("MXNet and Horovod (make run builds them)")
    if missing:
        yield Experiment(name="allreduce", about="", contestants={}, ratios=[], missing=missing)
        return
    ratios = [
        _ratio("our MPI / bare mpi4py", "mpi", "bare", size, Goal(bound=0.95, at_least=True)) for size in SHOWN
    ] + [
        _ratio("Horovod over MPI / plain MPI", "horovod", "bare", size, Goal(bound=0.85, at_least=True))
        for size in HOROVOD_SHOWN
    ]
    yield Experiment(
        name="allreduce",
        about="bus bandwidth of an in-place float32 sum, 2 ranks, Open MPI, Horovod's cycle 0.1 ms, no fusion",
        contestants={
            "mpi": lambda: _ours(context, AllReduceBackend.mpi),
            "bare": lambda: _bare(context),
            "horovod": lambda: _ours(context, AllReduceBackend.horovod),
        },
        ratios=ratios,
    )


def _ratio(name: str, ours: str, peer: str, size: int, goal: Goal) -> Ratio:
    shown = f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"
    return Ratio(
        name=f"{name}, {shown}",
        unit="GB/s",
        quantity=Quantity.rate,
        ours=(ours, str(size)),
        peer=(peer, str(size)),
        goal=goal,
    )


def _plan(context: Context, backend: AllReduceBackend) -> Plan:
    """As the all-reduce stage launches it, through mpirun."""
    from mlbench.compose import compose
    from mlbench.plan.make import make_plan
    from mlbench.preflight.machine import probe_machine
    from mlbench.runner.stages.allreduce import _plan_for

    overrides = [
        "benchmark=allreduce",
        "gpus=2",
        "launcher.transport=mpi",
        f"benchmark.allreduce.min_bytes={MIN_BYTES}",
        f"benchmark.allreduce.max_bytes={MAX_BYTES}",
        f"benchmark.allreduce.num_iterations={context.sized(5, 20)}",
        f"runs_dir={context.folder}/runs",
    ]
    return _plan_for(make_plan(compose(overrides, None), probe_machine()), backend)


def _launch(context: Context, backend: AllReduceBackend) -> tuple[Plan, Launcher, Launch]:
    from mlbench.launch.factory import Attempt, make_launch, make_launcher
    from mlbench.plan.jobs import allreduce_job_for
    from mlbench.worker.job import dump

    plan = _plan(context, backend)
    folder = context.folder / f"allreduce-{backend.value}"
    folder.mkdir(exist_ok=True)
    job = folder / "job.json"
    job.write_text(
        dump(allreduce_job_for(plan, folder=folder, backend=backend.value, job_id="bench")), encoding="utf-8"
    )
    attempt = Attempt(job=job, rank_log_dir=folder, log=folder / "launcher.log", mark="bench")
    return plan, make_launcher(plan), make_launch(plan, None, attempt)


def _metrics(times_us: dict[int, float], num_ranks: int) -> Metrics:
    """busbw = bytes / time * 2 (n - 1) / n, as nccl-tests defines it."""
    factor = 2 * (num_ranks - 1) / num_ranks / 1e9
    return {str(size): Sample(wall_s=us / 1e6, amount=size * factor) for size, us in times_us.items()}


def _ours(context: Context, backend: AllReduceBackend) -> Metrics:
    plan, launcher, launch = _launch(context, backend)
    result = launch.cwd / "result.json"
    result.unlink(missing_ok=True)
    run_command(launcher.argv(launch), env=launcher.environment(launch), cwd=launch.cwd)
    rows = _rows(result)
    if any(row["num_wrong"] for row in rows):
        raise PeerError(f"{result}: wrong sums")
    return _metrics({int(row["size_bytes"]): float(row["time_us"]) for row in rows}, plan.num_ranks)


def _rows(result: Path) -> list[dict[str, float]]:
    import json

    rows: list[dict[str, float]] = json.loads(result.read_text(encoding="utf-8"))["rows"]
    return rows


def _bare(context: Context) -> Metrics:
    plan, launcher, launch = _launch(context, AllReduceBackend.mpi)
    settings = plan.config.benchmark.allreduce
    numbers = (settings.min_bytes, settings.max_bytes, settings.num_warmup, settings.num_iterations)
    command = tuple(python(str(PEERS / "mpi_loop.py"), *map(str, numbers)))
    bare = dataclasses.replace(launch, command=command)
    done = run_command(launcher.argv(bare), env=launcher.environment(bare), cwd=launch.cwd)
    found = {int(size): value for size, value in json_of(done.output).items() if isinstance(value, float)}
    return _metrics(found, plan.num_ranks)
