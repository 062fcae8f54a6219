"""What of mlbench's own environment reaches a rank, and that no credential is written anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.mpirun import MpirunLauncher
from mlbench.launch.slurm import SlurmLauncher
from mlbench.plan.types import Host

OWN = {"PATH": "/usr/bin", "HOME": "/home/x", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_PROFILE": "p", "TOKEN": "t"}
LAUNCH = Launch(
    command=("true",),
    num_ranks=2,
    hosts=(Host(name="a", slots=1), Host(name="b", slots=1)),
    environment={},
    mark="m",
    cwd=Path("/w"),
    log=Path("/w/log"),
    time_limit_s=60,
)


def _mpirun() -> MpirunLauncher:
    own = environment.inherited(OWN, credentials=True)
    return MpirunLauncher(mpirun="mpirun", own=own, python="python3", agent=("ssh",))


def test_credentials_reach_only_ranks_that_read_from_s3() -> None:
    assert set(environment.inherited(OWN)) == {"PATH", "HOME"}
    assert set(environment.inherited(OWN, credentials=True)) == {"PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"}


def test_credentials_stand_in_no_command_line() -> None:
    launcher = _mpirun()
    argv = launcher.argv(LAUNCH)
    assert "s3cret" not in " ".join(argv)
    assert argv[argv.index("AWS_SECRET_ACCESS_KEY") - 1] == "-x"
    assert launcher.environment(LAUNCH)["AWS_SECRET_ACCESS_KEY"] == "s3cret"


def test_credentials_stand_in_no_sbatch_script() -> None:
    launcher = SlurmLauncher(
        mpirun=replace(_mpirun(), hosts_from_scheduler=True),
        orchestrator_python="python3",
        package_root=Path("/site"),
        hosts_known=False,
        partition=None,
        account=None,
        gres=None,
        exclusive=False,
    )
    script = launcher.script(LAUNCH)
    assert "s3cret" not in script
    assert "#SBATCH --export=AWS_SECRET_ACCESS_KEY,AWS_PROFILE\n" in script
    assert "-x AWS_SECRET_ACCESS_KEY" in script
