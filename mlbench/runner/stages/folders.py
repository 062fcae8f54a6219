"""A folder of its own for every measurement, created "must not exist"."""

from __future__ import annotations

from pathlib import Path

from mlbench.errors import RunFailedError

_MAX = 1000


def new_folder(parent: Path, name: str) -> Path:
    """`parent`/`name`_<n> with the first free n. Raises RunFailedError: it cannot be made."""
    for number in range(_MAX):
        path = parent / f"{name}_{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFailedError(f"{path}: cannot be made ({error.strerror})") from error
        return path
    raise RunFailedError(f"{parent}: holds {_MAX} measurements already")
