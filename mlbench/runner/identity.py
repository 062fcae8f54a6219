"""A run set's id and its folder, made so that no two runs ever share one."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from mlbench.collect.runfolder import RunFolder
from mlbench.collect.runs_marker import mark_runs_folder
from mlbench.errors import InputError, PreflightError, near_miss

_NUM_TRIES = 20
_LOCK = ".lock"


def new_run_set_id(benchmark: str, now: datetime) -> str:
    """`20261201-101032-resnet50-5f21c09a`: UTC time, benchmark, 32 random bits."""
    word = re.sub(r"[^A-Za-z0-9_]+", "_", benchmark).strip("_") or "run"
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{word}-{secrets.token_hex(4)}"


def create_run_folder(runs_dir: Path, benchmark: str, now: datetime) -> RunFolder:
    """A new folder under `runs_dir`, created "must not exist".

    Raises PreflightError: the place cannot be written."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(_NUM_TRIES):
            folder = RunFolder(runs_dir.absolute() / new_run_set_id(benchmark, now))
            try:
                folder.path.mkdir()
            except FileExistsError:
                continue
            mark_runs_folder(runs_dir)
            return folder
    except OSError as error:
        raise PreflightError(
            f"runs_dir {runs_dir}: no run set can be written there ({error.strerror}); nothing was launched; "
            "give a folder you may write with runs_dir=FOLDER"
        ) from error
    raise PreflightError(f"runs_dir {runs_dir}: found no free run set id in {_NUM_TRIES} tries; nothing was launched")


def find_run_folder(name: str, runs_dir: Path) -> RunFolder:
    """The run set called `name`: an id under `runs_dir`, the beginning or end of one, or a path.

    Raises InputError: none, or more than one."""
    direct = Path(name)
    for path in (runs_dir / name, direct):
        folder = RunFolder(path.absolute())
        if folder.identity.is_file():
            return folder
    known = sorted(path.parent.name for path in runs_dir.glob("*/run_set.json")) if runs_dir.is_dir() else []
    matches = [item for item in known if item.startswith(name) or item.endswith(name)]
    if len(matches) == 1:
        return RunFolder((runs_dir / matches[0]).absolute())
    if matches:
        raise InputError(f"run set {name!r}: fits {len(matches)} run sets ({', '.join(matches[:5])}); write more of it")
    raise InputError(
        f"run set {name!r}: none of that name in {runs_dir} ({len(known)} there){near_miss(name, known)}; "
        "`mlbench results list` shows them"
    )


@contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Hold the run set for this process; the kernel lets go of it however the process ends.

    Raises PreflightError: another mlbench is running it."""
    path = folder.path / _LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PreflightError(f"{folder.path}: cannot be written ({error.strerror}); nothing was launched") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise PreflightError(
                f"{folder.run_set}: is being run by {owner}; wait until it has ended, or stop it first"
            ) from None
        except OSError:
            # A file system without locks: two runners of one run set are then kept apart by "must not exist" alone.
            pass
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
