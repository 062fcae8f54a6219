"""The folder inside a data set where what is not finished grows, for one import or making at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlbench.errors import InputError

PLAN_NAME = "plan.json"
_LOCK = "lock"


@contextmanager
def work_folder(out: Path, name: str) -> Iterator[Path]:
    """The folder `name` inside `out`, locked, without half-written files of a process that was killed.

    It goes when the block ends, unless it ends badly and a plan was written in it: then it stays for the next go.
    Raises: InputError: another process is at work in it. OSError."""
    is_new = not out.exists()
    work = out / name
    work.mkdir(parents=True, exist_ok=True)
    with _locked(work):
        for left in work.iterdir():
            if left.suffix == ".tmp":
                left.unlink()
        try:
            yield work
        except BaseException:
            if not (work / PLAN_NAME).exists():
                shutil.rmtree(work, ignore_errors=True)
                if is_new:
                    with suppress(OSError):
                        out.rmdir()
            raise
        shutil.rmtree(work)


@contextmanager
def _locked(work: Path) -> Iterator[None]:
    path = work / _LOCK
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{work.parent}: another import or making is at work there; wait for its end, or give another --out"
            ) from error
        except OSError:
            pass  # a file system without locks: nothing can be said
        else:
            _see_that_it_is_there(path, handle.fileno())
        yield


def _see_that_it_is_there(path: Path, handle: int) -> None:
    """Another process may have removed the folder between opening its lock and getting it."""
    try:
        same = os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        same = False
    if not same:
        raise InputError(
            f"{path.parent.parent}: another import or making has just ended there; look at its files first"
        )
