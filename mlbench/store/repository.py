"""Save, find, list and load run sets.

save_run_set(engine, record) -> SaveOutcome     one short transaction; the same files twice change nothing
find_run_set(engine, "latest~1") -> public id   an id, its unique beginning, latest, latest~N
load_run_set(engine, id) -> RunSet              with its runs and their rows, detached
list_run_sets(engine, RunSetFilter(...)) -> [RunSetSummary]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session, selectinload, undefer

from mlbench.errors import InputError, near_miss
from mlbench.store.bulk import insert_rows
from mlbench.store.engine import reading, retried, snapshots, store_errors
from mlbench.store.rows import RunSetRows, build_rows
from mlbench.store.summary import RunSetSummary, summary_columns
from mlbench.store.tables import Base, Baseline, Run, RunSet, System, TelemetrySeries

NEWEST = 50
"""How many run sets a list shows unless told otherwise."""
_LATEST = re.compile(r"^latest(?:~(\d{1,9}))?$")


class SaveOutcome(Enum):
    inserted = "inserted"
    replaced = "replaced"
    unchanged = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetFilter:
    """Which run sets a list holds; None asks for nothing. Text is compared without regard to case."""

    system: str | None = None
    """A part of the system's name."""
    benchmark: str | None = None
    org: str | None = None
    round: str | None = None
    origin: str | None = None
    status: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredRunSet:
    """Where a run set came from. `log_paths` are relative to `path`, or absolute.

    `runs_folder`: the name of the folder of run sets that holds it (collect/runs_marker.py), None where it has none.
    """

    run_set: str
    origin: str
    round: str | None
    content_hash: str
    path: str | None
    log_paths: tuple[str, ...]
    runs_folder: str | None = None


def save_run_set(engine: Engine, run_set: RunSet, *, force: bool = False) -> SaveOutcome:
    """Store a run set with everything below it, or bring a stored one up to date with its files.

    The public id and the content hash decide: the same hash changes nothing (unless `force`), another one replaces
    the rows but keeps the row number, so what points to the run set still does.
    Raises: StoreError: the database cannot be written; nothing of the run set is then stored.
    """
    rows = build_rows(run_set)
    return retried(engine, lambda connection: _save(connection, rows, force))


def delete_run_set(engine: Engine, run_set: str) -> bool:
    """Remove a run set's rows (not its files). Returns whether it was there."""

    def remove(connection: Connection) -> bool:
        gone = connection.execute(delete(RunSet).where(RunSet.run_set == run_set)).rowcount > 0
        _drop_unused_systems(connection)
        return gone

    return retried(engine, remove)


def find_run_set(engine: Engine, text: str) -> str:
    """The public id that `text` means: an id, the beginning of exactly one, `latest`, `latest~N`, or a run folder.

    `latest` is the run set that started last, `latest~1` the one before.
    Raises: InputError: none or several match; the message names the nearest.
    """
    with reading(engine) as connection:
        latest = _LATEST.match(text)
        if latest:
            return _nth_latest(connection, int(latest[1] or 0), text)
        names = select(RunSet.run_set)
        if connection.execute(names.where(RunSet.run_set == text)).first():
            return text
        begun = list(
            connection.execute(names.where(RunSet.run_set.startswith(text, autoescape=True)).limit(6)).scalars()
        )
        if len(begun) == 1:
            return str(begun[0])
        if begun:
            shown = ", ".join(sorted(begun)[:5]) + (", ..." if len(begun) > 5 else "")
            raise InputError(f"run set {text!r}: several begin so ({shown}); write more of it")
        folder = Path(text).name
        if folder != text and connection.execute(names.where(RunSet.run_set == folder)).first():
            return folder
        known = list(connection.execute(names.order_by(*newest_first()).limit(1000)).scalars())
    hint = near_miss(text, known) or (
        "; `mlbench results list` shows those there are" if known else "; there is none yet"
    )
    raise InputError(f"run set {text!r}: not in the database{hint}")


def list_run_sets(
    engine: Engine, filters: RunSetFilter | None = None, limit: int | None = NEWEST
) -> list[RunSetSummary]:
    """Run sets, the newest first. `limit` None lists all."""
    query = select(*summary_columns()).where(*filter_conditions(filters or RunSetFilter())).order_by(*newest_first())
    with reading(engine) as connection:
        return [RunSetSummary(**row) for row in connection.execute(query.limit(limit)).mappings()]


def count_run_sets(engine: Engine, filters: RunSetFilter | None = None) -> int:
    query = select(func.count()).select_from(RunSet).where(*filter_conditions(filters or RunSetFilter()))
    with reading(engine) as connection:
        return int(connection.execute(query).scalar_one())


def load_run_set(engine: Engine, text: str, *, telemetry: bool = False) -> RunSet:
    """A run set with its runs, epochs, evaluations, hyperparameters, stages and notes, usable without the database.

    Args: text: as `find_run_set` takes it. telemetry: load the time lines too (`run.telemetry`); they are large.
    Raises: InputError: no such run set.
    """
    return load_run_sets(engine, [find_run_set(engine, text)], telemetry=telemetry)[0]


def load_run_sets(engine: Engine, names: Sequence[str], *, telemetry: bool = False) -> list[RunSet]:
    """Run sets by public id, in the order given. Raises InputError for an id that is not there."""
    runs = selectinload(RunSet.runs)
    options = [
        runs.selectinload(Run.epoch_rows),
        runs.selectinload(Run.evaluations),
        runs.selectinload(Run.hyperparameters),
        selectinload(RunSet.allreduce),
        selectinload(RunSet.storage),
        selectinload(RunSet.notes),
        selectinload(RunSet.host_facts),
        selectinload(RunSet.description),
        undefer(RunSet.config),
        undefer(RunSet.provenance),
    ]
    if telemetry:
        options.append(runs.selectinload(Run.telemetry))
    with store_errors(engine), Session(snapshots(engine), expire_on_commit=False) as session:
        found = session.scalars(select(RunSet).where(RunSet.run_set.in_(names)).options(*options)).all()
        session.expunge_all()
    by_name = {run_set.run_set: run_set for run_set in found}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InputError(f"run set {missing[0]!r}: not in the database")
    return [by_name[name] for name in names]


def all_run_sets(engine: Engine) -> list[StoredRunSet]:
    """Identity and origin of every run set, ordered by public id."""
    query = select(
        RunSet.id, RunSet.run_set, RunSet.origin, RunSet.round, RunSet.content_hash, RunSet.path, RunSet.runs_folder
    )
    logs = select(Run.run_set_id, Run.log_path).where(Run.log_path.is_not(None)).order_by(Run.id)
    with reading(engine) as connection:
        paths: dict[int, list[str]] = {}
        for number, path in connection.execute(logs):
            paths.setdefault(number, []).append(str(path))
        return [
            StoredRunSet(row[1], row[2], row[3], row[4], row[5], tuple(paths.get(row[0], ())), row[6])
            for row in connection.execute(query.order_by(RunSet.run_set))
        ]


def stored_hash(engine: Engine, run_set: str) -> str | None:
    """Content hash under a public id, None when it is not there."""
    with reading(engine) as connection:
        found = connection.execute(select(RunSet.content_hash).where(RunSet.run_set == run_set)).scalar()
    return None if found is None else str(found)


def pin_baseline(engine: Engine, name: str, run_set: str) -> None:
    """Give a run set the name `name`, taking it from another that had it. `run_set` as `find_run_set` takes it."""
    public_id = find_run_set(engine, run_set)

    def pin(connection: Connection) -> None:
        number = connection.execute(select(RunSet.id).where(RunSet.run_set == public_id)).scalar_one()
        connection.execute(delete(Baseline).where(Baseline.name == name))
        connection.execute(insert(Baseline).values(name=name, run_set_id=number, pinned_at=datetime.now(UTC)))

    retried(engine, pin)


def unpin_baseline(engine: Engine, name: str) -> bool:
    """Forget a name. Returns whether it was there."""
    return retried(
        engine, lambda connection: connection.execute(delete(Baseline).where(Baseline.name == name)).rowcount > 0
    )


def baselines(engine: Engine) -> dict[str, tuple[str, datetime]]:
    """name -> (public id, moment it was pinned)."""
    query = select(Baseline.name, RunSet.run_set, Baseline.pinned_at).join(RunSet).order_by(Baseline.name)
    with reading(engine) as connection:
        return {row[0]: (row[1], row[2]) for row in connection.execute(query)}


def _save(connection: Connection, rows: RunSetRows, force: bool) -> SaveOutcome:
    same = RunSet.run_set == rows.row["run_set"]
    stored = connection.execute(select(RunSet.id, RunSet.content_hash).where(same).with_for_update()).first()
    if stored is not None and stored.content_hash == rows.row["content_hash"] and not force:
        return SaveOutcome.unchanged
    row = rows.row | {"system_id": _system_id(connection, rows.system)}
    if stored is None:
        number = _insert_one(connection, RunSet, row)
    else:
        number = int(stored.id)
        _remove_children(connection, number)
        connection.execute(update(RunSet).where(RunSet.id == number).values(**row))
    below = {table: [row | {"run_set_id": number} for row in children] for table, children in rows.children.items()}
    for run, run_id in zip(rows.runs, _insert_runs(connection, rows, number), strict=True):
        for table, children in run.children.items():
            below.setdefault(table, []).extend(row | {"run_id": run_id} for row in children)
    for table, children in below.items():
        insert_rows(connection, table, children)
    if stored is not None:
        _drop_unused_systems(connection)
    return SaveOutcome.inserted if stored is None else SaveOutcome.replaced


def _insert_one(connection: Connection, record: type[Base], row: dict[str, Any]) -> int:
    key = connection.execute(insert(record).values(**row)).inserted_primary_key
    return int(key[0]) if key else 0


def _insert_runs(connection: Connection, rows: RunSetRows, number: int) -> list[int]:
    """Row numbers of the runs, in their order; one statement for all."""
    if not rows.runs:
        return []
    statement = insert(Run).returning(Run.id, sort_by_parameter_order=True)
    return list(connection.execute(statement, [run.row | {"run_set_id": number} for run in rows.runs]).scalars())


def _remove_children(connection: Connection, number: int) -> None:
    for table in Base.metadata.sorted_tables:
        # Rows below the runs go with them; a name given to the run set stays with it.
        if "run_set_id" in table.columns and table is not Baseline.__table__:
            connection.execute(delete(table).where(table.c.run_set_id == number))


def _system_id(connection: Connection, system: dict[str, Any] | None) -> int | None:
    if system is None:
        return None
    known = connection.execute(select(System.id).where(System.fingerprint == system["fingerprint"])).scalar()
    return int(known) if known is not None else _insert_one(connection, System, system)


def _drop_unused_systems(connection: Connection) -> None:
    used = select(RunSet.system_id).where(RunSet.system_id.is_not(None))
    connection.execute(delete(System).where(System.id.not_in(used)))


def _nth_latest(connection: Connection, back: int, text: str) -> str:
    found = connection.execute(select(RunSet.run_set).order_by(*newest_first()).offset(back).limit(1)).scalar()
    if found is not None:
        return str(found)
    number = connection.execute(select(func.count()).select_from(RunSet)).scalar_one()
    raise InputError(f"run set {text!r}: the database holds {number} run sets")


def newest_first() -> tuple[ColumnElement[Any], ...]:
    """Order by start; what has no start comes last, and the later stored of two comes first."""
    return (RunSet.started_at.desc().nulls_last(), RunSet.id.desc())


def filter_conditions(filters: RunSetFilter) -> list[ColumnElement[bool]]:
    """The conditions of a WHERE; none for a filter that asks for nothing."""
    exact = {
        RunSet.benchmark: filters.benchmark,
        RunSet.round: filters.round,
        RunSet.origin: filters.origin,
        RunSet.score_status: filters.status,
    }
    conditions: list[ColumnElement[bool]] = [
        func.lower(column) == value.lower() for column, value in exact.items() if value is not None
    ]
    if filters.system is not None:
        conditions.append(RunSet.system.icontains(filters.system, autoescape=True))
    if filters.org is not None:
        conditions.append(
            or_(func.lower(RunSet.org) == filters.org.lower(), func.lower(RunSet.org_logged) == filters.org.lower())
        )
    if filters.since is not None:
        conditions.append(RunSet.started_at >= filters.since)
    return conditions


def telemetry_of(engine: Engine, run_id: int) -> list[TelemetrySeries]:
    """The time lines of one run, ordered by host and metric. `run_id` is `Run.id` of a loaded run."""
    query = select(TelemetrySeries).where(TelemetrySeries.run_id == run_id)
    with store_errors(engine), Session(snapshots(engine), expire_on_commit=False) as session:
        found = session.scalars(query.order_by(TelemetrySeries.host, TelemetrySeries.metric)).all()
        session.expunge_all()
    return list(found)
