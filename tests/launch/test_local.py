"""Whole command line of the local launcher."""

from __future__ import annotations

from pathlib import Path

from mlbench.launch.base import Launch
from mlbench.launch.command import ISLAND, container_worker_command, sweep_command, worker_command
from mlbench.launch.local import LocalLauncher
from mlbench.plan.types import Host

LAUNCH = Launch(
    command=worker_command("/venv/bin/python", Path("/runs/a/job.json"), Path("/runs/a")),
    num_ranks=2,
    hosts=(Host(name="localhost", slots=2),),
    environment={"OMP_NUM_THREADS": "1"},
    mark="a",
    cwd=Path("/runs/a"),
    log=Path("/runs/a/launcher.log"),
    time_limit_s=60,
)


def test_local_two_ranks_whole_command() -> None:
    launcher = LocalLauncher(horovodrun="/venv/bin/horovodrun", own={"PATH": "/bin"})
    assert launcher.argv(LAUNCH) == [
        *("/venv/bin/horovodrun", "--gloo", "-np", "2", "-H", "localhost:2", "--disable-cache"),
        *("/venv/bin/python", "-I", "-S", f"{ISLAND}/start.py", "parent", "--log-dir", "/runs/a", "--"),
        *("/venv/bin/python", f"{ISLAND}/start.py", "__main__", "/runs/a/job.json"),
    ]
    assert launcher.environment(LAUNCH) == {"PATH": "/bin", "OMP_NUM_THREADS": "1", "MLBENCH_JOB": "a"}
    assert launcher.afterwards(LAUNCH) == []


def test_worker_command_in_a_container_uses_what_is_mounted() -> None:
    assert container_worker_command(Path("/runs/a/job.json"), Path("/runs/a")) == (
        *("python", "-I", "-S", "/opt/mlbench_worker/start.py", "parent", "--log-dir", "/runs/a", "--"),
        *("python", "-m", "mlbench_worker", "/runs/a/job.json"),
    )


def test_sweep_command_is_standard_library_only() -> None:
    assert sweep_command("/usr/bin/python3", "m") == ["/usr/bin/python3", "-I", "-S", f"{ISLAND}/processes.py", "m"]
