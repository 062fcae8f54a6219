"""Many writers at once, writers that are killed, and a disk that is full (cases.md: P27, D7)."""

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
from sqlalchemy import Engine

from mlbench.errors import StoreError
from mlbench.ingest.care import rebuild, verify
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database
from mlbench.store.integrity import integrity_faults
from mlbench.store.repository import all_run_sets, list_run_sets, load_run_set, save_run_set
from tests.support.run_folders import write_run_folder
from tests.support.run_sets import make_run_set

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]

_WRITER = """
import sys
from mlbench.store.engine import open_database
from mlbench.store.repository import save_run_set
from tests.support.run_sets import make_run_set
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    save_run_set(open_database(sys.argv[1]), make_run_set(f"{sys.argv[2]}-{number:03d}", num_runs=5))
    print(number, flush=True)
"""
_READER = """
import sys
from mlbench.store.engine import NoDatabaseError, open_database
from mlbench.store.repository import list_run_sets, load_run_set
seen = 0
while True:
    try:
        found = list_run_sets(open_database(sys.argv[1], readonly=True), None, None)
    except NoDatabaseError:
        found = []
    assert len(found) >= seen, "a stored run set has gone"
    assert all(item.num_runs == 5 for item in found)
    if found:
        loaded = load_run_set(open_database(sys.argv[1], readonly=True), found[-1].run_set)
        assert len(loaded.runs) == 5, "half a run set was seen"
    seen = len(found)
    print(seen, flush=True)
    if seen == int(sys.argv[2]):
        break
"""
_REBUILD = """
import sys
from pathlib import Path
from mlbench.ingest.care import rebuild
from mlbench.store.engine import open_database
print("ready", flush=True)
rebuild(open_database(sys.argv[1]), Path(sys.argv[2]))
"""


def _start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _go(children: list[subprocess.Popen[str]]) -> None:
    """Let waiting writers begin together."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()


def _end(child: subprocess.Popen[str], limit_s: float) -> None:
    _, errors = child.communicate(timeout=limit_s)
    assert child.returncode == 0, errors


def _twelve_writers(url: str, each: int) -> None:
    total = 12 * each
    readers = [_start(_READER, url, str(total)) for _ in range(2)]
    writers = [_start(_WRITER, url, f"writer-{number:02d}", str(each)) for number in range(12)]
    try:
        _go(writers)
        for child in writers:
            _end(child, 400)
        for child in readers:
            _end(child, 120)
    finally:
        for child in (*writers, *readers):
            child.kill()
            child.communicate()
    db = open_database(url)
    assert len(all_run_sets(db)) == total
    assert integrity_faults(db) == []
    assert canonical_rows(load_run_set(db, "writer-07-000", telemetry=True)) == canonical_rows(
        make_run_set("writer-07-000", num_runs=5)
    )


def test_twelve_processes_store_fifty_results_each_while_others_read(db_url: str) -> None:
    """D7: one new database, 600 run sets, no error in any process, integrity check ok."""
    _twelve_writers(db_url, 50)


@pytest.mark.postgres
def test_two_machines_with_one_postgres_store_the_same_run_set_once(postgres_url: str) -> None:
    open_database(postgres_url)
    children = [_start(_WRITER, postgres_url, "same", "20") for _ in range(2)]
    _go(children)
    for child in children:
        _end(child, 120)
    assert len(all_run_sets(open_database(postgres_url))) == 20


def _killed(child: subprocess.Popen[str], after_s: float) -> bool:
    time.sleep(after_s)
    child.kill()
    child.communicate(timeout=60)
    return child.returncode == -signal.SIGKILL


def test_storing_killed_at_random_moments_leaves_whole_run_sets(tmp_path: Path) -> None:
    """SIGKILL, 30 times: what was told as stored is there, nothing is there by half, and it goes on."""
    seed = int(os.environ.get("MLBENCH_TEST_SEED", str(random.randrange(10**6))))
    draw = random.Random(seed)
    url = str(tmp_path / "x.sqlite")
    open_database(url)
    for number in range(30):
        child = _start(_WRITER, url, f"w{number}", "1000")
        assert child.stdout is not None
        _go([child])
        child.stdout.readline()
        time.sleep(draw.uniform(0, 0.3))
        child.kill()
        told = [line for line in child.communicate(timeout=60)[0].splitlines() if line.isdigit()]
        db = open_database(url)
        stored = [item.run_set for item in all_run_sets(db) if item.run_set.startswith(f"w{number}-")]
        assert len(stored) >= len(told) + 1, (
            f"seed {seed}: {len(told) + 1} were told as stored, {len(stored)} are there"
        )
        assert integrity_faults(db) == []
        assert len(load_run_set(db, stored[-1]).runs) == 5
    counts = sqlite3.connect(url).execute("SELECT count(*), (SELECT count(*) FROM run) FROM run_set").fetchone()
    assert counts[1] == 5 * counts[0]


def test_rebuild_killed_at_random_moments_is_finished_by_running_again(tmp_path: Path) -> None:
    seed = int(os.environ.get("MLBENCH_TEST_SEED", str(random.randrange(10**6))))
    draw = random.Random(seed)
    runs_dir = tmp_path / "runs"
    for number in range(12):
        write_run_folder(runs_dir, f"20240501-0930{number:02d}-resnet50-{number:04d}")
    whole = open_database(str(tmp_path / "whole.sqlite"))
    begun = time.monotonic()
    rebuild(whole, runs_dir)
    whole_s = time.monotonic() - begun
    expected = {item.run_set: canonical_rows(load_run_set(whole, item.run_set)) for item in all_run_sets(whole)}
    killed = 0
    for number in range(30):
        url = str(tmp_path / "x.sqlite")
        child = _start(_REBUILD, url, str(runs_dir))
        assert child.stdout is not None
        child.stdout.readline()
        killed += _killed(child, draw.uniform(0, 1.5 * whole_s))
        db = open_database(url)
        assert integrity_faults(db) == [], f"seed {seed}, {number}"
        for item in all_run_sets(db):
            assert canonical_rows(load_run_set(db, item.run_set)) == expected[item.run_set], f"seed {seed}, {number}"
        if number % 10 == 9:
            rebuild(db, runs_dir)
            assert verify(db, runs_dir).is_good
            assert len(all_run_sets(db)) == 12
            for path in tmp_path.glob("x.sqlite*"):
                path.unlink()
    assert killed > 5, f"seed {seed}: only {killed} of 30 were killed in time"


def _save_many(db: Engine) -> None:
    for number in range(1000):
        save_run_set(db, make_run_set(f"more-{number}", num_runs=50))


def test_full_disk_is_one_sentence_and_leaves_the_database_whole(small_disk: Path) -> None:
    url = str(small_disk / "x.sqlite")
    db = open_database(url)
    save_run_set(db, make_run_set("first"))
    with pytest.raises(StoreError, match="the disk is full") as raised:
        _save_many(db)
    assert "\n" not in str(raised.value)
    stored = [item.run_set for item in list_run_sets(db, None, None)]
    assert "first" in stored
    assert integrity_faults(db) == []
    assert len(load_run_set(db, stored[0]).runs) in (2, 50)
