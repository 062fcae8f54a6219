"""Databases of schemas that were once released, of either kind, from the dumps in tests/store/schemas."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from alembic import command
from sqlalchemy import Boolean, MetaData, Table

from mlbench.store.engine import open_unchecked, retried
from mlbench.store.upgrade import MIGRATIONS, _config
from mlbench.store.url import resolve_url, sqlite_path

SCHEMAS = Path(__file__).resolve().parents[1] / "store" / "schemas"


def make_old(url: str, version: str = "0001") -> None:
    """Fill the empty database at `url` with the rows of a dump, in its schema."""
    path = sqlite_path(resolve_url(url))
    text = (SCHEMAS / f"{version}.sql").read_text(encoding="utf-8")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _run(path, text)
        return
    source = sqlite3.connect(":memory:")
    source.executescript(text)
    source.row_factory = sqlite3.Row
    engine = open_unchecked(url)
    versions = (MIGRATIONS / "versions",)
    retried(engine, lambda connection: command.upgrade(_config(versions, connection), version))
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name == "alembic_version":
                continue
            names = ", ".join(f'"{column.key}"' for column in table.columns)
            marks = ", ".join(["%s"] * len(table.columns))
            for row in source.execute(f'SELECT {names} FROM "{table.name}"'):
                connection.exec_driver_sql(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', _plain(table, row))
            if "id" in table.columns:
                last = f'(SELECT max(id) FROM "{table.name}")'
                connection.exec_driver_sql(f"SELECT setval('{table.name}_id_seq', {last})")
    source.close()
    engine.dispose()


def _plain(table: Table, row: sqlite3.Row) -> tuple[Any, ...]:
    """SQLite has 0 and 1 where PostgreSQL wants a truth."""
    return tuple(
        bool(row[column.key]) if isinstance(column.type, Boolean) and row[column.key] is not None else row[column.key]
        for column in table.columns
    )


def _run(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
