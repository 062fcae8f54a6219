"""Bring a database to the newest schema: one transaction, so an upgrade that is cut short changes nothing.

An SQLite file is copied first, beside itself, as `<name>.schema-<old version>-<UTC time>`.
Only this module imports Alembic.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine

from mlbench.errors import StoreError
from mlbench.store import schema
from mlbench.store.engine import (
    ADVISORY_LOCK,
    create_schema,
    reading,
    refuse_newer,
    retried,
    store_errors,
    unguarded,
)
from mlbench.store.faults import display_name, path_of

MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What happened. `old` is None when the database was empty; `copy` is the SQLite file kept as it was."""

    old: str | None
    new: str
    copy: Path | None


def upgrade_database(engine: Engine, *, versions: tuple[Path, ...] = (MIGRATIONS / "versions",)) -> Upgrade:
    """Upgrade to the newest of `versions`, waiting for others who write or upgrade.

    Raises: StoreError: the schema is newer than this mlbench, the copy cannot be made, or a migration fails; the
        database is then as it was.
    """
    name = display_name(engine)
    with reading(engine) as connection:
        old = schema.read_version(connection, name)
    if old is None:
        create_schema(engine)
        return Upgrade(None, schema.HEAD, None)
    head = newest(versions)
    refuse_newer(old, name, head)
    if old == head:
        return Upgrade(old, head, None)
    path = path_of(engine)
    copy = _copy_file(engine, path, old) if path is not None else None

    def run(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
        if schema.read_version(connection, name) == head:
            return  # another process was quicker
        command.upgrade(_config(versions, connection), "head")
        _check_references(connection, name)

    retried(unguarded(engine), run)
    return Upgrade(old, head, copy)


def newest(versions: tuple[Path, ...] = (MIGRATIONS / "versions",)) -> str:
    """The version after all migrations. Raises if they do not form one line."""
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(_config(versions, None)).get_current_head()
    assert head is not None, "there is at least the first migration"
    return head


def _config(versions: tuple[Path, ...], connection: Connection | None) -> Config:
    config = Config()
    # Alembic reads its options as a format string.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(map(str, versions)).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _copy_file(engine: Engine, path: Path, version: str) -> Path:
    """A consistent copy, made while others may still write."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    copy = path.with_name(f"{path.name}.schema-{version}-{stamp}")
    part = copy.with_name(copy.name + ".part")
    try:
        with store_errors(engine):
            raw = engine.raw_connection()
            try:
                target = sqlite3.connect(part)
                raw.driver_connection.backup(target)  # type: ignore[union-attr]
                target.close()
            finally:
                raw.close()
        part.replace(copy)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{copy}: the copy before the upgrade cannot be made ({error}); nothing was changed"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return copy


def _check_references(connection: Connection, name: str) -> None:
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(
            f"{name}: the upgrade would leave a row of {broken[0]} without its {broken[2]}; nothing changed"
        )
