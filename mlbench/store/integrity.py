"""The database's own opinion of itself."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, text

from mlbench.errors import StoreError
from mlbench.store.engine import reading
from mlbench.store.url import resolve_url, sqlite_path

_MAX_FAULTS = 20


def integrity_faults(engine: Engine) -> list[str]:
    """What SQLite's integrity and foreign key checks find, a sentence each; PostgreSQL guards both by itself."""
    if engine.dialect.name != "sqlite":
        return []
    with reading(engine) as connection:
        found = [str(row[0]) for row in connection.execute(text(f"PRAGMA integrity_check({_MAX_FAULTS})"))]
        broken = connection.execute(text("PRAGMA foreign_key_check")).fetchmany(_MAX_FAULTS)
    faults = [line for line in found if line != "ok"]
    return faults + [f"table {row[0]}, row {row[1]}: its {row[2]} is missing" for row in broken]


def set_damaged_aside(url: str | None) -> Path | None:
    """Rename an SQLite file that is no sound database, with its log, and return its new name; None when it is sound.

    Raises: StoreError: it cannot be renamed.
    """
    path = sqlite_path(resolve_url(url))
    if path is None or not path.is_file() or path.stat().st_size == 0 or _is_sound(path):
        return None
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    try:
        for suffix in ("-wal", "-shm", ""):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise StoreError(f"{path}: is damaged and cannot be renamed ({error.strerror})") from error
    return aside


def _is_sound(path: Path) -> bool:
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=30)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return True  # busy, or not ours to write: not the sign of damage
    except sqlite3.DatabaseError:
        return False
