"""A run set as plain JSON data and back: what travels to another team beside the files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Table

from mlbench.errors import InputError
from mlbench.store.rows import build_rows, own_columns
from mlbench.store.summary import iso_utc
from mlbench.store.tables import (
    AllReduceResult,
    Base,
    Epoch,
    EvaluationRow,
    HostFact,
    Hyperparameter,
    NoteRow,
    Run,
    RunSet,
    StorageResult,
    System,
    TelemetrySeries,
)

_OF_SET: dict[str, type[Any]] = {
    "allreduce": AllReduceResult,
    "storage": StorageResult,
    "notes": NoteRow,
    "host_facts": HostFact,
}
_OF_RUN: dict[str, type[Any]] = {
    "epoch_rows": Epoch,
    "evaluations": EvaluationRow,
    "hyperparameters": Hyperparameter,
    "telemetry": TelemetrySeries,
}


def to_plain(run_set: RunSet) -> dict[str, Any]:
    """The run set and everything below it; row numbers are left out."""
    rows = build_rows(run_set)
    data = _plain(rows.row) | {"description": _plain(rows.system) if rows.system is not None else None}
    for name, record in _OF_SET.items():
        data[name] = [_plain(row) for row in rows.children.get(_table(record), [])]
    data["runs"] = [
        _plain(run.row)
        | {name: [_plain(row) for row in run.children.get(_table(record), [])] for name, record in _OF_RUN.items()}
        for run in rows.runs
    ]
    return data


def from_plain(data: Any, where: str) -> RunSet:
    """The record of what `to_plain` gave. Raises InputError naming `where` and the field."""
    fields = dict(_object(data, where))
    described = fields.pop("description", None)
    runs = _list(fields.pop("runs", []), f"{where}.runs")
    below = {name: _records(record, fields.pop(name, []), f"{where}.{name}") for name, record in _OF_SET.items()}
    run_set: RunSet = _record(RunSet, fields, where)
    for name, records in below.items():
        setattr(run_set, name, records)
    run_set.runs = [_run(item, f"{where}.runs[{number}]") for number, item in enumerate(runs)]
    run_set.description = _record(System, described, f"{where}.description") if described is not None else None
    return run_set


def _run(data: Any, where: str) -> Run:
    fields = dict(_object(data, where))
    below = {name: _records(record, fields.pop(name, []), f"{where}.{name}") for name, record in _OF_RUN.items()}
    run: Run = _record(Run, fields, where)
    for name, records in below.items():
        setattr(run, name, records)
    return run


def _records(record: type[Any], data: Any, where: str) -> list[Any]:
    return [_record(record, item, f"{where}[{number}]") for number, item in enumerate(_list(data, where))]


def _record(record: type[Any], data: Any, where: str) -> Any:
    fields = _object(data, where)
    columns = {column.key: column for column in own_columns(_table(record))}
    unknown = sorted(set(fields) - set(columns))
    if unknown:
        raise InputError(f"{where}: has unknown fields {', '.join(unknown[:3])}; a newer mlbench may have written it")
    values = {name: _value(columns[name], value, f"{where}.{name}") for name, value in fields.items()}
    missing = [
        name
        for name, column in columns.items()
        if values.get(name) is None and not column.nullable and not column.default
    ]
    if missing:
        raise InputError(f"{where}: lacks {', '.join(missing[:3])}")
    return record(**values)


def _value(column: Column[Any], value: Any, where: str) -> Any:
    if value is None:
        return None
    expected = column.type.python_type
    if expected is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError as error:
            raise InputError(f"{where}: found {value[:40]!r}, expected a moment in ISO 8601") from error
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, dict | list) if expected is dict else isinstance(value, expected)
    if not fits or (expected is int and isinstance(value, bool)):
        raise InputError(f"{where}: found a {type(value).__name__}, expected {expected.__name__}")
    return value


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: iso_utc(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _table(record: type[Base]) -> Table:
    table = record.__table__
    assert isinstance(table, Table)
    return table


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{where}: holds a {type(data).__name__}, expected an object")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise InputError(f"{where}: holds a {type(data).__name__}, expected a list")
    return data
