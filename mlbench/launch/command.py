"""What each rank executes: the worker, below its small parent."""

from __future__ import annotations

from pathlib import Path

ISLAND = Path(__file__).resolve().parent.parent / "worker"
PACKAGE_ROOT = ISLAND.parent.parent
"""The folder that holds the package mlbench, for helpers that run without site-packages."""
CONTAINER_ROOT = Path("/opt")
CONTAINER_ISLAND = CONTAINER_ROOT / "mlbench_worker"
CONTAINER_PYTHON = "python"
BARE = ("-I", "-S")
"""For the helpers of the standard library: no site-packages, so they start in a few hundredths of a second."""


def worker_command(python: str, job: Path, rank_log_dir: Path, *, telemetry: bool = False) -> tuple[str, ...]:
    """The training worker on a bare host. `python` has mxnet and horovod."""
    worker = (python, str(ISLAND / "start.py"), "__main__", str(job))
    return parent_command(python, ISLAND, rank_log_dir, worker, telemetry=telemetry)


def container_worker_command(job: Path, rank_log_dir: Path, *, telemetry: bool = False) -> tuple[str, ...]:
    """The training worker inside a container, where the island is mounted and PYTHONPATH is `CONTAINER_ROOT`."""
    worker = (CONTAINER_PYTHON, "-m", CONTAINER_ISLAND.name, str(job))
    return parent_command(CONTAINER_PYTHON, CONTAINER_ISLAND, rank_log_dir, worker, telemetry=telemetry)


def parent_command(
    python: str, island: Path, rank_log_dir: Path, command: tuple[str, ...], *, telemetry: bool = False
) -> tuple[str, ...]:
    """`command` below the parent that writes its output to `rank_log_dir`/rank_<r>.log; with `telemetry` the first
    parent of a host also records what the host does, in `rank_log_dir`/telemetry."""
    more = ("--telemetry",) if telemetry else ()
    start = (python, *BARE, str(island / "start.py"), "parent", "--log-dir", str(rank_log_dir))
    return (*start, *more, "--", *command)


def sweep_command(python: str, mark: str) -> list[str]:
    """Ends what carries `mark` on the host it runs on and prints what it found, see worker/processes.py."""
    return [python, *BARE, str(ISLAND / "processes.py"), mark]
