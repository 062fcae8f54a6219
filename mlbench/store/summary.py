"""One run set as a list shows it: the keys of `results list --json`, in their order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement

from mlbench.store.tables import RunSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetSummary:
    """Field names are the JSON keys; None is "not known"."""

    run_set: str
    origin: str
    round: str | None
    org: str | None
    system: str | None
    division: str | None
    benchmark: str | None
    framework: str | None
    num_nodes: int | None
    num_accelerators: int | None
    num_ranks: int | None
    num_runs: int
    num_converged: int
    score_s: float | None
    score_status: str
    score_reason: str | None
    mean_s: float | None
    min_s: float | None
    max_s: float | None
    cv: float | None
    samples_per_s: float | None
    samples_per_s_first_epoch: float | None
    global_batch_size: int | None
    started_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Plain values; `started_at` as ISO 8601 in UTC."""
        return dataclasses.asdict(self) | {"started_at": iso_utc(self.started_at)}


def summary_columns() -> list[ColumnElement[Any]]:
    return [getattr(RunSet, field.name) for field in dataclasses.fields(RunSetSummary)]


def summary_of(run_set: RunSet) -> RunSetSummary:
    return RunSetSummary(**{field.name: getattr(run_set, field.name) for field in dataclasses.fields(RunSetSummary)})


def iso_utc(moment: datetime | None) -> str | None:
    """`2024-05-01T09:30:00.123Z`, None for None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
