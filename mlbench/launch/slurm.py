"""`launcher=slurm`: an sbatch script, submitted and followed to its end (or mpirun in the allocation we run in).

The scheduler is asked to run the job and told to cancel it, and is believed in nothing else: the script writes the exit
status of mpirun into a file, and whether the run was good is read from the run's own records.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.mpirun import MpirunLauncher
from mlbench.worker.processes import MARK_VARIABLE

FOLLOWER = "mlbench.launch.slurm_follow"
_SPARE_MINUTES = 2
"""Slurm's own limit lies this much above ours, so that ours, which tells why, comes first."""


def script_path(launch: Launch) -> Path:
    return launch.log.with_name("slurm.sbatch")


def output_path(launch: Launch) -> Path:
    """Output of the job: mpirun's own words."""
    return launch.log.with_name("slurm.log")


def status_path(launch: Launch) -> Path:
    """Written by the job when mpirun has ended: its exit status."""
    return launch.log.with_name("slurm.status")


def started_path(launch: Launch) -> Path:
    """Written by the job when it starts; time in the queue counts for no limit."""
    return launch.log.with_name("slurm.started")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLauncher:
    """`mpirun` is what the job runs, on the nodes that Slurm gives. `hosts_known`: the hosts of a launch are real names
    to ask for, not placeholders. `orchestrator_python` runs the follower here."""

    mpirun: MpirunLauncher
    orchestrator_python: str
    package_root: Path
    """Folder that holds the package mlbench, for the follower."""
    hosts_known: bool
    partition: str | None = None
    account: str | None = None
    gres: str | None = None
    exclusive: bool = False
    name: str = "slurm"

    def argv(self, launch: Launch) -> list[str]:
        """The follower, which submits `script_path(launch)`."""
        return [
            *self._follow(),
            "submit",
            str(script_path(launch)),
            "--name",
            job_name(launch.mark),
            "--status",
            str(status_path(launch)),
            "--output",
            str(output_path(launch)),
        ]

    def environment(self, launch: Launch) -> dict[str, str]:
        """The job's own variables are in the script."""
        own = {name: value for name, value in self.mpirun.own.items() if not name.startswith("SLURM_")}
        return {**own, MARK_VARIABLE: launch.mark, "PYTHONPATH": str(self.package_root)}

    def files(self, launch: Launch) -> dict[Path, str]:
        """To be written before `argv` is run."""
        return {script_path(launch): self.script(launch)}

    def clock(self, launch: Launch) -> Path:
        """The limits count from when this file appears."""
        return started_path(launch)

    def afterwards(self, launch: Launch) -> list[list[str]]:
        """Cancel whatever of this launch Slurm still knows, and prove that it knows none."""
        return [["env", f"PYTHONPATH={self.package_root}", *self._follow(), "clear", "--name", job_name(launch.mark)]]

    def script(self, launch: Launch) -> str:
        """The whole text of the sbatch script."""
        status = shlex.quote(str(status_path(launch)))
        # Credentials come from the submitter's environment by name: a script is a file that others can read.
        own = {name: value for name, value in self._own().items() if name not in environment.AWS}
        variables = environment.for_mpirun(launch, own)
        lines = [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in self._options(launch)),
            "",
            "# --export keeps the submitter's variables out; srun, with which mpirun starts its daemons, must not",
            "# inherit that.",
            "export SLURM_EXPORT_ENV=ALL",
            *(f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())),
            "",
            f"date +%s > {shlex.quote(str(started_path(launch)))}",
            f"{shlex.join(self.mpirun.argv(launch))} &",
            "mpirun=$!",
            "trap 'kill -TERM $mpirun' TERM",
            "wait $mpirun",
            "status=$?",
            "# A trapped signal ends the first wait early.",
            "if kill -0 $mpirun 2> /dev/null; then wait $mpirun; status=$?; fi",
            f"echo $status > {status}.part && mv {status}.part {status}",
            "exit $status",
        ]
        return "\n".join(lines) + "\n"

    def _own(self) -> Mapping[str, str]:
        return {name: value for name, value in self.mpirun.own.items() if not name.startswith("SLURM_")}

    def _options(self, launch: Launch) -> list[str]:
        options = [
            f"--job-name={job_name(launch.mark)}",
            f"--nodes={len(launch.hosts)}",
            f"--ntasks={launch.num_ranks}",
            f"--ntasks-per-node={max(host.slots for host in launch.hosts)}",
            f"--time={math.ceil(launch.time_limit_s / 60) + _SPARE_MINUTES}",
            f"--chdir={launch.cwd}",
            f"--output={output_path(launch)}",
            f"--export={','.join(name for name in environment.AWS if name in self.mpirun.own) or 'NONE'}",
            "--no-requeue",
        ]
        threads = launch.environment.get("OMP_NUM_THREADS")
        if threads is not None:
            options.append(f"--cpus-per-task={threads}")
        if self.hosts_known:
            options.append(f"--nodelist={','.join(host.name for host in launch.hosts)}")
        if self.partition is not None:
            options.append(f"--partition={self.partition}")
        if self.account is not None:
            options.append(f"--account={self.account}")
        if self.gres is not None:
            options.append(f"--gres={self.gres}")
        if self.exclusive:
            options.append("--exclusive")
        return options

    def _follow(self) -> list[str]:
        return [self.orchestrator_python, "-S", "-m", FOLLOWER]


def job_name(mark: str) -> str:
    """Name of the Slurm job of one launch; marks are unique, so it is."""
    return f"mlbench-{mark}"
