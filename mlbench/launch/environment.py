"""What reaches a rank of mlbench's own environment, and what the launcher process gets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mlbench.launch.base import Launch
from mlbench.worker.processes import MARK_VARIABLE

PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
_TO_OTHER_HOSTS = ("PATH", "LANG", "LD_LIBRARY_PATH")
"""HOME is each host's own."""
_SCHEDULER_PREFIX = "SLURM_"
_MPI_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def inherited(environment: Mapping[str, str], *, scheduler: bool = False) -> dict[str, str]:
    """The part of `environment` (mlbench's own) that a launcher gets; with the variables of the Slurm allocation that
    mlbench runs in, if it starts ranks through it."""
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED_ON or (scheduler and name.startswith(_SCHEDULER_PREFIX))
    }


def for_launch(launch: Launch, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a launcher process."""
    return {**own, **launch.environment, MARK_VARIABLE: launch.mark}


def for_mpirun(launch: Launch, own: Mapping[str, str]) -> dict[str, str]:
    """As `for_launch`; Open MPI refuses root unless told twice, so it is told, and only then."""
    allowed = dict.fromkeys(_MPI_AS_ROOT, "1") if os.getuid() == 0 else {}
    return {**for_launch(launch, own), **allowed}


def forwarded(launch: Launch, own: Mapping[str, str]) -> list[str]:
    """Names, sorted, of all variables that ranks on other hosts get."""
    return sorted({*launch.environment, MARK_VARIABLE, *(name for name in _TO_OTHER_HOSTS if name in own)})
