"""One hash over the files that made a run set's rows: the same files, the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from mlbench.errors import InputError

READER_VERSION = 2
"""Raised by the change that makes the same files give other rows, of run folders or of imports: they then have another
hash, `mlbench import` replaces what it would leave alone, and `mlbench db verify` says that the reader has changed."""
_CHUNK = 1 << 20


def content_hash(root: Path, files: Iterable[Path]) -> str:
    """sha256 over names (relative to `root`) and contents, in order of the names. Raises InputError."""
    total = hashlib.sha256(f"mlbench reader {READER_VERSION}\n".encode())
    for path in sorted(set(files)):
        name = path.relative_to(root).as_posix()
        total.update(f"{name}\0{file_sha256(path)}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of one file, read in pieces. Raises InputError."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_CHUNK):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()
