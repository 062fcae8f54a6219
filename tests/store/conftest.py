"""An open database of each kind for the tests of the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from mlbench.store.engine import open_database


@pytest.fixture
def db(db_url: str) -> Iterator[Engine]:
    engine = open_database(db_url)
    yield engine
    engine.dispose()
