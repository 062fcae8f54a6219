"""The queries that come with the browser run on the schema there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

import mlbench.store
from mlbench.store.engine import open_database, reading
from mlbench.store.repository import save_run_set
from mlbench.store.tables import Base
from tests.support.run_sets import make_run_set

FILE = Path(mlbench.store.__file__).parent / "datasette.json"
DATABASE = json.loads(FILE.read_text(encoding="utf-8"))["databases"]["mlbench"]


@pytest.mark.parametrize("name", DATABASE["queries"])
def test_query_of_the_browser_gives_rows(tmp_path: Path, name: str) -> None:
    db = open_database(str(tmp_path / "x.sqlite"))
    record = make_run_set("set-a", samples_per_s=2.0, samples_per_s_first_epoch=1.0)
    record.runs[1].status = "crashed"
    save_run_set(db, record)
    values = {"run_set": "set-a", "index": 0, "metric": "cpu_share"}
    with reading(db) as connection:
        sql = DATABASE["queries"][name]["sql"]
        rows = connection.execute(text(sql), values if ":run_set" in sql else {})
        assert rows.fetchall()


def test_tables_of_the_browser_exist_with_their_columns() -> None:
    tables = Base.metadata.tables
    for name, described in DATABASE["tables"].items():
        named = [described.get("label_column"), described.get("sort_desc"), *described.get("facets", [])]
        assert {column for column in named if column} <= {column.key for column in tables[name].columns}
