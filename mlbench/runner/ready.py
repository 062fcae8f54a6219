"""What must be true before anything is launched, and the facts that this brings to light."""

from __future__ import annotations

from dataclasses import dataclass

from mlbench.config import Config, LauncherName, Stage
from mlbench.launch.factory import make_container, make_launcher
from mlbench.launch.rehearsal import fault_named
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, Outcome, require
from mlbench.preflight.checks import check_all
from mlbench.preflight.folders import make_missing_data
from mlbench.preflight.frameworks import Frameworks, probe_frameworks


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A plan that this place can run. `hosts` is host -> fact -> text; `volatile` names facts that change by
    themselves, so that they say nothing about whether two run sets had the same machine."""

    plan: Plan
    hosts: dict[str, dict[str, str]]
    clock_offsets_s: dict[str, float]
    volatile: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What will be missing, and what was made, for the user."""


def plan_here(config: Config, machine: Machine) -> Plan:
    """Plan, and refuse settings of the launcher that contradict. Raises ConfigError."""
    plan = make_plan(config, machine)
    fault_named(config.launcher.rehearsal.fault)
    make_launcher(plan)
    make_container(plan)
    return plan


def make_ready(plan: Plan, machine: Machine) -> Ready:
    """Preflight, and the data set if mlbench makes it itself. Raises PreflightError: nothing was launched."""
    frameworks: list[Frameworks] = []

    def probe(python: str) -> Frameworks:
        frameworks.append(probe_frameworks(python))
        return frameworks[-1]

    checks = check_all(plan, machine, probe)
    require(checks)
    notes = [f"{check.name}: {check.found}; {check.remedy}" for check in checks if _is_loss(check)]
    reads_data = plan.config.launcher.name is not LauncherName.rehearsal and Stage.train in plan.stages
    if reads_data and make_missing_data(plan):
        notes.append(f"the data set {plan.config.data.name} was made in {plan.data.path}")
    facts = machine_facts(machine)
    if frameworks:
        facts |= framework_facts(frameworks[0])
    return Ready(plan=plan, hosts={machine.hostname: facts}, clock_offsets_s={}, notes=tuple(notes))


def _is_loss(check: Check) -> bool:
    """A check that lets the run set start, but without a part of what was asked."""
    return check.outcome is Outcome.failed and not check.required


def framework_facts(seen: Frameworks) -> dict[str, str]:
    """What the ranks' Python has, as it stands in hosts.json."""
    facts = {
        "rank_python": seen.python,
        "numpy": seen.numpy,
        "mxnet": seen.mxnet,
        "horovod": seen.horovod,
        "horovod_built": None
        if seen.built is None
        else ", ".join(name for name, built in sorted(seen.built.items()) if built),
    }
    return {name: value for name, value in facts.items() if value is not None}


def machine_facts(machine: Machine) -> dict[str, str]:
    """The facts of this machine as they stand in hosts.json."""
    facts = {
        "system_name": machine.system_name,
        "cpu_model": machine.cpu_model,
        "num_sockets": machine.num_sockets,
        "num_cores": machine.num_cores,
        "num_cpus": machine.num_cpus,
        "memory_bytes": machine.memory_bytes,
        "num_gpus": len(machine.gpus),
        "gpus": ", ".join(gpu.name for gpu in machine.gpus) or None,
        "operating_system": machine.operating_system,
        "kernel": machine.kernel,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}
