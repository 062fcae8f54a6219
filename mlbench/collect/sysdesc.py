"""System descriptions (systems/<system>.json) as submitters write them: odd keys, numbers as text, missing division."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench.collect.mllog import shown, storable
from mlbench.collect.runlog import Note
from mlbench.errors import InputError

MAX_BYTES = 1 << 20
_TEXTS = (
    "submitter",
    "division",
    "status",
    "system_name",
    "accelerator_model_name",
    "host_processor_model_name",
    "framework",
)
_COUNTS = ("number_of_nodes", "accelerators_per_node", "host_processors_per_node")
DIVISIONS = ("closed", "open")


@dataclass(slots=True, kw_only=True)
class SystemDescription:
    """What one description says; None is "not said". `raw` is the whole of it, as read."""

    file: str
    submitter: str | None = None
    division: str | None = None
    status: str | None = None
    system_name: str | None = None
    number_of_nodes: int | None = None
    accelerators_per_node: int | None = None
    accelerator_model_name: str | None = None
    host_processors_per_node: int | None = None
    host_processor_model_name: str | None = None
    framework: str | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def read_description(path: Path, *, name: str | None = None) -> SystemDescription:
    """Read one description; every oddity is a note.

    Raises: InputError: it cannot be read, is too large, or is no JSON object.
    """
    name = name if name is not None else path.name
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes; a system description was expected")
        body = json.loads(path.read_bytes().decode("utf-8-sig", "replace"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); a system description was expected") from error
    if not isinstance(body, dict):
        raise InputError(f"{path}: a JSON object was expected, found {type(body).__name__}")
    description = SystemDescription(file=name, raw=_finite(body))
    for key, value in body.items():
        meant = _meant(key, body)
        if meant is None:
            continue
        if meant != key:
            odd = "misspelt key" if key.lower().replace(" ", "_").replace("-", "_") != meant else "odd key"
            _note(description, f"{odd} {key!r}, read as {meant!r}")
        _take(description, meant, value)
    for key in ("submitter", "division", "system_name"):
        if getattr(description, key) is None:
            _note(description, f"no {key}")
    return description


def _meant(key: str, body: dict[str, Any]) -> str | None:
    """The known key that `key` stands for; None when it is another one. A well spelt key beside it wins."""
    known = (*_TEXTS, *_COUNTS)
    if key in known:
        return key
    plain = key.strip().lower().replace(" ", "_").replace("-", "_")
    if plain in known:
        return plain if plain not in body else None
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.92)
    return near[0] if near and near[0] not in body else None


def _take(description: SystemDescription, key: str, value: Any) -> None:
    if key in _COUNTS:
        count = _count(value)
        if count is None and value not in (None, "", "N/A"):
            _note(description, f"{key} is {shown(value)}, not a count")
        setattr(description, key, count)
        return
    if value is not None and not isinstance(value, str):
        _note(description, f"{key} is {shown(value)}, not a text")
        return
    text = storable(value).strip() if value else None
    if key == "division" and text is not None:
        if text.lower() not in DIVISIONS:
            _note(description, f"division is {text!r}; expected closed or open")
            text = None
        else:
            text = text.lower()
    setattr(description, key, text or None)


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return value
    return None


def _note(description: SystemDescription, text: str) -> None:
    description.notes.append(Note(description.file, None, text))


def _finite(value: Any) -> Any:
    """The same value with what no database takes made text or null."""
    if isinstance(value, dict):
        return {storable(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
