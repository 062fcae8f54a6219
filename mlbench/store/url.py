"""Which database: a URL from the setting, the environment or the default. Nothing heavy is imported.

    db.url=...  or  --db URL  >  MLBENCH_DB_URL  >  $MLBENCH_HOME/db/mlbench.sqlite  >  ./db/mlbench.sqlite

A plain path is taken as an SQLite file. Passwords are for the driver alone: whatever is shown, logged or kept in a
file goes through `mask_url` or `storable_url`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from mlbench.errors import ConfigError
from mlbench.plan.paths import home
from mlbench.secret_names import mask_url

ENVIRONMENT = "MLBENCH_DB_URL"
MEMORY = "sqlite://"

_NOT_A_FILE = re.compile(r"^postgres(?:ql)?(?:\+\w+)?:|(?:^|\s)password\s*=", re.I)
"""A PostgreSQL address in another form than a URL; taken as a file's name its password would be shown."""
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+]*)://")


def resolve_url(given: str | None) -> str:
    """The database URL to open, absolute: SQLite paths are resolved against the current folder.

    Raises: ConfigError for a database that is neither SQLite nor PostgreSQL.
    """
    text = given or os.environ.get(ENVIRONMENT) or str(home() / "db" / "mlbench.sqlite")
    match = _SCHEME.match(text)
    if match is None:
        if _NOT_A_FILE.search(text):
            raise ConfigError("db.url: looks like a PostgreSQL address, expected the form postgresql://user@host/name")
        return _sqlite_url(Path(text))
    scheme, rest = match[1].lower(), text[match.end() :]
    dialect = scheme.partition("+")[0]
    if dialect == "sqlite":
        path, _, options = rest.partition("?")
        if path in {"", "/:memory:"}:
            return MEMORY
        if options or path.startswith("/file:"):
            raise ConfigError(f"db.url: {mask_url(text)} has options; write sqlite:///path/to/file alone")
        if not path.startswith("/"):
            raise ConfigError(
                f"db.url: {mask_url(text)} names a host; an SQLite URL has three slashes, sqlite:///path/to/file"
            )
        return _sqlite_url(Path(unquote(path[1:])))
    if dialect in {"postgresql", "postgres"}:
        return f"postgresql+psycopg://{rest}"
    raise ConfigError(f"db.url: found {mask_url(text)}, expected sqlite:///path/to/file or postgresql://user@host/name")


def sqlite_path(url: str) -> Path | None:
    """The file of a resolved SQLite URL; None for PostgreSQL and for a database in memory."""
    if not url.startswith("sqlite:///"):
        return None
    return Path(unquote(url.removeprefix("sqlite:///")))


def storable_url(url: str | None) -> str | None:
    """The URL as a file may keep it: None when it holds a password, so that it is asked for again."""
    return url if url is not None and mask_url(url) == url else None


def _sqlite_url(path: Path) -> str:
    absolute = Path.cwd() / path.expanduser()
    # '%', '?' and '#' are the only characters that a URL would read as something else.
    escaped = str(absolute).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    return f"sqlite:///{escaped}"
