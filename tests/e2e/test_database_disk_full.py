"""A disk that is full, for every verb that writes: one sentence that names the place, status 2, all files as before,
and once there is room the same line does its work.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.ingest.bundle import write_bundle
from mlbench.ingest.care import rebuild, verify
from mlbench.store import schema
from mlbench.store.engine import open_database
from mlbench.store.integrity import integrity_faults
from mlbench.store.repository import all_run_sets, load_run_set, save_run_set
from tests.support.old_databases import make_old
from tests.support.run_folders import write_run_folder
from tests.support.run_logs import run_lines, write_log
from tests.support.run_sets import make_run_set

pytestmark = pytest.mark.slow
LIMIT_S = 120


def mlbench(*arguments: str, home: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", *arguments],
        env={**os.environ, "MLBENCH_HOME": str(home), "MLBENCH_DB_URL": url},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def refused(done: subprocess.CompletedProcess[str], place: Path) -> str:
    """The one sentence, which names the place."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert str(place) in done.stderr
    assert "full" in done.stderr or "No space left on device" in done.stderr
    return done.stderr


def leave(disk: Path, free_bytes: int) -> Path:
    """Fill the disk but for so much. Returns what fills it."""
    ballast = disk / "ballast"
    state = os.statvfs(disk)
    ballast.write_bytes(b"x" * max(0, state.f_bavail * state.f_frsize - free_bytes))
    return ballast


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_import_into_a_full_disk_keeps_what_was_stored(small_disk: Path, tmp_path: Path) -> None:
    tree = tmp_path / "training_results_v2.1"
    for number in range(30):
        for run in range(5):
            folder = tree / "Lab" / "results" / f"sys{number:02d}" / "resnet"
            write_log(folder / f"result_{run}.txt", run_lines(seed=10 * number + run))
    url = str(small_disk / "db" / "x.sqlite")
    before = hashes(tree)
    ballast = leave(small_disk, 700_000)
    refused(mlbench("import", str(tree), home=tmp_path, url=url), Path(url))
    db = open_database(url)
    stored = all_run_sets(db)
    assert 0 < len(stored) < 30
    assert integrity_faults(db) == []
    assert all(len(load_run_set(db, item.run_set).runs) == 5 for item in stored)
    assert mlbench("results", "list", home=tmp_path, url=url).returncode == 0
    assert hashes(tree) == before
    ballast.unlink()
    assert mlbench("import", str(tree), home=tmp_path, url=url).returncode == 0
    assert len(all_run_sets(db)) == 30


def test_rebuild_on_a_full_disk_leaves_the_files(small_disk: Path) -> None:
    for number in range(8):
        write_run_folder(small_disk / "runs", f"20240501-0930{number:02d}-resnet50-{number:04d}")
    url = str(small_disk / "db" / "x.sqlite")
    before = hashes(small_disk / "runs")
    ballast = leave(small_disk, 250_000)
    assert "`mlbench db rebuild`" in refused(mlbench("db", "rebuild", home=small_disk, url=url), Path(url))
    ballast.unlink()
    assert mlbench("db", "rebuild", home=small_disk, url=url).returncode == 0
    assert verify(open_database(url), small_disk / "runs").is_good
    assert {name: value for name, value in hashes(small_disk / "runs").items() if name in before} == before


def test_merge_into_a_full_disk_leaves_the_other_and_whole_run_sets(small_disk: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other.sqlite")
    source = open_database(other)
    for number in range(20):
        save_run_set(source, make_run_set(f"set-{number:02d}", num_runs=60))
    url = str(small_disk / "x.sqlite")
    ballast = leave(small_disk, 500_000)
    refused(mlbench("db", "merge", other, home=tmp_path, url=url), Path(url))
    db = open_database(url)
    assert integrity_faults(db) == []
    assert all(len(load_run_set(db, item.run_set).runs) == 60 for item in all_run_sets(db))
    ballast.unlink()
    assert mlbench("db", "merge", other, home=tmp_path, url=url).returncode == 0
    assert len(all_run_sets(db)) == 20


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_export_to_a_full_disk_keeps_the_file_that_was_there(
    db_url: str, small_disk: Path, tmp_path: Path, form: str
) -> None:
    db = open_database(db_url)
    for number in range(20):
        save_run_set(db, make_run_set(f"set-{number}", num_runs=100))
    out = small_disk / f"rows.{form}"
    out.write_text("what was there")
    leave(small_disk, 0)
    arguments = ("results", "export", "--format", form, "--rows", "epochs", "--out", str(out))
    assert "nothing was left there" in refused(mlbench(*arguments, home=tmp_path, url=db_url), out)
    assert out.read_text() == "what was there"
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", out.name]


def test_bundle_to_a_full_disk_leaves_nothing(db_url: str, small_disk: Path, tmp_path: Path) -> None:
    for number in range(5):
        write_run_folder(tmp_path / "runs", f"20240501-0930{number:02d}-resnet50-{number:04d}")
    rebuild(open_database(db_url), tmp_path / "runs")
    ballast = leave(small_disk, 8192)
    out = small_disk / "sent.zip"
    refused(mlbench("results", "export", "--bundle", str(out), home=tmp_path, url=db_url), out)
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    ballast.unlink()
    assert mlbench("results", "export", "--bundle", str(out), home=tmp_path, url=db_url).returncode == 0


def test_bundle_unpacked_on_a_full_disk_leaves_whole_run_sets(db_url: str, small_disk: Path, tmp_path: Path) -> None:
    source = open_database(str(tmp_path / "source.sqlite"))
    for number in range(8):
        write_run_folder(tmp_path / "theirs", f"20240501-0930{number:02d}-resnet50-{number:04d}")
    rebuild(source, tmp_path / "theirs")
    sent = tmp_path / "sent.zip"
    write_bundle(source, [item.run_set for item in all_run_sets(source)], sent)
    ballast = leave(small_disk, 400_000)
    refused(mlbench("import", "--bundle", str(sent), home=small_disk, url=db_url), small_disk / "runs")
    db = open_database(db_url)
    assert 0 < len(all_run_sets(db)) < 8
    assert verify(db, small_disk / "runs").is_good
    assert list((small_disk / "runs").glob(".unpacking-*")) == []
    ballast.unlink()
    assert mlbench("import", "--bundle", str(sent), home=small_disk, url=db_url).returncode == 0
    assert len(all_run_sets(db)) == 8


@pytest.mark.parametrize("verb", [("db", "upgrade"), ("results", "list")])
@pytest.mark.parametrize("room_for_copy", [False, True])
def test_upgrade_on_a_full_disk_leaves_the_old_database(
    small_disk: Path, tmp_path: Path, verb: tuple[str, ...], room_for_copy: bool
) -> None:
    """Without room for the copy, and with room for it alone."""
    path = small_disk / "x.sqlite"
    make_old(str(path), "0001")
    before = sqlite3.connect(path).execute("SELECT * FROM run_set").fetchall()
    ballast = leave(small_disk, path.stat().st_size + 4096 if room_for_copy else 4096)
    refused(mlbench(*verb, home=tmp_path, url=str(path)), path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert connection.execute("SELECT * FROM run_set").fetchall() == before
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert list(small_disk.glob("*.part")) == []
    ballast.unlink()
    assert mlbench(*verb, home=tmp_path, url=str(path)).returncode == 0
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(schema.HEAD,)]
    connection.close()


def test_rows_for_a_full_standard_output_are_not_called_whole(db_url: str, tmp_path: Path) -> None:
    save_run_set(open_database(db_url), make_run_set())
    for arguments in (("results", "export"), ("results", "list", "--json"), ("db", "verify", "--json")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mlbench.cli.main", *arguments],
                env={**os.environ, "MLBENCH_HOME": str(tmp_path), "MLBENCH_DB_URL": db_url},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
            )
        assert done.returncode == 2
        assert "so it is not whole" in done.stderr
