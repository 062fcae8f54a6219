"""Rows of the database as CSV, JSON or Parquet, for a spreadsheet, a script or a notebook."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import IO, Any

from sqlalchemy import ColumnElement, Engine, Select, Table, select

from mlbench.errors import InputError
from mlbench.store.engine import reading
from mlbench.store.repository import RunSetFilter, filter_conditions, newest_first
from mlbench.store.rows import own_columns
from mlbench.store.summary import RunSetSummary, iso_utc
from mlbench.store.tables import AllReduceResult, Epoch, EvaluationRow, HostFact, Run, RunSet, StorageResult

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Subject(Enum):
    """What a row of the export is."""

    run_sets = "run_sets"
    runs = "runs"
    epochs = "epochs"
    evaluations = "evaluations"
    allreduce = "allreduce"
    storage = "storage"
    hosts = "hosts"


class Format(Enum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


_TABLES: dict[Subject, type[Any]] = {
    Subject.runs: Run,
    Subject.epochs: Epoch,
    Subject.evaluations: EvaluationRow,
    Subject.allreduce: AllReduceResult,
    Subject.storage: StorageResult,
    Subject.hosts: HostFact,
}
_OF_RUN_SET = ("run_set", "system", "benchmark")
_OF_RUN = ("index", "attempt", "warmup")
_MORE_OF_RUN_SET = ("olympic_mean_s", "scaling_factor", "rcp_factor", "ruleset", "launcher", "cache", "rehearsal")


def export_columns(subject: Subject) -> list[ColumnElement[Any]]:
    """Columns of one kind of row, in order; a row below a run set names it first."""
    if subject is Subject.run_sets:
        names = [field.name for field in dataclasses.fields(RunSetSummary)] + list(_MORE_OF_RUN_SET)
        return [getattr(RunSet, name) for name in names]
    columns: list[ColumnElement[Any]] = [getattr(RunSet, name) for name in _OF_RUN_SET]
    if subject in (Subject.epochs, Subject.evaluations):
        columns += [column for column in Run.__table__.columns if column.key in _OF_RUN]
    table: Table = _TABLES[subject].__table__
    return columns + list(own_columns(table))


def export_rows(engine: Engine, subject: Subject, filters: RunSetFilter, limit: int | None) -> list[dict[str, Any]]:
    """Rows of the run sets that `filters` keeps, the newest `limit` of them, in a stable order."""
    kept = select(RunSet.id).where(*filter_conditions(filters)).order_by(*newest_first()).limit(limit)
    query: Select[Any] = select(*export_columns(subject)).select_from(RunSet)
    if subject is not Subject.run_sets:
        record = _TABLES[subject]
        if subject in (Subject.epochs, Subject.evaluations):
            query = query.join(Run, Run.run_set_id == RunSet.id).join(record, record.run_id == Run.id)
        else:
            query = query.join(record, record.run_set_id == RunSet.id)
        query = query.order_by(*newest_first(), record.id)
    else:
        query = query.order_by(*newest_first())
    with reading(engine) as connection:
        return [dict(row) for row in connection.execute(query.where(RunSet.id.in_(kept))).mappings()]


def write_csv(stream: IO[str], columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """RFC 4180 with a header. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(row[name]) for name in columns])


def write_json(stream: IO[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """An array of objects, one a line."""
    stream.write("[")
    for number, row in enumerate(rows):
        stream.write(",\n " if number else "\n ")
        json.dump({name: plain(value) for name, value in row.items()}, stream, ensure_ascii=True, allow_nan=False)
    stream.write("\n]\n")


def write_parquet(stream: IO[bytes], columns: Sequence[ColumnElement[Any]], rows: Sequence[Mapping[str, Any]]) -> None:
    """Parquet with the types of the database. Raises InputError: pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("results export: Parquet needs pyarrow; pip install 'mlbench[parquet]'") from error
    fields = [pyarrow.field(str(column.key), _arrow_type(pyarrow, column)) for column in columns]
    schema = pyarrow.schema(fields)
    data = [{name: _arrow_value(value) for name, value in row.items()} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(data, schema=schema), stream, compression="zstd")


def plain(value: Any) -> Any:
    """A value as JSON knows it: moments as ISO 8601 in UTC."""
    return iso_utc(value) if isinstance(value, datetime) else value


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        value = json.dumps(value)
    value = plain(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value


def _arrow_type(pyarrow: Any, column: ColumnElement[Any]) -> Any:
    python_type = column.type.python_type
    known = {
        bool: pyarrow.bool_(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    return known.get(python_type, pyarrow.string())


def _arrow_value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def unique_names(names: Iterable[str]) -> Iterator[str]:
    """Names for the keys of an object: the second `x` is called `x_2`."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"
