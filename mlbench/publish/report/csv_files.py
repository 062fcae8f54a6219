"""The numbers behind a report as CSV: SI base units, one file a kind of row, an empty cell for what is not known."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlbench.publish.report.telemetry import RunTelemetry
from mlbench.store.export import write_csv
from mlbench.store.rows import own_columns
from mlbench.store.summary import summary_of
from mlbench.store.tables import (
    AllReduceResult,
    Base,
    Epoch,
    EvaluationRow,
    HostFact,
    NoteRow,
    Run,
    RunSet,
    StorageResult,
)


def csv_files(run_sets: Sequence[RunSet], telemetry: Mapping[str, RunTelemetry]) -> dict[str, bytes]:
    """name -> content; kinds without a row are left out. `telemetry` is run set -> the run that is shown."""
    kinds: list[tuple[str, type[Base], list[tuple[dict[str, Any], Base]]]] = [
        ("runs", Run, _below(run_sets, "runs")),
        ("epochs", Epoch, _below_runs(run_sets, "epoch_rows")),
        ("evaluations", EvaluationRow, _below_runs(run_sets, "evaluations")),
        ("allreduce", AllReduceResult, _below(run_sets, "allreduce")),
        ("storage", StorageResult, _below(run_sets, "storage")),
        ("findings", NoteRow, _below(run_sets, "notes")),
        ("hosts", HostFact, _below(run_sets, "host_facts")),
    ]
    files = {"csv/run_sets.csv": _text([summary_of(run_set).as_json() for run_set in run_sets])}
    for name, record, rows in kinds:
        columns = [str(column.key) for column in own_columns(record.__table__)]  # type: ignore[arg-type]
        if rows:
            files[f"csv/{name}.csv"] = _text(
                [above | {column: getattr(row, column) for column in columns} for above, row in rows]
            )
    summary = [
        {"run_set": name, "run": found.run.index}
        | {key: getattr(row, key) for key in ("host", "metric", "num_points", "mean", "min", "max")}
        for name, found in telemetry.items()
        for row in found.series
    ]
    if summary:
        files["csv/telemetry.csv"] = _text(summary)
    return files


def _below(run_sets: Iterable[RunSet], name: str) -> list[tuple[dict[str, Any], Base]]:
    return [({"run_set": run_set.run_set}, row) for run_set in run_sets for row in getattr(run_set, name)]


def _below_runs(run_sets: Iterable[RunSet], name: str) -> list[tuple[dict[str, Any], Base]]:
    return [
        ({"run_set": run_set.run_set, "index": run.index, "attempt": run.attempt, "warmup": run.warmup}, row)
        for run_set in run_sets
        for run in run_set.runs
        for row in getattr(run, name)
    ]


def _text(rows: Sequence[dict[str, Any]]) -> bytes:
    stream = io.StringIO()
    write_csv(stream, list(rows[0]), rows)
    return stream.getvalue().encode()
