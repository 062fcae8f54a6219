"""The rehearsal launcher: starts the stand-in of the training worker here, whatever hosts the plan names.

It is for trying a run set without the machines: the whole way through mlbench is real, the training is not. All that
comes of it is marked, has no score, and cannot be packaged.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path

from mlbench.config import RehearsalConfig
from mlbench.errors import ConfigError, near_miss
from mlbench.launch import environment
from mlbench.launch.base import Launch
from mlbench.launch.command import BARE, ISLAND


class Fault(Enum):
    """Accidents that can be played; `mlbench/worker/rehearsal.py` says what each does."""

    none = "none"
    crash = "crash"
    no_run_stop = "no_run_stop"
    hang = "hang"
    slow_init = "slow_init"
    stubborn_child = "stubborn_child"
    stubborn_hang = "stubborn_hang"
    many_writers = "many_writers"
    aborted = "aborted"
    low_accuracy = "low_accuracy"
    disk_full = "disk_full"
    torn_line = "torn_line"


def fault_named(name: str) -> Fault:
    """Raises ConfigError naming the known faults."""
    try:
        return Fault(name)
    except ValueError:
        known = [fault.value for fault in Fault]
        raise ConfigError(
            f"launcher.rehearsal.fault={name}: no such fault; known are {', '.join(known)}{near_miss(name, known)}"
        ) from None


def fault_of(settings: RehearsalConfig, *, index: int, attempt: int, warmup: bool) -> Fault:
    """The accident of one attempt. A run fails in its first attempt only, so that a resumed run set can end well;
    `fault_in_run=-1` means every run. Warm-ups never fail."""
    if warmup or attempt > 0 or settings.fault_in_run not in (-1, index):
        return Fault.none
    return fault_named(settings.fault)


def rehearsal_command(job: Path, settings: RehearsalConfig, fault: Fault) -> tuple[str, ...]:
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
    name = "rehearsal"

    def argv(self, launch: Launch) -> list[str]:
        return list(launch.command)

    def environment(self, launch: Launch) -> dict[str, str]:
        return environment.for_launch(launch, environment.inherited(os.environ))

    def afterwards(self, launch: Launch) -> list[list[str]]:
        return []
