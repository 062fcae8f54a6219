"""Places where a bundle is unpacked and verified before its files move to where they stay.

Such a place is hidden, and held by a lock of the kernel, which ends with its process: what a killed one left behind is
known by that nobody holds it, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = ".unpacking-"


@contextmanager
def unpacking_place(parent: Path) -> Iterator[Path]:
    """A new folder in `parent` (made when it is not there), removed at the end with what is still in it.

    Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        with _lock(parent, wait=True) as locked:
            if locked:
                _remove_left_behind(parent)
            place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            held.callback(shutil.rmtree, place, ignore_errors=True)
            held.enter_context(_lock(place, wait=False))
        yield place


def _remove_left_behind(parent: Path) -> None:
    for place in parent.glob(f"{_PREFIX}*"):
        if place.is_symlink() or not place.is_dir():
            continue
        with _lock(place, wait=False) as locked:
            if locked:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _lock(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold `folder`. False where another process does, or where the file system knows no such locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
