"""Does the machine have what the plan asks for: GPUs, hosts, programs, an image that is new enough."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from mlbench.choices import ContainerName, Device, LauncherName, Stage
from mlbench.plan.machine import Machine
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, failed, not_checked, passed
from mlbench.wording import count_of

OLDEST_IMAGE = (21, 5)
"""nvcr.io/nvidia/mxnet:21.05, the first image line with Python 3.8; 20.06 has Python 3.6."""
_NGC_IMAGE = re.compile(r"/nvidia/mxnet[:+](?P<year>\d{2})\.(?P<month>\d{2})-py3")
BYTES_PER_CPU_RANK = 1_000_000_000
"""Memory of a rank that trains ResNet-50 at 32 px on a CPU, measured: 0.9 GB."""

_PROGRAMS = {
    LauncherName.local: ("horovodrun", "install Horovod, which brings it, or use launcher=mpirun"),
    LauncherName.mpirun: ("mpirun", "install Open MPI (Debian: openmpi-bin)"),
    LauncherName.slurm: ("sbatch", "run mlbench on a host of the Slurm cluster (Debian: slurm-client)"),
}


def check_hardware(plan: Plan, machine: Machine) -> Check:
    """The processors that the profile names, against the machine or the hosts that the launcher reaches."""
    launcher = plan.config.launcher.name
    name = "hardware"
    if launcher is LauncherName.rehearsal:
        return not_checked(name, "a rehearsal needs none", required=False)
    if not plan.placement.known and launcher is LauncherName.slurm:
        return not_checked(name, f"{_asked(plan)}; the scheduler gives the hosts", required=False)
    reach = _other_ways(plan)
    if not plan.placement.known:
        return failed(name, f"asked for {_asked(plan)}; here is {_here(machine)}, and no host is named", reach)
    if plan.placement.hosts[0].name != "localhost":
        return not_checked(name, f"{_asked(plan)}; each host is asked before run 1", required=False)
    if plan.device is Device.gpu and len(machine.gpus) < plan.num_ranks:
        return failed(name, f"asked for {_asked(plan)}; here is {_here(machine)}", reach)
    return passed(name, _here(machine))


def check_gpu_model(plan: Plan, machine: Machine) -> Check | None:
    """GPUs of another model than the profile's give results that the profile does not describe."""
    compute = plan.config.hardware.compute
    if plan.device is not Device.gpu or compute is None or compute.accelerator_model is None or not machine.gpus:
        return None
    words = set(re.findall(r"[a-z]+\d+\w*", compute.accelerator_model.lower()))
    other = [
        gpu.name for gpu in machine.gpus if words and not words & set(re.findall(r"[a-z]+\d+\w*", gpu.name.lower()))
    ]
    if not other:
        return passed("gpu model", machine.gpus[0].name, required=False)
    return failed(
        "gpu model",
        f"found {other[0]}, profile {compute.name} describes {compute.accelerator_model}",
        "write a profile of this system into ./conf/hardware",
        required=False,
    )


def check_memory(plan: Plan, machine: Machine) -> Check:
    """Memory for the CPU ranks on this machine."""
    here = sum(host.slots for host in plan.placement.hosts if host.name == "localhost")
    if plan.device is not Device.cpu or not here or machine.memory_bytes is None or Stage.train not in plan.stages:
        return not_checked("memory", "no CPU ranks on this machine", required=False)
    need = here * BYTES_PER_CPU_RANK
    found = f"{machine.memory_bytes / 1e9:.1f} GB for {count_of(here, 'rank')}"
    if need > machine.memory_bytes:
        remedy = f"use fewer ranks, gpus={max(1, machine.memory_bytes // BYTES_PER_CPU_RANK)}"
        return failed("memory", f"{found}, which need about {need / 1e9:.0f} GB", remedy, required=False)
    return passed("memory", found, required=False)


def check_programs(plan: Plan) -> list[Check]:
    """The program of the launcher, of the container engine and of the stages."""
    checks = []
    config = plan.config
    wanted = _PROGRAMS.get(config.launcher.name)
    if wanted is not None:
        checks.append(_program(wanted[0], wanted[1], required=True))
    if config.container.name is not ContainerName.none:
        engine = config.container.name.value
        checks.append(_program(engine, f"install {engine}, or use container=none", required=True))
        checks.append(check_image(plan))
    if Stage.storage in plan.stages:
        checks.append(_program("fio", "install fio; without it storage is not measured", required=False))
    if Stage.allreduce in plan.stages and plan.device is Device.gpu:
        binary = config.benchmark.allreduce.binary
        remedy = "build nccl-tests and name it in benchmark.allreduce.binary; without it Horovod's own path is measured"
        checks.append(_program(binary, remedy, required=False))
    return checks


def check_image(plan: Plan) -> Check:
    """The container image: named, and not one that is known to be too old for the worker."""
    image = plan.container_image
    if image is None:
        return failed("image", "no container image is named", "add container.image=NAME:TAG")
    if is_too_old(image):
        return failed(
            "image",
            f"{image} has Python 3.6, the worker needs 3.8 or newer",
            "use nvcr.io/nvidia/mxnet:21.05-py3 or a later one",
        )
    return passed("image", image)


def is_too_old(image: str) -> bool:
    """An NGC MXNet image, as docker or enroot names it, whose Python cannot run the worker."""
    match = _NGC_IMAGE.search(image.replace("#", "/"))
    return match is not None and (int(match["year"]), int(match["month"])) < OLDEST_IMAGE


def find_program(name: str) -> str | None:
    """A program on PATH, or beside the Python that runs mlbench (an environment that was not activated)."""
    beside = Path(sys.executable).parent / name
    return shutil.which(name) or (str(beside) if beside.is_file() else None)


def _program(name: str, remedy: str, *, required: bool) -> Check:
    path = find_program(name)
    if path is None:
        return failed(name, f"{name} was not found on PATH", remedy, required=required)
    return passed(name, path, required=required)


def _asked(plan: Plan) -> str:
    compute = plan.config.hardware.compute
    nodes = plan.placement.num_nodes
    where = f"on {count_of(nodes, 'node')}"
    if compute is None:
        return f"{count_of(plan.num_ranks, 'CPU rank')} {where}"
    unit = compute.accelerator_model or "CPU rank"
    return f"{plan.num_ranks} x {unit} {where} (profile {compute.name})"


def _here(machine: Machine) -> str:
    cpu = f"{count_of(machine.num_cpus, 'CPU')} ({machine.cpu_model or 'unknown model'})"
    if not machine.gpus:
        return f"{cpu} and no GPU"
    return f"{cpu} and {len(machine.gpus)} x {machine.gpus[0].name}"


def _other_ways(plan: Plan) -> str:
    compute = plan.config.hardware.compute
    profile = f"+hardware={compute.name} " if compute is not None else ""
    return (
        f"see what would run with `mlbench plan {profile}gpus={plan.num_ranks}`, or reach the cluster with "
        f"launcher=mpirun hosts=[HOST:SLOTS,...] or launcher=slurm"
    )
