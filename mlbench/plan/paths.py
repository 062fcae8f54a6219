"""Paths of a run set, made absolute once: MLBENCH_HOME, or the current folder, holds runs, data and database."""

from __future__ import annotations

import copy
import os
from pathlib import Path

from mlbench.config import Config


def home() -> Path:
    """The folder of runs/ and db/: MLBENCH_HOME, else the current folder. Absolute."""
    return Path(os.environ.get("MLBENCH_HOME") or ".").expanduser().absolute()


def absolute(path: str) -> str:
    """A path made absolute against the current folder, `..` and links kept; s3:// addresses stay as they are."""
    return path if path.startswith("s3://") else os.path.normpath(Path(path).expanduser().absolute())


def absolute_config(config: Config) -> Config:
    """A copy of the configuration whose paths are absolute, so that it means the same in every folder."""
    fixed = copy.deepcopy(config)
    fixed.data.path = absolute(config.data.path)
    fixed.runs_dir = absolute(config.runs_dir) if config.runs_dir else str(home() / "runs")
    if config.launcher.hostfile:
        fixed.launcher.hostfile = absolute(config.launcher.hostfile)
    if config.benchmark.storage.path:
        fixed.benchmark.storage.path = absolute(config.benchmark.storage.path)
    return fixed
