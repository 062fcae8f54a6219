"""Which version of the schema a database has, read with plain SQL: opening a database never imports Alembic."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from mlbench.errors import StoreError

HEAD = "0002"
"""The newest migration in migrations/versions; a test holds the two together."""
VERSION_TABLE = "alembic_version"


def quick_version(connection: Connection) -> str | None:
    """HEAD when that is the version, asked with one statement; None for all else, which `read_version` tells."""
    try:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    except DBAPIError:
        connection.rollback()
        return None
    return HEAD if found == [HEAD] else None


def read_version(connection: Connection, name: str) -> str | None:
    """The version of the schema, None for an empty database. `name` is what messages call the database.

    Raises: StoreError: the database belongs to something else, or a version is no number of ours.
    """
    inspector = inspect(connection)
    if not inspector.has_table(VERSION_TABLE):
        tables = inspector.get_table_names()
        # Another process may have made our tables between the two questions.
        if VERSION_TABLE not in tables:
            _refuse_others(connection, tables, name)
            return None
    rows = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    if len(rows) != 1 or not str(rows[0]).isdigit():
        raise StoreError(f"{name}: schema version is {', '.join(map(str, rows)) or 'missing'}, expected one number")
    return str(rows[0])


def _refuse_others(connection: Connection, tables: Sequence[str], name: str) -> None:
    # A PostgreSQL database may be shared; an SQLite file is ours or it is not.
    if tables and (connection.dialect.name == "sqlite" or "run_set" in tables):
        raise StoreError(
            f"{name}: holds tables that mlbench did not make ({', '.join(sorted(tables)[:3])}); "
            "name another database with --db or MLBENCH_DB_URL"
        )


def stamp(connection: Connection, version: str) -> None:
    """Record `version` in a database whose tables were just made, as Alembic would have."""
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:version)"), {"version": version})


def is_newer(version: str, than: str = HEAD) -> bool:
    return int(version) > int(than)
