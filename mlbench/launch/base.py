"""The launcher contract: `argv(launch)` is pure, running it is the supervisor's business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlbench.plan.types import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One thing to start on all ranks: `command` is what each rank executes (inside the container, if any)."""

    command: tuple[str, ...]
    num_ranks: int
    hosts: tuple[Host, ...]
    environment: Mapping[str, str]
    """Set for every rank and forwarded by name; nothing else of mlbench's environment reaches a rank but PATH, HOME,
    LANG and LD_LIBRARY_PATH."""
    mark: str
    """Value of MLBENCH_JOB in the environment of every process of this launch: strays are found by it."""
    cwd: Path
    log: Path
    """Output of the launcher itself."""
    time_limit_s: float
    mounts: tuple[tuple[Path, Path, bool], ...] = ()
    """(host path, container path, read only) for containers."""


class Launcher(Protocol):
    """A way to start ranks."""

    @property
    def name(self) -> str:
        """The value of `launcher=`."""
        ...

    def argv(self, launch: Launch) -> list[str]:
        """The exact command line; reads nothing, starts nothing."""
        ...

    def environment(self, launch: Launch) -> dict[str, str]:
        """The whole environment of the launcher process."""
        ...

    def afterwards(self, launch: Launch) -> list[list[str]]:
        """Commands that end what the launch left on other hosts, and prove it; each prints the JSON of
        worker/processes.py. Empty when everything runs on this host."""
        ...
