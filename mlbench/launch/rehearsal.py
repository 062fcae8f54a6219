"""The rehearsal launcher: starts the stand-in of the training worker here, whatever hosts the plan names.

It is for trying a run set without the machines: the whole way through mlbench is real, the training is not. All that
comes of it is marked, has no score, and cannot be packaged.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mlbench.choices import RehearsalFault
from mlbench.config import RehearsalConfig
from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.command import BARE, ISLAND


def fault_of(settings: RehearsalConfig, *, index: int, attempt: int, warmup: bool) -> RehearsalFault:
    """The accident of one attempt. A run fails in its first attempt only, so that a resumed run set can end well.
    Warm-ups never fail."""
    if warmup or attempt > 0 or settings.fault_in_run not in (None, index):
        return RehearsalFault.none
    return settings.fault


def rehearsal_command(job: Path, settings: RehearsalConfig, fault: RehearsalFault) -> tuple[str, ...]:
    """What is started in place of the training worker."""
    return (
        sys.executable,
        *BARE,
        str(ISLAND / "start.py"),
        "rehearsal",
        str(job),
        "--seconds",
        str(settings.seconds_per_run),
        "--epochs",
        str(settings.epochs),
        "--fault",
        fault.value,
    )


class RehearsalLauncher:
    """One process here, whatever hosts and ranks the launch names."""

    name = "rehearsal"

    def argv(self, launch: Launch) -> list[str]:
        return list(launch.command)

    def environment(self, launch: Launch) -> dict[str, str]:
        return environment.for_launch(launch, environment.inherited(os.environ))

    def afterwards(self, launch: Launch) -> list[list[str]]:
        return []
