"""Open another team's SQLite file without touching it: as it is when the schema is ours, else as an upgraded copy."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine

from mlbench.errors import StoreError
from mlbench.store import schema
from mlbench.store.engine import NoDatabaseError, open_database, read_schema_version
from mlbench.store.url import resolve_url, sqlite_path


def open_copy(url: str, folder: Path) -> Engine:
    """A reading engine on the database at `url` (a path or an SQLite URL).

    Args: folder: where a copy may be put when the schema is older.
    Raises: NoDatabaseError: no such file. StoreError: it is no database of mlbench, or a newer one.
    """
    path = sqlite_path(resolve_url(url))
    if path is None or not path.is_file():
        raise NoDatabaseError(f"{path or url}: no such file; expected an SQLite database or a folder of run sets")
    version = read_schema_version(path)
    if version is None or version == schema.HEAD:
        return open_database(str(path), readonly=True)
    copy = folder / "other.sqlite"
    try:
        source = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        target = sqlite3.connect(copy)
        source.backup(target)
        source.close()
        target.close()
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot be copied for reading ({error})") from error
    return open_database(str(copy), readonly=True)
