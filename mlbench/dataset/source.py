"""Reading the files that an import is made from, and knowing later whether they are still the same."""

from __future__ import annotations

import hashlib
import os
import stat

from mlbench.errors import InputError
from mlbench.worker.recordio import IMAGE_HEAD_BYTES, MAX_PAYLOAD_BYTES

MAX_IMAGE_BYTES = MAX_PAYLOAD_BYTES - IMAGE_HEAD_BYTES
# A pipe named like an image must not be waited for.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class Stamp:
    """Size and time of change of files in a fixed order, as one digest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, found: os.stat_result) -> None:
        """Take one more file in."""
        self._hash.update(b"%d %d\n" % (found.st_size, found.st_mtime_ns))

    def __str__(self) -> str:
        return self._hash.hexdigest()


def read_image(name: str, stamp: Stamp) -> bytes:
    """The bytes of an image file, which is added to `stamp`.

    Raises: InputError: it cannot be read, is no regular file, or is larger than a record can be."""
    try:
        handle = os.open(name, _OPEN_FLAGS)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{name}: no regular file; expected an image, remove it and run again")
            if found.st_size > MAX_IMAGE_BYTES:
                raise InputError(
                    f"{name}: {found.st_size:,} bytes, a record holds at most {MAX_IMAGE_BYTES:,}; remove or replace it"
                )
            stamp.add(found)
            return _read(handle, found.st_size)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error


def _read(handle: int, size: int) -> bytes:
    data = os.read(handle, size)
    while len(data) < size:
        more = os.read(handle, size - len(data))
        if not more:
            break
        data += more
    return data
