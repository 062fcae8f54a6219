"""All checks on this machine before anything is launched. Other hosts are asked by `mlbench.preflight.hosts`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mlbench.choices import AllReduceBackend, ContainerName, LauncherName, Stage
from mlbench.plan.machine import Machine
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, not_checked
from mlbench.preflight.folders import check_data, check_runs_dir
from mlbench.preflight.frameworks import Frameworks, judge_frameworks, needs_dali, probe_frameworks
from mlbench.preflight.hardware import check_gpu_model, check_hardware, check_memory, check_programs

Probe = Callable[[str], Frameworks]


def check_all(plan: Plan, machine: Machine, probe: Probe = probe_frameworks) -> list[Check]:
    """Every check, the cheap ones first; nothing is launched or changed but a probe file in the runs folder.

    Pass the list to `mlbench.preflight.check.require` to refuse a run that cannot work.
    """
    checks = [check_hardware(plan, machine)]
    model = check_gpu_model(plan, machine)
    if model is not None:
        checks.append(model)
    checks += [check_memory(plan, machine), check_runs_dir(plan.runs_dir), check_data(plan), *check_programs(plan)]
    return [*checks, *check_frameworks(plan, probe)]


def check_frameworks(plan: Plan, probe: Probe = probe_frameworks) -> list[Check]:
    """MXNet and Horovod of the ranks on this machine, where a stage needs them."""
    config = plan.config
    needed = Stage.train in plan.stages or (
        Stage.allreduce in plan.stages and config.benchmark.allreduce.backend is not AllReduceBackend.mpi
    )
    if config.launcher.name is LauncherName.rehearsal or not needed:
        return [not_checked("mxnet", "not needed by this plan", required=False)]
    if config.container.name is not ContainerName.none:
        return [not_checked("mxnet", "the image is asked before run 1", required=False)]
    if plan.placement.hosts[0].name != "localhost":
        return [not_checked("mxnet", "each host is asked before run 1", required=False)]
    return judge_frameworks(
        probe(config.launcher.python or sys.executable),
        plan.device,
        transport=config.launcher.transport,
        needs_dali=needs_dali(plan),
    )
