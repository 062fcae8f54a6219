"""From the plan to the worker's job: one for each attempt, one for the all-reduce stage."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mlbench.choices import BenchmarkKind
from mlbench.config import Config
from mlbench.plan.types import Plan
from mlbench.worker.job import SCHEMA_VERSION, AllReduce, Files, Job, Submission


class AttemptFolder(Protocol):
    """The part of `mlbench.collect.runfolder.AttemptFolder` that a job needs."""

    @property
    def path(self) -> Path: ...

    @property
    def mllog(self) -> Path: ...


def job_for(plan: Plan, *, folder: AttemptFolder, seed: int, cache_clear: bool, job_id: str) -> Job:
    """The job of one attempt of the train stage: training, or the throughput benchmark.

    Args:
        folder: where the attempt's files go.
        cache_clear: what the cache helper proved on every host.
    """
    throughput = plan.config.benchmark.kind is BenchmarkKind.throughput
    return Job(
        schema_version=SCHEMA_VERSION,
        kind="throughput" if throughput else "train",
        job_id=job_id,
        num_ranks=plan.num_ranks,
        device=plan.device.value,
        seed=seed,
        cache_clear=cache_clear,
        threads_per_rank=plan.threads_per_rank,
        environment=dict(plan.environment),
        files=_files(folder.path, folder.mllog),
        submission=submission_for(plan),
        model=plan.model,
        data=plan.data.worker,
        optimizer=plan.optimizer,
        schedule=plan.schedule,
        allreduce=None,
    )


def allreduce_job_for(plan: Plan, *, folder: Path, backend: str, job_id: str, seed: int = 0) -> Job:
    """The job of the all-reduce stage. `backend` is `horovod` or `mpi`; the table goes to folder/result.json."""
    settings = plan.config.benchmark.allreduce
    return Job(
        schema_version=SCHEMA_VERSION,
        kind="allreduce",
        job_id=job_id,
        num_ranks=plan.num_ranks,
        device=plan.device.value,
        seed=seed,
        cache_clear=False,
        threads_per_rank=plan.threads_per_rank,
        environment=dict(plan.environment),
        files=_files(folder, folder / "result.txt"),
        submission=None,
        model=None,
        data=None,
        optimizer=None,
        schedule=None,
        allreduce=AllReduce(
            backend=backend,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            num_warmup=settings.num_warmup,
            num_iterations=settings.num_iterations,
        ),
    )


def submission_for(plan: Plan) -> Submission:
    """What the first records of every log say."""
    submission = plan.config.submission
    return Submission(
        benchmark=logged_benchmark(plan.config),
        org=submission.org,
        division=submission.division.value,
        status=submission.status.value,
        platform=plan.platform,
    )


def logged_benchmark(config: Config) -> str:
    """MLPerf's name only for MLPerf's model; another model is logged by its own name and never scored as MLPerf."""
    benchmark = config.benchmark
    if benchmark.mlperf_name is not None and benchmark.model == "resnet50":
        return benchmark.mlperf_name
    return benchmark.name if benchmark.model == "resnet50" else benchmark.model


def _files(folder: Path, mllog: Path) -> Files:
    return Files(mllog=str(mllog), rank_log_dir=str(folder), result=str(folder / "result.json"))
