"""`launcher=mpirun`: Open MPI over hosts with slots, started through ssh or another agent."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlbench.choices import Binding
from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.command import sweep_command
from mlbench.plan.types import Host


def remote_agent(rsh_agent: str | None, timeout_s: float) -> tuple[str, ...]:
    """The command that starts a process on another host, `AGENT HOST COMMAND...`; ssh never asks anything."""
    if rsh_agent is not None:
        return tuple(shlex.split(rsh_agent))
    limit = f"ConnectTimeout={max(1, round(timeout_s))}"
    return ("ssh", "-o", "BatchMode=yes", "-o", limit, "-o", "ServerAliveInterval=15")


def is_this_host(host: str, own_name: str) -> bool:
    """`host` names the host that we run on: no agent is needed to reach it."""
    return host in ("localhost", "127.0.0.1", own_name, own_name.partition(".")[0])


def host_argument(hosts: Sequence[Host]) -> str:
    """As mpirun takes it: `a:5,b:4`."""
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpirunLauncher:
    """`agent` as `remote_agent` gives it; `python` exists on every host; `own` is what is passed on of mlbench's
    environment. `hosts_from_scheduler`: inside a Slurm allocation, whose hosts mpirun takes by itself."""

    mpirun: str
    own: Mapping[str, str]
    python: str
    agent: tuple[str, ...]
    binding: Binding = Binding.none
    network_interface: str | None = None
    yield_when_idle: bool = False
    """Ranks that wait in MPI give their core away: needed where ranks compute on the very cores that would spin."""
    extra_args: tuple[str, ...] = ()
    hosts_from_scheduler: bool = False
    this_host: str = "localhost"
    name: str = "mpirun"

    def argv(self, launch: Launch) -> list[str]:
        hosts = [] if self.hosts_from_scheduler else ["-H", host_argument(launch.hosts)]
        return [
            self.mpirun,
            "-np",
            str(launch.num_ranks),
            *hosts,
            "--map-by",
            "slot",
            "--bind-to",
            self.binding.value,
            "--report-bindings",
            *self._transport(),
            *self._agent(launch),
            "--wdir",
            str(launch.cwd),
            *(word for name in environment.forwarded(launch, self.own) for word in ("-x", name)),
            *self.extra_args,
            *launch.command,
        ]

    def environment(self, launch: Launch) -> dict[str, str]:
        return environment.for_mpirun(launch, self.own)

    def afterwards(self, launch: Launch) -> list[list[str]]:
        """A sweep on every other host."""
        if self.hosts_from_scheduler:
            return [["srun", "--ntasks-per-node=1", *sweep_command(self.python, launch.mark)]] if launch.hosts else []
        others = [host.name for host in launch.hosts if not self.is_here(host.name)]
        sweep = shlex.join(sweep_command(self.python, launch.mark))
        return [[*self.agent, host, sweep] for host in others]

    def is_here(self, host: str) -> bool:
        return is_this_host(host, self.this_host)

    def _transport(self) -> list[str]:
        """TCP and shared memory for what Horovod does over MPI itself; NCCL has transports of its own."""
        words = ["--mca", "pml", "ob1", "--mca", "btl", "^openib"]
        if self.yield_when_idle:
            words += ["--mca", "mpi_yield_when_idle", "1"]
        if self.network_interface is not None:
            for framework in ("btl", "oob"):
                words += ["--mca", f"{framework}_tcp_if_include", self.network_interface]
        return words

    def _agent(self, launch: Launch) -> list[str]:
        if self.hosts_from_scheduler or all(self.is_here(host.name) for host in launch.hosts):
            return []
        # No tree: this host reaches every other, which is all that was proven, and which ssh keys are made for.
        return ["--mca", "plm_rsh_agent", shlex.join(self.agent), "--mca", "plm_rsh_no_tree_spawn", "1"]


def running_inside_slurm(own: Mapping[str, str] | None = None) -> bool:
    """mlbench itself runs in an allocation."""
    return "SLURM_JOB_ID" in (os.environ if own is None else own)
