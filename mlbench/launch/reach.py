"""How the hosts of a plan are reached, by the same way that its launcher takes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlbench.choices import LauncherName
from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.command import CONTAINER_ISLAND, CONTAINER_PYTHON, ISLAND
from mlbench.launch.containers import Container
from mlbench.launch.factory import container_mounts, worker_python
from mlbench.launch.mpirun import is_this_host, remote_agent, running_inside_slurm
from mlbench.plan.types import Plan
from mlbench.preflight.check import failed, not_checked, passed
from mlbench.preflight.hosts import HostsReport, Wrap, prove_hosts
from mlbench.preflight.reach import Conversation, Reach, run_everywhere

_PROBE_MARK = "probe"
_DIGEST_LIMIT_S = 60.0


def make_reaches(plan: Plan, own: Mapping[str, str] | None = None) -> tuple[Reach, ...]:
    """One for each host; under Slurm, which gives the hosts, one for all of them together."""
    settings = plan.config.launcher
    if settings.name is LauncherName.slurm:
        return (_through_slurm(plan, os.environ if own is None else own),)
    if settings.name is not LauncherName.mpirun:
        return (Reach(name=socket.gethostname()),)
    agent = remote_agent(settings.rsh_agent, settings.ssh_timeout_s)
    here = socket.gethostname()
    return tuple(
        Reach(name=host.name)
        if is_this_host(host.name, here)
        else Reach(name=host.name, prefix=(*agent, host.name), one_word=True)
        for host in plan.placement.hosts
    )


def _through_slurm(plan: Plan, own: Mapping[str, str]) -> Reach:
    settings = plan.config.launcher
    nodes = plan.placement.num_nodes
    words = ["srun", "--quiet", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    if running_inside_slurm(own):
        words.append("--overlap")
    else:
        words += ["--job-name=mlbench-preflight", "--time=10"]
        if plan.placement.known:
            words.append(f"--nodelist={','.join(host.name for host in plan.placement.hosts)}")
        given = {"partition": settings.partition, "account": settings.account, "gres": settings.gres}
        words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    return Reach(name="slurm", prefix=tuple(words), num_hosts=nodes, takes_input=False, names_itself=True)


def prove_plan(plan: Plan, container: Container | None, *, need_frameworks: bool) -> HostsReport:
    """Prove every host of the plan, by the launcher's own way and inside its container."""
    settings = plan.config.launcher
    inside_slurm = settings.name is LauncherName.slurm
    connect_limit_s = settings.ssh_timeout_s
    reaches = make_reaches(plan)
    own = environment.inherited(os.environ, scheduler=inside_slurm)
    if inside_slurm and not running_inside_slurm():
        connect_limit_s = plan.config.limits.max_minutes * 60  # the probe waits in the queue, too
    report = prove_hosts(
        plan,
        reaches,
        python=worker_python(plan.config) if container is None else CONTAINER_PYTHON,
        environment=own,
        connect_limit_s=connect_limit_s,
        need_frameworks=need_frameworks,
        wrap=_wrapper(plan, container),
        island=ISLAND if container is None else CONTAINER_ISLAND,
    )
    command = container.digest_argv() if container is not None else None
    if command is None or not report.facts:
        return report
    return with_digests(report, run_everywhere(reaches, command, limit_s=_DIGEST_LIMIT_S, environment=own))


def with_digests(report: HostsReport, conversations: Sequence[Conversation]) -> HostsReport:
    """The report with the digest of the image as a fact of each host, and a check that all have the same."""
    name = "container digest"
    found = {
        conversation.reach.name: line.rpartition("@")[2]
        for conversation in conversations
        for _, line in conversation.lines
        if "@sha256:" in line
    }
    facts = {
        host: {**known, **({"container_digest": found[host]} if host in found else {})}
        for host, known in report.facts.items()
    }
    if len(set(found.values())) > 1:
        text = "; ".join(f"{host} has {digest}" for host, digest in found.items())
        check = failed(name, f"hosts have other images under the same name: {text}", "pull it on every host again")
    elif found:
        check = passed(name, next(iter(found.values())))
    else:
        check = not_checked(name, "the engine tells no digest of this image", "say container.digest=sha256:...")
    return replace(report, facts=facts, checks=[*report.checks, check])


def _wrapper(plan: Plan, container: Container | None) -> Wrap:
    if container is None:
        return list

    def wrap(command: Sequence[str]) -> Sequence[str]:
        return container.wrap(
            Launch(
                command=tuple(command),
                num_ranks=1,
                hosts=plan.placement.hosts[:1],
                environment={},
                mark=_PROBE_MARK,
                cwd=plan.runs_dir,
                log=plan.runs_dir,
                time_limit_s=0,
                mounts=container_mounts(plan),
            )
        )

    return wrap
