"""Rows for spreadsheets, scripts and notebooks."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from sqlalchemy import Engine

from mlbench.store.export import (
    Subject,
    export_columns,
    export_rows,
    unique_names,
    write_csv,
    write_json,
    write_parquet,
)
from mlbench.store.repository import RunSetFilter, save_run_set
from tests.support.run_sets import make_run_set


def _csv(db: Engine, subject: Subject) -> list[list[str]]:
    stream = io.StringIO()
    names = [str(column.key) for column in export_columns(subject)]
    write_csv(stream, names, export_rows(db, subject, RunSetFilter(), None))
    return list(csv.reader(io.StringIO(stream.getvalue())))


@pytest.mark.parametrize(
    ("subject", "num_rows"),
    [
        (Subject.run_sets, 2), (Subject.runs, 4), (Subject.epochs, 4), (Subject.evaluations, 4),
        (Subject.allreduce, 2), (Subject.storage, 2), (Subject.hosts, 2),
    ],
)  # fmt: skip
def test_export_every_kind_names_its_run_set(db: Engine, subject: Subject, num_rows: int) -> None:
    save_run_set(db, make_run_set("set-a"))
    save_run_set(db, make_run_set("set-b"))
    rows = _csv(db, subject)
    assert len(rows) == num_rows + 1
    assert len(set(rows[0])) == len(rows[0])
    assert {row[rows[0].index("run_set")] for row in rows[1:]} == {"set-a", "set-b"}


def test_export_filters_and_limits_by_run_set(db: Engine) -> None:
    for name in ("set-a", "set-b", "set-c"):
        save_run_set(db, make_run_set(name, system="other" if name == "set-c" else "DSS8440"))
    rows = export_rows(db, Subject.runs, RunSetFilter(system="DSS"), 1)
    assert {row["run_set"] for row in rows} == {"set-b"}


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1"])
def test_export_csv_keeps_formulas_from_running(db: Engine, text: str) -> None:
    save_run_set(db, make_run_set(system=text))
    header, row = _csv(db, Subject.run_sets)
    assert row[header.index("system")] == "'" + text


def test_export_csv_leaves_negative_numbers_and_unknowns_alone(db: Engine) -> None:
    save_run_set(db, make_run_set(mean_s=-1.5, cv=None, rehearsal=True))
    header, row = _csv(db, Subject.run_sets)
    cells = dict(zip(header, row, strict=True))
    assert (cells["mean_s"], cells["cv"], cells["rehearsal"]) == ("-1.5", "", "true")
    assert cells["started_at"] == "2024-05-01T09:30:00.000Z"


def test_export_json_is_an_array_of_objects(db: Engine) -> None:
    stream = io.StringIO()
    write_json(stream, export_rows(db, Subject.runs, RunSetFilter(), None))
    assert json.loads(stream.getvalue()) == []
    save_run_set(db, make_run_set())
    stream = io.StringIO()
    write_json(stream, export_rows(db, Subject.runs, RunSetFilter(), None))
    assert [row["seed"] for row in json.loads(stream.getvalue())] == [11, 12]


@pytest.mark.slow
def test_export_parquet_has_the_types_of_the_database(db: Engine, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    save_run_set(db, make_run_set())
    for subject in Subject:
        with (tmp_path / "x.parquet").open("wb") as stream:
            write_parquet(stream, export_columns(subject), export_rows(db, subject, RunSetFilter(), None))
        assert pyarrow.read_table(tmp_path / "x.parquet").num_rows > 0
        if subject is Subject.run_sets:
            types = {field.name: str(field.type) for field in pyarrow.read_schema(tmp_path / "x.parquet")}
    assert types["started_at"] == "timestamp[us, tz=UTC]"
    assert (types["score_s"], types["num_runs"], types["rehearsal"]) == ("double", "int64", "bool")


def test_unique_names_numbers_repeats() -> None:
    assert list(unique_names(["a", "b", "a", "a"])) == ["a", "b", "a_2", "a_3"]
