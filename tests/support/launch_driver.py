"""Stands for mlbench in tests of launchers: starts one launch, prints the outcome as JSON.

launch_driver.py '{"launcher": "mpirun", "hosts": {"a": 1}, "command": [...], "dir": ..., "mark": ..., ...}'
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import mlbench
from mlbench.launch import environment
from mlbench.launch.base import Launch, Launcher
from mlbench.launch.command import ISLAND, parent_command
from mlbench.launch.local import LocalLauncher
from mlbench.launch.mpirun import MpirunLauncher, remote_agent
from mlbench.launch.slurm import SlurmLauncher
from mlbench.launch.supervisor import run_launch
from mlbench.plan.types import Host


def launcher(order: dict[str, Any]) -> Launcher:
    own = environment.inherited(os.environ, scheduler=order["launcher"] == "allocation")
    if order["launcher"] == "local":
        return LocalLauncher(horovodrun=str(Path(sys.executable).parent / "horovodrun"), own=own)
    mpirun = MpirunLauncher(
        mpirun="mpirun",
        own=own,
        python=sys.executable,
        agent=remote_agent(order.get("agent"), 5),
        network_interface=order.get("nic"),
        this_host=os.uname().nodename,
        hosts_from_scheduler=order["launcher"] in ("slurm", "allocation"),
    )
    if order["launcher"] in ("mpirun", "allocation"):
        return mpirun
    return SlurmLauncher(
        mpirun=mpirun,
        orchestrator_python=sys.executable,
        package_root=Path(mlbench.__file__).parent.parent,
        hosts_known=False,
        partition=order.get("partition"),
    )


def main() -> None:
    order = json.loads(sys.argv[1])
    folder = Path(order["dir"])
    hosts = tuple(Host(name=name, slots=slots) for name, slots in order["hosts"].items())
    launch = Launch(
        command=parent_command(sys.executable, ISLAND, folder, tuple(order["command"])),
        num_ranks=sum(host.slots for host in hosts),
        hosts=hosts,
        environment={"OMP_NUM_THREADS": "1"},
        mark=order["mark"],
        cwd=folder,
        log=folder / "launcher.log",
        time_limit_s=order.get("time_limit_s", 60),
    )
    outcome = run_launch(
        launcher(order), launch, watch=folder / "result.txt", term_grace_s=order.get("term_grace_s", 4.0)
    )
    print(json.dumps({**dataclasses.asdict(outcome), "ended_by": outcome.ended_by.value}))


if __name__ == "__main__":
    main()
