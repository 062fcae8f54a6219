"""Small JSON and YAML files of a run folder, read with limits: a folder may come from another team."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from mlbench.collect.runfiles import MAX_BYTES
from mlbench.collect.safety import without_secrets
from mlbench.errors import InputError

_T = TypeVar("_T", list[Any], dict[str, Any])


def load_json(path: Path, kind: type[_T]) -> _T:
    """What the file holds; an empty `kind` when there is no such file. Raises InputError."""
    text = _read(path)
    if text is None:
        return kind()
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({error})") from error
    if not isinstance(data, kind):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected a {kind.__name__}")
    return data


def load_config(path: Path) -> dict[str, Any]:
    """The resolved configuration without secrets; empty when there is no such file. Raises InputError."""
    import yaml

    text = _read(path)
    if text is None:
        return {}
    try:
        # A few lines of anchors can unfold to gigabytes, and mlbench never writes one.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InputError(f"{path}: uses YAML aliases, which mlbench does not write")
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected keys and values")
    kept: dict[str, Any] = without_secrets(data)
    return kept


def _read(path: Path) -> str | None:
    try:
        if path.is_symlink():
            raise InputError(f"{path}: is a link, expected a file")
        if not path.is_file():
            return None
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes, so it is not a record of mlbench")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
