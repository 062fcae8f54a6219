"""What reaches a rank of mlbench's own environment, and what the launcher process gets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mlbench.launch.base import Launch
from mlbench.worker.processes import MARK_VARIABLE

PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
_TO_OTHER_HOSTS = ("PATH", "LANG", "LD_LIBRARY_PATH")
"""HOME is each host's own."""
AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_CA_BUNDLE",
)
"""Where AWS's tools look first. Passed on by name, and only to ranks that read from S3: their values stand in no
command line, file or record."""
_SCHEDULER_PREFIX = "SLURM_"
_MPI_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def inherited(environment: Mapping[str, str], *, scheduler: bool = False, credentials: bool = False) -> dict[str, str]:
    """The part of `environment` (mlbench's own) that a launcher gets; with the variables of the Slurm allocation that
    mlbench runs in, if it starts ranks through it, and with AWS's own when ranks read from S3."""
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED_ON or (scheduler and name.startswith(_SCHEDULER_PREFIX)) or (credentials and name in AWS)
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
    passed = (name for name in (*_TO_OTHER_HOSTS, *AWS) if name in own)
    return sorted({*launch.environment, MARK_VARIABLE, *passed})
