"""Every released schema upgrades without loss; an upgrade that is cut short changes nothing."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect

from mlbench.errors import StoreError
from mlbench.store import schema, upgrade
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database, open_unchecked, reading, retried
from mlbench.store.repository import all_run_sets, baselines, load_run_set, save_run_set
from mlbench.store.tables import Base
from mlbench.store.upgrade import MIGRATIONS, newest, upgrade_database
from tests.support.run_sets import make_run_set

HERE = Path(__file__).parent
SCHEMAS = sorted((HERE / "schemas").glob("*.sql"))
NEXT = (MIGRATIONS / "versions", HERE / "next_versions")


def _old_database(path: Path, dump: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.executescript(dump.read_text(encoding="utf-8"))
    connection.close()
    return path


def _migrated(db: Engine) -> None:
    versions = (MIGRATIONS / "versions",)
    retried(db, lambda connection: upgrade.command.upgrade(upgrade._config(versions, connection), "head"))


def test_head_is_the_newest_migration() -> None:
    assert newest() == schema.HEAD


def test_every_migration_has_a_fixture_of_its_schema() -> None:
    versions = {path.name[1:5] for path in (MIGRATIONS / "versions").glob("v*.py")}
    assert {path.stem for path in SCHEMAS} == versions


def test_migrations_make_the_tables_of_the_code(db_url: str, tmp_path: Path) -> None:
    """A database made at once and one made by the migrations are the same; so neither can be forgotten."""
    made = open_database(db_url)
    with reading(made) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    if made.dialect.name == "sqlite":
        migrated = open_unchecked(str(tmp_path / "migrated.sqlite"))
        _migrated(migrated)
        with reading(migrated) as connection:
            assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert _described(migrated) == _described(made)


def _described(db: Engine) -> dict[str, object]:
    inspector = inspect(db)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns(table)],
            sorted(str(index) for index in inspector.get_indexes(table)),
            sorted(str(key["column_names"]) for key in inspector.get_unique_constraints(table)),
            sorted(str(sorted(key.items(), key=str)) for key in inspector.get_foreign_keys(table)),
        )
        for table in inspector.get_table_names()
    }


@pytest.mark.parametrize("dump", SCHEMAS, ids=lambda path: path.stem)
def test_old_schema_opens_without_loss(tmp_path: Path, dump: Path) -> None:
    path = _old_database(tmp_path / "old.sqlite", dump)
    db = open_database(str(path), readonly=True)
    assert [item.run_set for item in all_run_sets(db)] == ["set-a", "v0.7/Lab/sys/resnet"]
    assert canonical_rows(load_run_set(db, "set-a", telemetry=True)) == canonical_rows(make_run_set("set-a"))
    assert baselines(db)["good"][0] == "set-a"


def test_upgrade_keeps_rows_and_a_copy(tmp_path: Path) -> None:
    path = _old_database(tmp_path / "old.sqlite", HERE / "schemas" / "0001.sql")
    before = sqlite3.connect(path).execute("SELECT count(*), sum(time_to_train_s) FROM run").fetchall()
    done = upgrade_database(open_unchecked(str(path)), versions=NEXT)
    assert (done.old, done.new) == ("0001", "0003")
    upgraded = sqlite3.connect(path)
    assert upgraded.execute("SELECT count(*), sum(time_to_train_s) FROM run").fetchall() == before
    assert upgraded.execute("SELECT DISTINCT rack FROM run_set").fetchall() == [("rack 299",)]
    assert upgraded.execute("SELECT count(*) FROM baseline").fetchall() == [(1,)]
    assert upgraded.execute("PRAGMA foreign_key_check").fetchall() == []
    assert done.copy is not None
    assert done.copy.name.startswith("old.sqlite.schema-0001-")
    copy = sqlite3.connect(done.copy)
    assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    assert copy.execute("SELECT count(*), sum(time_to_train_s) FROM run").fetchall() == before
    for connection in (upgraded, copy):
        connection.close()


def test_upgrade_is_automatic_for_sqlite_when_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _old_database(tmp_path / "old.sqlite", HERE / "schemas" / "0001.sql")
    monkeypatch.setattr(schema, "HEAD", "0003")
    monkeypatch.setattr(upgrade_database, "__kwdefaults__", {"versions": NEXT})
    for readonly in (True, False):
        db = open_database(str(path), readonly=readonly)
        with reading(db) as connection:
            assert schema.read_version(connection, "old") == "0003"
    assert len(list(tmp_path.glob("old.sqlite.schema-0001-*"))) == 1


@pytest.mark.postgres
def test_upgrade_of_postgres_must_be_asked_for(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save_run_set(open_database(postgres_url), make_run_set())
    monkeypatch.setattr(schema, "HEAD", "0003")
    with pytest.raises(StoreError, match="has schema 0002, this mlbench needs 0003; run `mlbench db upgrade`"):
        open_database(postgres_url)
    done = upgrade_database(open_unchecked(postgres_url), versions=NEXT)
    assert (done.old, done.new, done.copy) == ("0002", "0003", None)
    with reading(open_database(postgres_url)) as connection:
        assert connection.exec_driver_sql("SELECT rack FROM run_set").scalars().all() == ["unknown"]


def test_upgrade_that_fails_half_way_leaves_the_old_state(db_url: str, tmp_path: Path) -> None:
    save_run_set(open_database(db_url), make_run_set())
    broken = tmp_path / "broken"
    broken.mkdir()
    text = (HERE / "next_versions" / "v0003_next.py").read_text()
    (broken / "v0003_next.py").write_text(text + "    op.execute('INSERT INTO no_such_table VALUES (1)')\n")
    with pytest.raises(StoreError, match="no_such_table"):
        upgrade_database(open_unchecked(db_url), versions=(MIGRATIONS / "versions", broken))
    db = open_database(db_url)
    assert canonical_rows(load_run_set(db, "set-a", telemetry=True)) == canonical_rows(make_run_set())
    assert "rack" not in {column["name"] for column in inspect(db).get_columns("run_set")}


def test_upgrade_of_newest_does_nothing(db_url: str) -> None:
    db = open_database(db_url)
    done = upgrade_database(db)
    assert (done.old, done.new, done.copy) == (schema.HEAD, schema.HEAD, None)


_UPGRADE = """
import sys
from pathlib import Path
from mlbench.store.engine import open_unchecked
from mlbench.store.upgrade import upgrade_database
open_unchecked
print("ready", flush=True)
upgrade_database(open_unchecked(sys.argv[1]), versions=tuple(map(Path, sys.argv[2:])))
"""


@pytest.mark.slow
def test_upgrade_killed_at_random_moments_is_finished_by_running_again(tmp_path: Path) -> None:
    """SIGKILL, 30 times: each time the file holds the old schema or the new one, whole."""
    seed = int(os.environ.get("MLBENCH_TEST_SEED", str(random.randrange(10**6))))
    draw = random.Random(seed)
    _, whole_s = _upgrade_once(tmp_path / "timed.sqlite", None)
    num_killed = 0
    for number in range(30):
        path = tmp_path / f"{number}.sqlite"
        killed, _ = _upgrade_once(path, draw.uniform(0, whole_s))
        num_killed += killed
        with sqlite3.connect(path) as connection:
            version = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            columns = [row[1] for row in connection.execute("PRAGMA table_info(run_set)")]
            assert ("rack" in columns) == (version == "0003"), f"seed {seed}, {number}: {version} with {columns}"
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("SELECT count(*) FROM run").fetchall() == [(7,)]
        connection.close()
        upgrade_database(open_unchecked(str(path)), versions=NEXT)
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0003",)
        connection.close()
    assert num_killed > 5, f"seed {seed}: only {num_killed} of 30 were killed in time"


def _upgrade_once(path: Path, kill_after_s: float | None) -> tuple[bool, float]:
    """Whether it was killed in time, and the seconds of the upgrade, without those that the process needs to start."""
    _old_database(path, HERE / "schemas" / "0001.sql")
    child = subprocess.Popen([sys.executable, "-c", _UPGRADE, str(path), *map(str, NEXT)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    begun = time.monotonic()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        child.kill()
    status = child.wait(timeout=60)
    child.stdout.close()
    return status == -signal.SIGKILL, time.monotonic() - begun
