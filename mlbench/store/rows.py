"""From records to rows: what either database can hold, and nothing it would choke on.

Logs are not ours. A seed beyond 64 bits, a NaN, a NUL in a text are facts of some log and no reason to lose the
result: the value becomes NULL (or U+FFFD inside a text) and a note says so.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from sqlalchemy import Column, Table, inspect
from sqlalchemy.orm import InstanceState

from mlbench.store.tables import Base, NoteRow, Run, RunSet, System

_INT64 = 2**63
_OF_TIME_LINES = {float, type(None)}
_RUN_CHILDREN = ("epoch_rows", "evaluations", "hyperparameters", "telemetry")
_SET_CHILDREN = ("allreduce", "storage", "notes", "host_facts")


@dataclass(slots=True)
class RunRows:
    """One run and, by table, the rows that belong to it."""

    row: dict[str, Any]
    children: dict[Table, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(slots=True)
class RunSetRows:
    """Everything that one transaction writes for a run set, ready before it begins."""

    row: dict[str, Any]
    system: dict[str, Any] | None
    runs: list[RunRows]
    children: dict[Table, list[dict[str, Any]]]


class _Cleaner:
    """Makes values storable and remembers what it had to change."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def row(self, record: Base, where: str) -> dict[str, Any] | None:
        """The record's columns without keys of the database; None when a column that must be filled cannot be."""
        row: dict[str, Any] = {}
        known = record.__dict__  # a row has ten values and a run set a thousand rows: attributes cost too much
        for key, nullable, default in _described(type(record).__table__):
            value = known[key] if key in known else getattr(record, key)
            if value is None and default is not None:
                value = default()
            if _is_plain(value):
                row[key] = value
                if value is not None or nullable:
                    continue
                raise ValueError(f"{where}: {key} must be filled")
            stored = self._value(value, f"{where}, {key}")
            if stored is None and not nullable:
                self.changes[-1] += "; the row is left out"
                return None
            row[key] = stored
        return row

    def required(self, record: Base, where: str) -> dict[str, Any]:
        row = self.row(record, where)
        if row is None:
            raise ValueError(f"{where}: {self.changes[-1]}")
        return row

    def _value(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return storable_text(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            self.changes.append(f"{where}: {value} does not fit into 64 bits and is stored as not known")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self.changes.append(f"{where}: {value} is no number and is stored as not known")
            return None
        if isinstance(value, Mapping):
            return {storable_text(str(key)): self._inside(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return list(value) if _are_finite(value) else [self._inside(item, where) for item in value]
        return value

    def _inside(self, value: Any, where: str) -> Any:
        """A value inside JSON, which knows numbers, texts, lists and objects; all else becomes text."""
        known = value is None or isinstance(value, str | int | float | Mapping | list | tuple)
        return self._value(value if known else str(value), where)


def build_rows(run_set: RunSet) -> RunSetRows:
    """Plain rows of a run set and all its children. The record is not changed.

    Raises: ValueError: a column that must be filled is empty (a fault of the code that built the record).
    """
    cleaner = _Cleaner()
    name = run_set.run_set
    system = None
    if run_set.description is not None:
        run_set.description.fingerprint = system_fingerprint(run_set.description)
        system = cleaner.required(run_set.description, f"{name}, system")
    runs = []
    for run in run_set.runs:
        where = f"{name}, run {run.index}"
        runs.append(RunRows(cleaner.required(run, where), _children(cleaner, run, _RUN_CHILDREN, where)))
    row = cleaner.required(run_set, name)
    children = _children(cleaner, run_set, _SET_CHILDREN, name)
    notes = children.setdefault(NoteRow.__table__, [])  # type: ignore[arg-type]
    notes.extend(_note(text) for text in cleaner.changes)
    return RunSetRows(row, system, runs, children)


def system_fingerprint(system: System) -> str:
    """Identity of a system: the same text for the same submitter, round, name and description."""
    description = json.dumps(system.description or {}, sort_keys=True, default=str)
    parts = [system.origin, system.round, system.org, system.name, description]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def storable_text(text: str) -> str:
    """The text without NUL and lone surrogates, which no database takes."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def own_columns(table: Table) -> Iterator[Column[Any]]:
    """Columns that say something of the thing itself: no numbers that only link rows of one database."""
    for column in table.columns:
        if not column.foreign_keys and not (column.primary_key and column.key == "id"):
            yield column


def _children(
    cleaner: _Cleaner, parent: Run | RunSet, names: tuple[str, ...], where: str
) -> dict[Table, list[dict[str, Any]]]:
    found: dict[Table, list[dict[str, Any]]] = {}
    state: InstanceState[Any] = inspect(parent)
    for name in names:
        # A record from a database may come without its telemetry; a fresh one is never "unloaded" by accident.
        if name in state.unloaded and state.detached:
            continue
        for child in getattr(parent, name):
            row = cleaner.row(child, f"{where}, {name}")
            if row is not None:
                found.setdefault(type(child).__table__, []).append(row)
    return found


@cache
def _described(table: Table) -> tuple[tuple[str, bool, Callable[[], Any] | None], ...]:
    """(key, may be NULL, maker of its default) of each own column."""
    return tuple((column.key, bool(column.nullable), _default(column)) for column in own_columns(table))


def _default(column: Column[Any]) -> Callable[[], Any] | None:
    if column.default is None:
        return None
    argument = getattr(column.default, "arg", None)
    return partial(argument, None) if callable(argument) else lambda: argument


def _is_plain(value: Any) -> bool:
    """Whether every database holds it as it is: the quick answer for nearly all values."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return bool(value.isascii() and "\x00" not in value)
    if kind is int:
        return bool(-_INT64 <= value < _INT64)
    return value is None or kind is bool


def _are_finite(values: Sequence[Any]) -> bool:
    """Whether a list holds only finite floats and None, so that it needs no look at each: time lines are long."""
    return bool(set(map(type, values)) <= _OF_TIME_LINES) and math.isfinite(sum(filter(None, values)))


def _note(text: str) -> dict[str, Any]:
    return {"severity": "warning", "rule": None, "file": None, "line": None, "text": text}
