"""What must be true before anything is launched, and the facts that this brings to light."""

from __future__ import annotations

from dataclasses import dataclass

from mlbench.config import Config, LauncherName
from mlbench.launch.factory import make_container, make_launcher
from mlbench.launch.rehearsal import fault_named
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A plan that this place can run. `hosts` is host -> fact -> text; `volatile` names facts that change by
    themselves, so that they say nothing about whether two run sets had the same machine."""

    plan: Plan
    hosts: dict[str, dict[str, str]]
    clock_offsets_s: dict[str, float]
    volatile: frozenset[str] = frozenset()


def plan_here(config: Config, machine: Machine) -> Plan:
    """Plan, and refuse settings of the launcher that contradict. Raises ConfigError."""
    plan = make_plan(config, machine)
    fault_named(config.launcher.rehearsal.fault)
    make_launcher(plan)
    make_container(plan)
    return plan


def make_ready(plan: Plan, machine: Machine) -> Ready:
    """Preflight. Raises PreflightError: nothing was launched."""
    if plan.config.launcher.name is LauncherName.rehearsal:
        # Nothing of the data or of the cluster is touched, so nothing of it is asked for.
        return Ready(plan=plan, hosts={machine.hostname: machine_facts(machine)}, clock_offsets_s={})
    raise NotImplementedError


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
