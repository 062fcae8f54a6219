"""Open the database: SQLite in write-ahead mode or PostgreSQL, made, checked and upgraded on the way.

Every write is one short transaction that takes its lock at the start (`retried`), so many processes can store
results at once; what still collides is tried again. Every fault of a driver leaves here as a StoreError.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError, TimeoutError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from mlbench.errors import StoreError
from mlbench.secret_names import mask_url
from mlbench.store import locks, schema
from mlbench.store.faults import display_name, explain, is_busy, is_lost, is_refused_for_now, path_of
from mlbench.store.locks import BUSY_TIMEOUT_S
from mlbench.store.url import MEMORY, resolve_url, sqlite_path

RETRY_LIMIT_S = 60.0
"""How long a write is tried again while others hold what it needs."""
RECONNECT_LIMIT_S = 20.0
"""How long a server that went away is asked again; a restart takes seconds."""
ADVISORY_LOCK = 0x6D6C6265
"""Key of the PostgreSQL lock that guards making and upgrading the schema."""

_WRITE = "mlbench_write"
_T = TypeVar("_T")


class NoDatabaseError(StoreError):
    """There is no database yet, so there is nothing to read."""


def open_database(url: str | None = None, *, readonly: bool = False) -> Engine:
    """An engine on a database of the current schema.

    Args: url: as the user gave it; None takes MLBENCH_DB_URL or the default, see mlbench.store.url.
        readonly: nothing is created; the database refuses writes.
    Raises: NoDatabaseError: `readonly` and no database there. StoreError: it cannot be opened, belongs to something
        else, has a newer schema, or lies where file locks do not work.
    """
    engine = _open_readonly(url) if readonly else open_unchecked(url)
    _match_schema(engine, readonly)
    return engine


def _open_readonly(url: str | None) -> Engine:
    resolved = resolve_url(url)
    path = sqlite_path(resolved)
    if path is None:
        return _memory_engine() if resolved == MEMORY else _postgres_engine(resolved, readonly=True)
    _check_folder(path, readonly=True)
    return _sqlite_engine(path, readonly=True)


def open_unchecked(url: str | None = None) -> Engine:
    """A writing engine whatever the schema is, for upgrading and repairing. Raises StoreError."""
    resolved = resolve_url(url)
    path = sqlite_path(resolved)
    if path is None:
        return _memory_engine() if resolved == MEMORY else _postgres_engine(resolved, readonly=False)
    _check_folder(path, readonly=False)
    return _sqlite_engine(path, readonly=False)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database throughout."""
    with store_errors(engine), snapshots(engine).connect() as connection:
        yield connection


def snapshots(engine: Engine) -> Engine:
    """The same database, each of whose transactions only reads, and reads one state of it.

    SQLite's do so anyway; PostgreSQL's would see what others commit between two statements.
    """
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def retried(engine: Engine, action: Callable[[Connection], _T]) -> _T:
    """Run `action` in one write transaction; try again while others hold what it needs.

    A server that goes away in between is asked again too, for as long as a restart takes. `action` may run several
    times, also when its first commit was made and not told, and must have no other effect than its SQL.
    Raises: StoreError: the database stayed busy for RETRY_LIMIT_S or away for RECONNECT_LIMIT_S, is full, damaged or
        not writable.
    """
    begun = time.monotonic()
    pause_s = 0.02
    writer = engine.execution_options(**{_WRITE: True})
    with store_errors(engine):
        while True:
            try:
                with writer.begin() as connection:
                    return action(connection)
            except DBAPIError as error:
                limit_s = RETRY_LIMIT_S if is_busy(error) else RECONNECT_LIMIT_S if is_lost(error) else 0.0
                if time.monotonic() - begun >= limit_s:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, 1.0)


@contextmanager
def store_errors(engine: Engine) -> Iterator[None]:
    """Turn the faults of a driver into one sentence that names the database."""
    try:
        yield
    except (DBAPIError, TimeoutError) as error:
        raise StoreError(explain(engine, error)) from error


def _check_folder(path: Path, readonly: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path}: is a folder, expected an SQLite file")
    if path.exists() and not path.is_file():
        # SQLite would wait for somebody to write into a pipe
        raise StoreError(f"{path}: is a device, pipe or socket, expected an SQLite file")
    if readonly:
        if not path.exists():
            raise NoDatabaseError(f"{path}: there is no database yet; `mlbench` or `mlbench import` makes it")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent}: cannot be created for the database ({error.strerror})") from error
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise StoreError(
            f"{path}: this user may not write there; results stay as files in runs/, and "
            "`mlbench db rebuild --db FILE` reads them into a database elsewhere"
        )
    if locks.is_network(path.parent):
        fault = locks.lock_fault(path.parent)
        if fault is not None:
            raise StoreError(
                f"{path}: file locks do not work on this file system ({fault}); keep the database on a local disk or "
                "use PostgreSQL (MLBENCH_DB_URL)"
            )


def _sqlite_engine(path: Path, readonly: bool, guarded: bool = True) -> Engine:
    mode = "ro" if readonly else "rwc"

    def connect() -> sqlite3.Connection:
        uri = f"file:{quote(str(path))}?mode={mode}"
        if readonly and _is_settled(path):
            uri += "&immutable=1"
        return sqlite3.connect(
            uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    url = "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    engine = create_engine(url, creator=connect, poolclass=NullPool)
    _prepare_sqlite(engine, readonly, guarded)
    return engine


def _is_settled(path: Path) -> bool:
    """A finished database in a folder that nobody may write: SQLite then reads it without a log beside it."""
    log = path.with_name(path.name + "-wal")
    return not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size > 0)


def _memory_engine() -> Engine:
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False),
        poolclass=StaticPool,
    )
    _prepare_sqlite(engine, readonly=False)
    return engine


def unguarded(engine: Engine) -> Engine:
    """The same database without foreign keys, for migrations: rebuilding a table must not delete what refers to it."""
    path = path_of(engine)
    return engine if path is None else _sqlite_engine(path, readonly=False, guarded=False)


def _prepare_sqlite(engine: Engine, readonly: bool, guarded: bool = True) -> None:
    def set_pragmas(connection: Any, _record: Any) -> None:
        connection.execute(f"PRAGMA foreign_keys={'ON' if guarded else 'OFF'}")
        connection.execute("PRAGMA cache_size=-32000")
        if readonly:
            connection.execute("PRAGMA query_only=ON")
        else:
            # With a write-ahead log a power cut can lose the last results but not the file; runs/ still has them.
            connection.execute("PRAGMA synchronous=NORMAL")

    def begin(connection: Connection) -> None:
        # A writer takes its lock at the start, where SQLite waits for it; a lock taken later could only fail.
        wants_write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if wants_write else "BEGIN")

    event.listen(engine, "connect", set_pragmas)
    event.listen(engine, "begin", begin)


def _postgres_engine(resolved: str, readonly: bool) -> Engine:
    try:
        url = make_url(resolved)
        if "@" in (url.host or ""):
            # the driver would name the rest of the password as the host that it cannot find
            raise StoreError(f"{mask_url(resolved)}: holds an @ in user or password; write it as %40")
        return _pooled(url, tuple(_session_settings(url, readonly).items()))
    except ImportError as error:
        raise StoreError(
            f"{mask_url(resolved)}: PostgreSQL needs its driver; pip install 'mlbench[postgres]'"
        ) from error
    except (SQLAlchemyError, ValueError) as error:
        # not shown: where its parts cannot be told apart, any of them may be the password
        raise StoreError("db.url: is no PostgreSQL URL; expected postgresql://user@host:port/name") from error


@lru_cache(maxsize=8)
def _pooled(url: URL, settings: tuple[tuple[str, str], ...]) -> Engine:
    """One connection serves all that a verb asks, however often it opens the database: to make one costs more than
    most questions, and a server has few."""
    engine = create_engine(
        url, poolclass=QueuePool, pool_size=1, max_overflow=8, use_native_hstore=False, connect_args=dict(settings)
    )
    weakref.finalize(engine, engine.pool.dispose)
    return engine


def _session_settings(url: URL, readonly: bool) -> dict[str, str]:
    """What the driver is told beside the URL, whose own settings stay: a search_path among its options, for one."""
    asked = url.query.get("options") or os.environ.get("PGOPTIONS", "")
    options = [f"-c lock_timeout={BUSY_TIMEOUT_S:.0f}s", *([asked] if isinstance(asked, str) else asked)]
    if readonly:
        options.append("-c default_transaction_read_only=on")
    settings = {"client_encoding": "utf8", "fallback_application_name": "mlbench", "options": " ".join(options)}
    return settings if "connect_timeout" in url.query else settings | {"connect_timeout": "10"}


def _match_schema(engine: Engine, readonly: bool) -> None:
    """Make the schema in an empty database, bring an older SQLite file up to date, refuse what is newer."""
    name = display_name(engine)
    version = _patient_version(engine, name)
    if version == schema.HEAD:
        return
    if version is None:
        if readonly:
            raise NoDatabaseError(f"{name}: is empty; `mlbench` or `mlbench import` fills it")
        create_schema(engine)
        return
    refuse_newer(version, name)
    if engine.dialect.name != "sqlite":
        raise StoreError(
            f"{name}: has schema {version}, this mlbench needs {schema.HEAD}; run `mlbench db upgrade` once nobody "
            "else writes (it is not done unasked on a shared server)"
        )
    # Alembic takes half a second to import, so only a database that needs it pays.
    from mlbench.store.upgrade import upgrade_database

    upgrade_database(_sqlite_engine(Path(name), readonly=False) if readonly else engine)


def _patient_version(engine: Engine, name: str) -> str | None:
    """The version of the schema; a server that is just starting, or has no connection left, is asked again."""
    begun = time.monotonic()
    with store_errors(engine):
        while True:
            try:
                with engine.connect() as connection:
                    return schema.quick_version(connection) or schema.read_version(connection, name)
            except DBAPIError as error:
                if not is_refused_for_now(error) or time.monotonic() - begun > RECONNECT_LIMIT_S:
                    raise
            time.sleep(random.uniform(0.1, 0.5))


def read_schema_version(path: Path) -> str | None:
    """The schema version of an SQLite file, which is not changed. Raises StoreError."""
    engine = _sqlite_engine(path, readonly=True)
    with reading(engine) as connection:
        return schema.read_version(connection, str(path))


def refuse_newer(version: str, name: str, head: str | None = None) -> None:
    """Raises StoreError when `version` is newer than `head` (the newest this mlbench knows)."""
    if schema.is_newer(version, head or schema.HEAD):
        raise StoreError(
            f"{name}: has schema {version}, this mlbench knows up to {head or schema.HEAD}; install the mlbench that "
            "made it, or a newer one"
        )


def create_schema(engine: Engine) -> None:
    """Make all tables in one transaction; safe when several processes try at once."""
    from mlbench.store.tables import Base

    def make(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
        if schema.read_version(connection, display_name(engine)) is None:
            Base.metadata.create_all(connection)
            schema.stamp(connection, schema.HEAD)

    path = path_of(engine)
    if path is not None:
        _choose_journal(engine, path)
    retried(engine, make)


def _choose_journal(engine: Engine, path: Path) -> None:
    # Its shared memory does not reach other hosts, so a network mount keeps the classic journal.
    mode = "DELETE" if locks.is_network(path.parent) else "WAL"
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    with store_errors(engine):
        while True:
            connection = engine.raw_connection()
            try:
                connection.execute(f"PRAGMA journal_mode={mode}")
                return
            except sqlite3.OperationalError as error:
                # SQLite does not wait here by itself while another process makes the same change.
                if "locked" not in str(error) or time.monotonic() > give_up:
                    raise OperationalError(f"PRAGMA journal_mode={mode}", None, error) from error
            finally:
                connection.close()
            time.sleep(random.uniform(0.01, 0.05))
