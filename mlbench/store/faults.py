"""What a fault of a driver means: one sentence that names the database and what to do, and whether trying again helps.

Nothing here shows a password: names of databases go through `display_name`, words of drivers through `mask_url`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from mlbench.secret_names import mask_url
from mlbench.store import locks
from mlbench.store.locks import BUSY_TIMEOUT_S
from mlbench.store.url import sqlite_path

_BUSY_WORDS = ("locked", "busy", "locking protocol")
_BUSY_STATES = {"40001", "40P01", "55P03"}  # serialisation failure, deadlock, lock not available
_LOST_STATES = {"57P01", "57P02", "57P03", "53300"}  # shut down, crashed, cannot connect now, too many clients
_NOT_NOW = ("starting up", "shutting down", "recovery mode", "too many c", "remaining connection slots")
"""How a server says that it will answer soon; while a connection is made the driver keeps no code."""
_GONE = (
    "closed the connection",
    "connection is lost",
    "connection is closed",
    "connection not open",
    "connection reset",
)
_ADVICE_BY_STATE = {
    "42501": "this user may not do that; ask for SELECT, INSERT, UPDATE and DELETE on its tables and USAGE on its "
    "sequences, or name another user",
    "25006": "this server or user only reads; name a database that may be written with --db or MLBENCH_DB_URL",
    "53100": "the disk of the server is full; free some space there, then `mlbench db rebuild` reads runs/ again",
    "55P03": f"another process has held what is needed for {BUSY_TIMEOUT_S:.0f} s; run the command again",
    "57014": "the server ended the statement; run the command again",
}
_ADVICE_BY_WORDS = (
    ("password", "give the right one in MLBENCH_DB_URL or ~/.pgpass"),
    ("authentication failed", "check user and password in MLBENCH_DB_URL or ~/.pgpass"),
    ("no pg_hba.conf entry", "the server does not let this user in from here; ask who runs it"),
    ("too many c", "run the command again when others have ended, or raise max_connections there"),
    ("remaining connection slots", "run the command again when others have ended, or raise max_connections there"),
)


def display_name(engine: Engine) -> str:
    """What messages call the database: the path of an SQLite file, else the URL without its password."""
    path = path_of(engine)
    return str(path) if path else mask_url(str(engine.url)).replace("postgresql+psycopg:", "postgresql:")


def path_of(engine: Engine) -> Path | None:
    """The file of an SQLite engine; None for PostgreSQL and for a database in memory."""
    return sqlite_path(engine.url.render_as_string(hide_password=False))


def explain(engine: Engine, error: SQLAlchemyError) -> str:
    """One sentence for a fault of the driver: which database, what it said, what to do."""
    reason = _said(error)
    path = path_of(engine)
    if path is not None:
        return _explain_sqlite(path, reason)
    return f"{display_name(engine)}: {reason}; {_advice(engine, error, reason)}"


def is_busy(error: DBAPIError) -> bool:
    """Another process holds what is needed, or made the same row at once, so that a second look finds it."""
    if isinstance(error.orig, sqlite3.Error):
        return isinstance(error, OperationalError) and any(word in str(error.orig).lower() for word in _BUSY_WORDS)
    return isinstance(error, IntegrityError) or _state(error) in _BUSY_STATES


def is_lost(error: DBAPIError) -> bool:
    """The connection to the server broke, or none could be made."""
    if isinstance(error.orig, sqlite3.Error) or not isinstance(error, OperationalError):
        return False
    return error.connection_invalidated or _state(error) in (None, *_LOST_STATES)


def is_refused_for_now(error: DBAPIError) -> bool:
    """The server is there and says that it will take a connection later."""
    return is_lost(error) and (_state(error) in _LOST_STATES or any(word in str(error.orig) for word in _NOT_NOW))


def _state(error: SQLAlchemyError) -> str | None:
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return None if state is None else str(state)


def _said(error: SQLAlchemyError) -> str:
    """The driver's words on one line. Of several addresses tried in turn, what the last one said."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    if not lines:
        return type(error).__name__
    line = lines[-1].lstrip("- ") if lines[0].startswith("Multiple connection attempts") else lines[0]
    return mask_url(" ".join(line.removeprefix("connection failed: ").replace("FATAL: ", "").split()))


def _advice(engine: Engine, error: SQLAlchemyError, reason: str) -> str:
    known = _ADVICE_BY_STATE.get(_state(error) or "")
    if known is not None:
        return known
    lowered = reason.lower()
    if "database" in lowered and "does not exist" in lowered:
        return f"make it there with `createdb {engine.url.database}`, or correct its name"
    for words, advice in _ADVICE_BY_WORDS:
        if words in lowered:
            return advice
    if any(words in lowered for words in _GONE):
        return "the server went away; nothing was stored by half, run the command again once it is back"
    return "check that the server runs and that the user may write there"


def _explain_sqlite(path: Path, reason: str) -> str:
    lowered = reason.lower()
    busy = any(word in lowered for word in _BUSY_WORDS)
    if busy or "disk i/o error" in lowered:
        fault = locks.lock_fault(path.parent)
        # A probe that finds no room for its file says nothing about locks.
        if fault is not None and "No space left" not in fault:
            return (
                f"{path}: file locks do not work on this file system ({fault}); keep the database on a local disk "
                "or use PostgreSQL (MLBENCH_DB_URL); results in runs/ are complete and `mlbench db rebuild` reads them"
            )
    if busy:
        return f"{path}: another process has held the database for {BUSY_TIMEOUT_S:.0f} s; run the command again"
    if "full" in lowered or "disk i/o error" in lowered:
        return f"{path}: the disk is full ({reason}); free some space, then `mlbench db rebuild` reads runs/ again"
    if "readonly" in lowered or "unable to open" in lowered:
        return f"{path}: cannot be opened or written ({reason}); check the rights of the file and its folder"
    if "malformed" in lowered or "not a database" in lowered:
        return f"{path}: is damaged or no SQLite database ({reason}); `mlbench db rebuild` makes it anew from runs/"
    return f"{path}: {reason}"
