"""Secrets in the environment that profiles give to the ranks: the ranks get them, the files of a run set do not.

A variable counts as a secret by its name, or when its value is a URL with a password (`mlbench.secret_names`). In
config.yaml its value is `***`; whoever resumes or reproduces the run set gives it again, as a variable of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mlbench.collect.safety import storable_environment
from mlbench.config import Config
from mlbench.errors import ConfigError
from mlbench.secret_names import MASK, is_secret_name, mask_url
from mlbench.worker.job import Job, dump


def masked(config: Config) -> Config:
    """The configuration as config.yaml may keep it."""
    return _with_environments(config, _mask)


def restored(config: Config, environment: Mapping[str, str], where: Path) -> Config:
    """The configuration that can be run again: each masked value taken from `environment`.

    Raises: ConfigError: a secret is not there. `where` is the file that was read.
    """

    def restore(variables: Mapping[str, str]) -> dict[str, str]:
        missing = [name for name, value in variables.items() if value == MASK and name not in environment]
        if missing:
            raise ConfigError(
                f"{where}: the value of {', '.join(missing)} is a secret and was not kept; set the variable"
            )
        return {name: environment[name] if value == MASK else value for name, value in variables.items()}

    return _with_environments(config, restore)


def write_job(path: Path, job: Job) -> None:
    """Write job.json; its `environment` is a record only, so what may not be kept is left out. Raises OSError."""
    path.write_text(dump(replace(job, environment=storable_environment(job.environment))), encoding="utf-8")


def _mask(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: MASK if is_secret_name(name) or mask_url(value) != value else value for name, value in variables.items()
    }


def _with_environments(config: Config, change: Callable[[Mapping[str, str]], dict[str, str]]) -> Config:
    hardware = config.hardware
    compute, storage = hardware.compute, hardware.storage
    if compute is not None:
        compute = replace(compute, environment=change(compute.environment))
    if storage is not None:
        storage = replace(storage, environment=change(storage.environment))
    return replace(config, hardware=replace(hardware, compute=compute, storage=storage))
