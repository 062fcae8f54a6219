"""Databases for the tests of the store: SQLite in a new folder, and a new database in the PostgreSQL of the tests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from mlbench.store.engine import open_database


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of an empty database of its own; tests that use it carry the marker `postgres`."""
    import psycopg

    server = os.environ["MLBENCH_TEST_POSTGRES_URL"]
    name = f"mlbench_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a new database, once of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "db" / "mlbench.sqlite")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def db(db_url: str) -> Iterator[Engine]:
    engine = open_database(db_url)
    yield engine
    engine.dispose()
