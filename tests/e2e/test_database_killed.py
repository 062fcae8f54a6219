"""SIGKILL of a verb that writes the database, thirty times at random moments: whole at once, and finished by running
the same line again, row for row as if nothing had happened. On SQLite and on PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from mlbench.collect.tree import scan_tree
from mlbench.ingest.bundle import write_bundle
from mlbench.ingest.care import rebuild, run_folders, verify
from mlbench.ingest.published import import_folder
from mlbench.ingest.run_set import read_run_set
from mlbench.store import schema
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database, open_unchecked, reading
from mlbench.store.integrity import integrity_faults
from mlbench.store.repository import all_run_sets, delete_run_set, load_run_set, load_run_sets, save_run_set
from mlbench.store.upgrade import upgrade_database
from tests.support.old_databases import make_old
from tests.support.run_folders import write_run_folder
from tests.support.run_logs import run_lines, write_log
from tests.support.run_sets import make_run_set

pytestmark = pytest.mark.slow
NUM_KILLS = 30
LEAST_KILLED = 12
LEAST_AT_WORK = 1
LIMIT_S = 120
SEED = int(os.environ.get("MLBENCH_TEST_SEED", str(random.randrange(10**6))))
Rows = dict[str, dict[str, list[str]]]


@dataclass
class Scene:
    """A verb with what it works on. `clear` takes away what it wrote beside the database."""

    url: str
    home: Path
    argv: list[str]
    clear: Callable[[], None] = lambda: None

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "mlbench.cli.main", *self.argv],
            env={**os.environ, "MLBENCH_HOME": str(self.home), "MLBENCH_DB_URL": self.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def finish(self) -> float:
        """Seconds that the verb takes undisturbed."""
        begun = time.monotonic()
        assert self.start().wait(timeout=LIMIT_S) == 0
        return time.monotonic() - begun

    def kill_after(self, delay_s: float) -> bool:
        child = self.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=delay_s)
        child.kill()
        return child.wait(timeout=LIMIT_S) < 0


def _rows(db: Engine) -> Rows:
    names = [item.run_set for item in all_run_sets(db)]
    return {name: canonical_rows(record) for name, record in zip(names, _load(db, names), strict=True)}


def _load(db: Engine, names: list[str]) -> list:  # type: ignore[type-arg]
    return load_run_sets(db, names, telemetry=True) if names else []


def _empty(db: Engine) -> None:
    for item in all_run_sets(db):
        delete_run_set(db, item.run_set)


def _kill_many(scene: Scene) -> Rows:
    """Returns the rows at the end. What is there after each kill is whole and right; none goes that was there."""
    draw = random.Random(SEED)
    db = open_database(scene.url)
    whole_s = scene.finish()
    expected = _rows(db)
    assert len(expected) > 5
    _empty(db)
    scene.clear()
    killed = at_work = 0
    for number in range(NUM_KILLS):
        before = {item.run_set for item in all_run_sets(db)}
        in_time = scene.kill_after(draw.uniform(0.5, 1.0) * whole_s)
        killed += in_time
        # On a machine that others use too, the time of one go says little of the next.
        whole_s *= 1.0 if in_time else 0.9
        told = f"seed {SEED}, kill {number}"
        assert integrity_faults(db) == [], told
        found = _rows(db)
        assert before <= set(found), told
        assert found == {name: expected[name] for name in found}, told
        at_work += before < set(found) < set(expected)
        if len(found) == len(expected):
            _empty(db)
            scene.clear()
    assert killed >= LEAST_KILLED, f"seed {SEED}: only {killed} of {NUM_KILLS} were killed in time"
    assert at_work >= LEAST_AT_WORK, f"seed {SEED}: only {at_work} were killed while they stored"
    scene.finish()
    assert _rows(db) == expected
    assert integrity_faults(db) == []
    return expected


def _is_verified(scene: Scene) -> bool:
    return verify(open_database(scene.url, readonly=True), scene.home / "runs").is_good


def _tree(root: Path, num_systems: int) -> Path:
    for number in range(num_systems):
        folder = root / "training_results_v2.1" / "Lab" / "results" / f"sys{number:02d}" / "resnet"
        for run in range(5):
            write_log(folder / f"result_{run}.txt", run_lines(seed=10 * number + run, minutes=30 + number))
    return root / "training_results_v2.1"


def test_import_killed_at_random_moments(db_url: str, tmp_path: Path) -> None:
    scene = Scene(db_url, tmp_path / "home", ["import", str(_tree(tmp_path, 20))])
    assert len(_kill_many(scene)) == 20
    assert _is_verified(scene)


def test_rebuild_killed_at_random_moments(db_url: str, tmp_path: Path) -> None:
    scene = Scene(db_url, tmp_path / "home", ["db", "rebuild"])
    for number in range(12):
        write_run_folder(scene.home / "runs", f"20240501-0930{number:02d}-resnet50-{number:04d}")
    assert len(_kill_many(scene)) == 12
    assert _is_verified(scene)
    assert [path.name for path in (scene.home / "runs").glob(".*")] == [".mlbench-runs"]


def test_merge_killed_at_random_moments(db_url: str, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    source = open_database(str(other))
    for number in range(30):
        save_run_set(source, make_run_set(f"set-{number:02d}", num_runs=10, path=f"/elsewhere/set-{number:02d}"))
    scene = Scene(db_url, tmp_path / "home", ["db", "merge", str(other)])
    before = other.read_bytes()
    assert len(_kill_many(scene)) == 30
    assert other.read_bytes() == before


def test_import_of_a_bundle_killed_at_random_moments(db_url: str, tmp_path: Path) -> None:
    """Files too: each folder of runs/ and imports/ is whole or not there, and no half-unpacked one stays behind."""
    source = open_database(str(tmp_path / "source.sqlite"))
    for number in range(8):
        write_run_folder(tmp_path / "theirs", f"20240501-0930{number:02d}-resnet50-{number:04d}")
    rebuild(source, tmp_path / "theirs")
    for folder in scan_tree(_tree(tmp_path, 4)).folders:
        save_run_set(source, import_folder(folder).run_sets[0])
    write_bundle(source, [item.run_set for item in all_run_sets(source)], tmp_path / "sent.zip")
    home = tmp_path / "home"
    places = (home / "runs", home / "imports")
    hashes = {item.run_set: item.content_hash for item in all_run_sets(source)}

    def clear() -> None:
        for folder in run_folders(places[0]):
            assert read_run_set(folder).content_hash == hashes[folder.run_set]
        for place in places:
            for child in place.glob("[!.]*"):
                shutil.rmtree(child)

    scene = Scene(db_url, home, ["import", "--bundle", str(tmp_path / "sent.zip")], clear)
    assert len(_kill_many(scene)) == 12
    assert _is_verified(scene)
    assert [path.name for place in places for path in place.glob(".unpacking-*")] == []


def test_upgrade_killed_at_random_moments(db_url: str, tmp_path: Path) -> None:
    """Each time the database has the old schema or the new one, whole; an SQLite file keeps its copy."""
    draw = random.Random(SEED)
    killed = old = new = 0
    whole_s = 60.0
    for number in range(NUM_KILLS + 2):
        url = _place(db_url, number)
        make_old(url, "0001")
        scene = Scene(url, tmp_path, ["db", "upgrade"])
        if number < 2:
            whole_s = min(whole_s, scene.finish())
        else:
            in_time = scene.kill_after(draw.uniform(0.4, 1.0) * whole_s)
            killed += in_time
            whole_s *= 1.0 if in_time else 0.9
        with reading(open_unchecked(url)) as connection:
            version = schema.read_version(connection, url)
            columns = connection.execute(text("SELECT * FROM run_set")).keys()
            told = f"seed {SEED}, kill {number}: {version}"
            assert ("runs_folder" in columns) == (version != "0001"), told
            assert connection.execute(text("SELECT count(*) FROM run")).scalar_one() == 7, told
        old, new = old + (version == "0001"), new + (version != "0001")
        if number % 10 == 0:
            scene.finish()
        else:
            upgrade_database(open_unchecked(url))
        db = open_database(url)
        assert integrity_faults(db) == []
        assert canonical_rows(load_run_set(db, "set-a", telemetry=True)) == canonical_rows(make_run_set("set-a"))
    assert killed >= LEAST_KILLED, f"seed {SEED}: only {killed} of {NUM_KILLS} were killed in time"
    assert old > 0
    assert new > 0
    for copy in tmp_path.glob("db/*.sqlite.schema-0001-*Z"):
        kept = sqlite3.connect(copy)
        assert kept.execute("SELECT count(*) FROM run").fetchall() == [(7,)], f"seed {SEED}: {copy.name} is no copy"
        kept.close()


def _place(url: str, number: int) -> str:
    """A place for another database: a file of its own, or a schema of its own in the same PostgreSQL database."""
    if not url.startswith("postgresql"):
        return str(Path(url).with_name(f"{number}.sqlite"))
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA place_{number}".encode())
    return f"{url}?options=-csearch_path%3Dplace_{number}"
