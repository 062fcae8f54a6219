"""From the plan to a launcher, and from an attempt to a launch: reads the settings once, so that argv can be pure."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mlbench.choices import Binding, ContainerName, Device, LauncherName, Transport
from mlbench.config import Config
from mlbench.errors import ConfigError
from mlbench.launch import environment
from mlbench.launch.base import Launch, Launcher
from mlbench.launch.command import PACKAGE_ROOT, container_worker_command, worker_command
from mlbench.launch.containers import (
    MPI_ENVIRONMENT,
    Apptainer,
    Common,
    Container,
    Docker,
    Enroot,
    Image,
    check_enroot_image,
    check_image,
    worker_mounts,
)
from mlbench.launch.local import LOCALHOST, LocalLauncher
from mlbench.launch.mpirun import MpirunLauncher, remote_agent, running_inside_slurm
from mlbench.launch.rehearsal import RehearsalLauncher
from mlbench.launch.slurm import SlurmLauncher
from mlbench.plan.types import Host, Plan

_INFINIBAND = "/dev/infiniband"


def worker_python(config: Config) -> str:
    """The Python of the worker on every host."""
    return config.launcher.python or sys.executable


def reads_s3(plan: Plan) -> bool:
    """The data set lies in a bucket, so ranks need credentials."""
    return plan.data.path.startswith("s3://")


def make_launcher(plan: Plan, own: Mapping[str, str] | None = None) -> Launcher:
    """The launcher of `launcher=`. `own` is mlbench's environment. Raises ConfigError for settings that contradict."""
    config = plan.config
    own = os.environ if own is None else own
    transport = config.launcher.transport
    match config.launcher.name:
        case LauncherName.rehearsal:
            return RehearsalLauncher()
        case LauncherName.local if transport is not Transport.mpi:
            return LocalLauncher(
                horovodrun=_beside(worker_python(config), "horovodrun"),
                own=environment.inherited(own, credentials=reads_s3(plan)),
                extra_args=tuple(config.launcher.extra_args),
            )
        case LauncherName.local:
            return replace(_mpirun(plan, own, inside_slurm=False), name="local", this_host=LOCALHOST)
        case LauncherName.mpirun:
            _refuse_gloo(transport, "mpirun")
            return _mpirun(plan, own, inside_slurm=False)
        case LauncherName.slurm:
            _refuse_gloo(transport, "slurm")
            return _slurm(plan, own)


def _refuse_gloo(transport: Transport, name: str) -> None:
    if transport is Transport.gloo:
        raise ConfigError(
            f"launcher.transport=gloo: launcher={name} starts ranks through Open MPI and uses its transport; "
            f"leave it at auto, or use launcher=local"
        )


def _mpirun(plan: Plan, own: Mapping[str, str], *, inside_slurm: bool) -> MpirunLauncher:
    config = plan.config
    compute = config.hardware.compute
    return MpirunLauncher(
        mpirun=shutil.which("mpirun", path=own.get("PATH")) or "mpirun",
        own=environment.inherited(own, scheduler=inside_slurm, credentials=reads_s3(plan)),
        python=worker_python(config),
        agent=remote_agent(config.launcher.rsh_agent, config.launcher.ssh_timeout_s),
        binding=compute.binding if compute is not None else Binding.none,
        network_interface=compute.network_interface if compute is not None else None,
        yield_when_idle=plan.device is Device.cpu,
        extra_args=tuple(config.launcher.extra_args),
        hosts_from_scheduler=inside_slurm,
        this_host=socket.gethostname(),
    )


def _slurm(plan: Plan, own: Mapping[str, str]) -> Launcher:
    settings = plan.config.launcher
    if running_inside_slurm(own):
        return replace(_mpirun(plan, own, inside_slurm=True), name="slurm")
    # On the job's nodes mpirun is found by PATH, and the allocation says which hosts there are.
    mpirun = replace(_mpirun(plan, own, inside_slurm=True), mpirun="mpirun")
    return SlurmLauncher(
        mpirun=mpirun,
        orchestrator_python=sys.executable,
        package_root=PACKAGE_ROOT,
        hosts_known=plan.placement.known,
        partition=settings.partition,
        account=settings.account,
        gres=settings.gres,
        exclusive=settings.exclusive,
    )


def _beside(python: str, program: str) -> str:
    """The program installed with this Python, so that both see the same packages."""
    beside = Path(python).parent / program
    return str(beside) if beside.is_file() else (shutil.which(program) or program)


def make_container(plan: Plan) -> Container | None:
    """The container of `container=`, None for `none`. Raises ConfigError: no image named, or one that is too old."""
    settings = plan.config.container
    if settings.name is ContainerName.none:
        return None
    name = plan.container_image
    if name is None:
        raise ConfigError(f"container={settings.name.value}: no image is named; say container.image=...")
    image = Image(name=name, digest=settings.digest)
    check_image(image)
    found = importlib.util.find_spec("mlperf_logging")
    common = Common(
        image=image,
        gpus=plan.device is Device.gpu,
        user=f"{os.getuid()}:{os.getgid()}",
        mounts=worker_mounts(Path(found.origin).parent if found is not None and found.origin else None),
        devices=(_INFINIBAND,) if _uses_infiniband(plan) else (),
    )
    match settings.name:
        case ContainerName.docker:
            return Docker(common=common)
        case ContainerName.apptainer:
            return Apptainer(common=common)
        case ContainerName.enroot:
            check_enroot_image(image)
            return Enroot(common=common)


def _uses_infiniband(plan: Plan) -> bool:
    compute = plan.config.hardware.compute
    return compute is not None and "infiniband" in (compute.interconnect or "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one launch needs to know of its attempt. `rank_log_dir` and `log` lie in the attempt's folder."""

    job: Path
    rank_log_dir: Path
    log: Path
    mark: str
    telemetry: bool = False


def make_launch(
    plan: Plan, container: Container | None, attempt: Attempt, *, environment: Mapping[str, str] | None = None
) -> Launch:
    """The training worker on all ranks. `environment` replaces the plan's."""
    variables = dict(plan.environment if environment is None else environment)
    hosts = plan.placement.hosts
    if plan.config.launcher.name is LauncherName.local:
        hosts = (Host(name=LOCALHOST, slots=plan.num_ranks),)
    if container is None:
        command = worker_command(
            worker_python(plan.config), attempt.job, attempt.rank_log_dir, telemetry=attempt.telemetry
        )
        mounts: tuple[tuple[Path, Path, bool], ...] = ()
    else:
        command = container_worker_command(attempt.job, attempt.rank_log_dir, telemetry=attempt.telemetry)
        mounts = container_mounts(plan)
        variables = {**MPI_ENVIRONMENT, **variables}
    launch = Launch(
        command=command,
        num_ranks=plan.num_ranks,
        hosts=hosts,
        environment=variables,
        mark=attempt.mark,
        cwd=attempt.rank_log_dir,
        log=attempt.log,
        time_limit_s=plan.config.limits.max_minutes * 60,
        mounts=mounts,
    )
    return launch if container is None else replace(launch, command=container.wrap(launch))


def container_mounts(plan: Plan) -> tuple[tuple[Path, Path, bool], ...]:
    """Data (read-only, unless it is in S3) and the runs folder, at their own paths."""
    mounts: list[tuple[Path, Path, bool]] = []
    if not plan.data.path.startswith("s3://"):
        mounts.append((Path(plan.data.path), Path(plan.data.path), True))
    return (*mounts, (plan.runs_dir, plan.runs_dir, False))
