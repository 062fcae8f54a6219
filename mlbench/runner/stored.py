"""A run set that is on disk: found by name, its configuration read back and planned again."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from mlbench.collect.runfiles import RunSetFile, read_run_set
from mlbench.collect.runfolder import RunFolder
from mlbench.config import Config
from mlbench.errors import InputError, MlbenchError
from mlbench.plan.paths import home
from mlbench.runner.identity import find_run_folder
from mlbench.runner.secrets import restored


@dataclass(frozen=True, slots=True)
class Stored:
    folder: RunFolder
    identity: RunSetFile
    config: Config


def open_stored(name: str, *, runs_dir: Path | None = None, url: str | None = None) -> Stored:
    """The run set called `name`: an id (or the beginning or end of one), a folder, or what the database knows it by
    (`latest`).

    Args: url: the database to use from now on; None: the one it was stored in.
    Raises: InputError, ConfigError: there is none of that name, or its files cannot be read."""
    folder = _find(name, runs_dir or home() / "runs", url)
    identity = read_run_set(folder.identity)
    if identity.run_set != folder.run_set:
        raise InputError(f"{folder.identity}: names run set {identity.run_set!r}, but the folder is {folder.run_set!r}")
    config = _config(folder.config)
    _check_same(folder, identity, config)
    config = replace(config, db=replace(config.db, url=url or identity.database), runs_dir=str(folder.path.parent))
    return Stored(folder, identity, config)


def _check_same(folder: RunFolder, identity: RunSetFile, config: Config) -> None:
    """The two files were written together; when they tell of different run sets, one was changed since."""
    pairs = {
        "repeats": (identity.repeats, config.repeats),
        "warmup_runs": (identity.warmup_runs, config.warmup_runs),
        "launcher": (identity.launcher, config.launcher.name.value),
        "benchmark": (identity.benchmark, config.benchmark.name),
        "division": (identity.division, config.submission.division.value),
        "ruleset": (identity.ruleset, config.submission.ruleset),
        "stages": (identity.stages, [stage.value for stage in config.benchmark.stages]),
    }
    for key, (told, configured) in pairs.items():
        if told != configured:
            raise InputError(
                f"{folder.config}: {key} is {configured}, but {folder.identity.name} beside it says {told}; one "
                "of them was changed after the run set was started; put it back, or start a new run set"
            )


def _find(name: str, runs_dir: Path, url: str | None) -> RunFolder:
    try:
        return find_run_folder(name, runs_dir)
    except InputError as fault:
        path = _path_in_database(name, url)
        if path is None:
            raise
        folder = RunFolder(path)
        if not folder.identity.is_file():
            raise InputError(f"run set {name!r}: its files are not in {path} any more") from fault
        return folder


def _path_in_database(name: str, url: str | None) -> Path | None:
    from mlbench.store.engine import open_database
    from mlbench.store.repository import load_run_set

    try:
        row = load_run_set(open_database(url, readonly=True), name)
    except MlbenchError:
        return None  # what the runs folder said is the better answer
    return Path(row.path) if row.path and row.origin == "run" else None


def _config(path: Path) -> Config:
    from mlbench.compose import from_resolved

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}), so the run set cannot be run again") from error
    return restored(from_resolved(text), os.environ, path)
