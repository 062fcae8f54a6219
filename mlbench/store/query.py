"""A user's own SELECT, kept from writing by the database itself, with a limit on time and rows.

SQLite: the file is opened read only, an authorizer lets nothing pass but reading, and a progress handler ends the
query at its time limit. PostgreSQL: a cursor (which takes only SELECT, VALUES and WITH) in a read only transaction
with statement_timeout, sent as one prepared statement, so that a second one behind a semicolon is refused; a superuser
puts off his rights first. What it changed nevertheless, a large object for one, is rolled back.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine

from mlbench.errors import InputError
from mlbench.store.engine import store_errors
from mlbench.store.faults import display_name, path_of

DEFAULT_ROWS = 1000
DEFAULT_TIME_S = 10.0
MAX_VALUE_BYTES = 50_000_000
MAX_RESULT_BYTES = 200_000_000
"""Of all rows together, which are kept in memory until they are shown."""
_STEP_BYTES = 8_000_000
_SMALL_BYTES = 16
_READS_ONLY = "pg_read_all_data"
_STEPS_BETWEEN_CLOCKS = 2000
_READING_PRAGMAS = {"table_info", "table_list", "table_xinfo", "index_list", "index_info", "foreign_key_list"}
_HARMLESS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`truncated`: there were more rows than asked for."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool


def run_query(
    engine: Engine, text: str, *, max_rows: int = DEFAULT_ROWS, time_limit_s: float = DEFAULT_TIME_S
) -> QueryResult:
    """The rows of one SELECT.

    Raises: InputError: it is no query, tries to write, or takes longer than `time_limit_s`.
    """
    if not text.strip().strip(";"):
        raise InputError("results query: found no SQL, expected a SELECT in quotes")
    if engine.dialect.name == "sqlite":
        path = path_of(engine)
        assert path is not None, "queries run on a database file"
        return _query_sqlite(path, text, max_rows, time_limit_s)
    return _query_postgres(engine, text, max_rows, time_limit_s)


def _query_sqlite(path: Path, text: str, max_rows: int, time_limit_s: float) -> QueryResult:
    deadline = time.monotonic() + time_limit_s
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=time_limit_s)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be opened for reading ({error})") from error
    try:
        connection.execute("PRAGMA query_only=ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCKS)
        cursor = connection.execute(text)
        size, rows = _Size(), []
        for row in itertools.islice(cursor, max_rows + 1):
            size.add(row)
            rows.append(row)
        columns = tuple(item[0] for item in cursor.description or ())
    except sqlite3.Warning as error:
        raise InputError("results query: found several statements, expected one SELECT") from error
    except sqlite3.ProgrammingError as error:
        several = "one statement" in str(error)
        told = "found several statements, expected one SELECT" if several else f"{error}; write values into the SQL"
        raise InputError(f"results query: {told}") from error
    except sqlite3.Error as error:
        if "interrupted" in str(error) and time.monotonic() <= deadline:
            raise KeyboardInterrupt from error  # Ctrl-C came while SQLite asked for the time, and SQLite ate it
        raise InputError(_sqlite_refusal(error, time_limit_s)) from error
    finally:
        connection.close()
    if not columns:
        raise InputError("results query: that statement gives no rows, expected a SELECT")
    return QueryResult(columns, rows[:max_rows], len(rows) > max_rows)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _origin: str | None) -> int:
    if action in _HARMLESS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _READING_PRAGMAS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK  # how json_each declares its columns; the file itself cannot be written
    return sqlite3.SQLITE_DENY


def _sqlite_refusal(error: sqlite3.Error, time_limit_s: float) -> str:
    said = str(error)
    if "interrupted" in said:
        return _too_long(time_limit_s)
    if any(word in said for word in ("not authorized", "authorization denied", "prohibited", "readonly")):
        return f"results query: may only read, and the database refused this ({said})"
    return f"results query: {said}"


def _query_postgres(engine: Engine, text: str, max_rows: int, time_limit_s: float) -> QueryResult:
    import psycopg

    statement = text.strip().rstrip(";")
    with store_errors(engine):
        connection = engine.raw_connection()
    driver: Any = connection.driver_connection
    try:
        driver.rollback()
        with driver.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            if _is_superuser(driver):
                # A superuser could read and write the server's files by functions made for it.
                cursor.execute(f"SET LOCAL ROLE {_READS_ONLY}")
            cursor.execute(f"SET LOCAL statement_timeout = {max(1, int(time_limit_s * 1000))}")
            # Prepared, the server itself takes exactly one statement; a cursor takes none but a query.
            cursor.execute(f"DECLARE mlbench_query NO SCROLL CURSOR FOR {statement}".encode(), prepare=True)
            rows = _fetched(cursor, max_rows + 1, time.monotonic() + time_limit_s)
            columns = tuple(item.name for item in cursor.description or ())
    except psycopg.errors.QueryCanceled as error:
        raise InputError(_too_long(time_limit_s)) from error
    except psycopg.Error as error:
        said = (error.diag.message_primary or str(error)).strip()
        raise InputError(f"results query: {said} ({display_name(engine)})") from error
    finally:
        with contextlib.suppress(psycopg.Error):
            driver.rollback()
        connection.close()
    return QueryResult(columns, rows[:max_rows], len(rows) > max_rows)


def _is_superuser(driver: Any) -> bool:
    """Asked without a round trip. Older servers have no role that may read all tables and nothing else."""
    return bool(driver.info.server_version >= 140000) and bool(driver.info.parameter_status("is_superuser") == "on")


def _fetched(cursor: Any, num_wanted: int, deadline: float) -> list[tuple[Any, ...]]:
    """Rows in steps, at first one alone, so that large ones are known before many of them are asked for."""
    size = _Size()
    rows: list[tuple[Any, ...]] = []
    step = 1
    while True:
        cursor.execute(f"FETCH FORWARD {step} FROM mlbench_query")
        found = cursor.fetchall()
        for row in found:
            size.add(row)
        rows += found
        if len(found) < step or len(rows) == num_wanted:
            return rows
        average = max(1, size.total_bytes // len(rows))
        step = max(1, min(num_wanted - len(rows), _STEP_BYTES // average))
        left_s = max(0.001, deadline - time.monotonic())
        cursor.execute(f"SET LOCAL statement_timeout = {int(left_s * 1000)}")


class _Size:
    """How large an answer has become, in bytes, more or less."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def add(self, row: Sequence[Any]) -> None:
        """Raises InputError beyond MAX_RESULT_BYTES."""
        for value in row:
            if isinstance(value, str | bytes):
                self.total_bytes += len(value)
            elif isinstance(value, list | dict):
                self.total_bytes += len(str(value))
            else:
                self.total_bytes += _SMALL_BYTES
        if self.total_bytes > MAX_RESULT_BYTES:
            raise InputError(
                f"results query: the answer is larger than {MAX_RESULT_BYTES // 1_000_000} MB; ask for fewer columns "
                "or rows, or give a smaller --limit"
            )


def _too_long(time_limit_s: float) -> str:
    return f"results query: took longer than {time_limit_s:g} s and was ended; ask for less or give --time-limit"
