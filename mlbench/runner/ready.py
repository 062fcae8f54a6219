"""What must be true before anything is launched, and the facts that this brings to light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlbench.choices import LauncherName, Stage
from mlbench.config import Config
from mlbench.launch.factory import make_container, make_launcher
from mlbench.launch.reach import prove_plan
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, Outcome, require
from mlbench.preflight.checks import check_all
from mlbench.preflight.folders import make_missing_data
from mlbench.preflight.frameworks import Frameworks, probe_frameworks

VOLATILE = frozenset({"nics"})
"""Host facts that change by themselves: containers and virtual machines make and drop network interfaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A plan that this place can run. `hosts` is host -> fact -> text; `volatile` names facts that change by
    themselves, so that they say nothing about whether two run sets had the same machine."""

    plan: Plan
    hosts: dict[str, dict[str, str]]
    clock_offsets_s: dict[str, float]
    volatile: frozenset[str] = VOLATILE
    notes: tuple[str, ...] = ()
    """What will be missing, and what was made, for the user."""


def plan_here(config: Config, machine: Machine) -> Plan:
    """Plan, and refuse settings of the launcher that contradict. Raises ConfigError."""
    plan = make_plan(config, machine)
    make_launcher(plan)
    make_container(plan)
    return plan


def make_ready(plan: Plan, machine: Machine) -> Ready:
    """Preflight here and on every host, and the data set if mlbench makes it itself.

    Raises PreflightError: nothing was launched."""
    frameworks: list[Frameworks] = []

    def probe(python: str) -> Frameworks:
        frameworks.append(probe_frameworks(python))
        return frameworks[-1]

    checks = check_all(plan, machine, probe)
    require(checks)
    here = machine_facts(machine) | (framework_facts(frameworks[0]) if frameworks else {})
    if plan.config.launcher.name is LauncherName.rehearsal:
        # Nothing of the data or of the cluster is touched, so nothing of it is asked for.
        return Ready(plan=plan, hosts={machine.hostname: here}, clock_offsets_s={}, notes=_losses(checks))
    notes: tuple[str, ...] = ()
    if Stage.train in plan.stages and make_missing_data(plan):
        notes = (f"the data set {plan.config.data.name} was made in {plan.data.path}",)
    report = prove_plan(plan, make_container(plan), need_frameworks=not frameworks and Stage.train in plan.stages)
    require(report.checks)
    hosts = {host: {**facts, **_versions(report.checks, host)} for host, facts in report.facts.items()}
    if machine.hostname in hosts or plan.config.launcher.name is LauncherName.local:
        hosts[machine.hostname] = hosts.get(machine.hostname, {}) | here
    return Ready(
        plan=plan,
        hosts=hosts,
        clock_offsets_s=report.clock_offsets_s,
        notes=(*notes, *_losses([*checks, *report.checks])),
    )


def _losses(checks: Sequence[Check]) -> tuple[str, ...]:
    return tuple(f"{check.name}: {check.found}; {check.remedy}" for check in checks if _is_loss(check))


def _versions(checks: Sequence[Check], host: str) -> dict[str, str]:
    """What the frameworks' checks found on a host, as facts."""
    ahead = f"{host}: "
    return {
        check.name: check.found.removeprefix(ahead)
        for check in checks
        if check.name in ("mxnet", "horovod") and check.found.startswith(ahead)
    }


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
