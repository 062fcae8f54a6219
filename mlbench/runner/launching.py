"""From the plan to something that can be started: job, command of each rank, launcher."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlbench.choices import LauncherName
from mlbench.collect.runfolder import AttemptFolder, RunFolder
from mlbench.launch import factory
from mlbench.launch.base import Launch, Launcher
from mlbench.launch.factory import make_container, make_launcher
from mlbench.launch.rehearsal import fault_of, rehearsal_command
from mlbench.plan.jobs import job_for
from mlbench.plan.types import Plan
from mlbench.runner.secrets import write_job


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An attempt that is ready to start."""

    folder: AttemptFolder
    launcher: Launcher
    launch: Launch
    seed: int
    cache_clear: bool


def job_mark(folder: RunFolder, attempt: AttemptFolder) -> str:
    """The job's id, and its mark in the environment of every process of it."""
    return f"{folder.run_set}.{'warmup' if attempt.warmup else 'run'}_{attempt.index}.{attempt.attempt}"


def prepare(plan: Plan, run_folder: RunFolder, folder: AttemptFolder, *, seed: int, cache_clear: bool) -> Prepared:
    """Write job.json and make the launch. Raises OSError."""
    mark = job_mark(run_folder, folder)
    job = job_for(plan, folder=folder, seed=seed, cache_clear=cache_clear, job_id=mark)
    write_job(folder.job, job)
    launcher, launch = make_launch(plan, folder, mark)
    return Prepared(folder=folder, launcher=launcher, launch=launch, seed=seed, cache_clear=cache_clear)


def make_launch(plan: Plan, folder: AttemptFolder, mark: str) -> tuple[Launcher, Launch]:
    """The launcher of the plan, and what it is to start for the attempt in `folder`."""
    launcher = make_launcher(plan)
    attempt = factory.Attempt(
        job=folder.job,
        rank_log_dir=folder.path,
        log=folder.launcher_log,
        mark=mark,
        telemetry=plan.config.telemetry,
    )
    launch = factory.make_launch(plan, make_container(plan), attempt)
    if plan.config.launcher.name is not LauncherName.rehearsal:
        return launcher, launch
    settings = plan.config.launcher.rehearsal
    fault = fault_of(settings, index=folder.index, attempt=folder.attempt, warmup=folder.warmup)
    return launcher, replace(launch, command=rehearsal_command(folder.job, settings, fault))


def launcher_afterwards(plan: Plan, folder: AttemptFolder, mark: str) -> list[list[str]]:
    """Commands that end and prove what a launch left on other hosts."""
    launcher, launch = make_launch(plan, folder, mark)
    return launcher.afterwards(launch)
