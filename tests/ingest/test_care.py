"""Rebuild, verify and merge: files and rows agree, whatever happened to either."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import Engine

from mlbench.collect.runfolder import RunFolder
from mlbench.collect.tree import scan_tree
from mlbench.errors import InputError, StoreError
from mlbench.ingest.care import Compared, rebuild, verify
from mlbench.ingest.merge import merge
from mlbench.ingest.published import import_folder
from mlbench.ingest.run_set import read_run_set
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database, retried
from mlbench.store.integrity import set_damaged_aside
from mlbench.store.repository import all_run_sets, baselines, load_run_set, pin_baseline, save_run_set
from tests.support.run_folders import write_attempt, write_run_folder
from tests.support.run_logs import submission
from tests.support.run_sets import make_run_set

NAMES = [f"20240501-09300{number}-resnet50-000{number}" for number in range(3)]


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    for name in NAMES:
        write_run_folder(tmp_path / "runs", name)
    return tmp_path / "runs"


@pytest.fixture
def db(tmp_path: Path) -> Engine:
    return open_database(str(tmp_path / "db.sqlite"))


def _folder(runs_dir: Path, name: str) -> RunFolder:
    return RunFolder(runs_dir / name)


def _everything(db: Engine) -> dict[str, dict[str, list[str]]]:
    return {item.run_set: canonical_rows(load_run_set(db, item.run_set, telemetry=True)) for item in all_run_sets(db)}


def _import(db: Engine, tree: Path) -> str:
    run_set = import_folder(scan_tree(tree).folders[0]).run_sets[0]
    save_run_set(db, run_set)
    return run_set.run_set


def test_rebuild_from_nothing_equals_the_old_database_row_for_row(runs_dir: Path, db: Engine, tmp_path: Path) -> None:
    for name in NAMES:
        save_run_set(db, read_run_set(_folder(runs_dir, name)))
    anew = open_database(str(tmp_path / "anew.sqlite"))
    assert rebuild(anew, runs_dir).inserted == NAMES
    assert _everything(anew) == _everything(db)


def test_rebuild_mends_rows_and_keeps_names_given(runs_dir: Path, db: Engine) -> None:
    rebuild(db, runs_dir)
    before = _everything(db)
    pin_baseline(db, "good", NAMES[0])
    retried(db, lambda connection: connection.exec_driver_sql("UPDATE run SET time_to_train_s = 1"))
    report = rebuild(db, runs_dir)
    assert (report.replaced, report.inserted, report.removed) == (NAMES, [], [])
    assert _everything(db) == before
    assert baselines(db)["good"][0] == NAMES[0]


def test_rebuild_removes_what_has_no_folder_and_keeps_what_lies_elsewhere(
    runs_dir: Path, db: Engine, tmp_path: Path
) -> None:
    rebuild(db, runs_dir)
    published = _import(db, submission(tmp_path / "training_results_v2.1"))
    save_run_set(db, make_run_set("merged", path=None))
    shutil.rmtree(runs_dir / NAMES[1])
    report = rebuild(db, runs_dir)
    assert (report.removed, report.kept) == ([NAMES[1]], ["merged"])
    assert published in report.replaced


def test_rebuild_tells_a_damaged_folder_and_reads_the_others(runs_dir: Path, db: Engine) -> None:
    (runs_dir / NAMES[1] / "run_set.json").write_text("{")
    report = rebuild(db, runs_dir)
    assert report.inserted == [NAMES[0], NAMES[2]]
    assert len(report.unreadable) == 1
    assert NAMES[1] in report.unreadable[0]


def test_verify_of_sound_database_finds_nothing(runs_dir: Path, db: Engine, tmp_path: Path) -> None:
    rebuild(db, runs_dir)
    _import(db, submission(tmp_path / "training_results_v2.1"))
    report = verify(db, runs_dir)
    assert report.is_good
    assert [item.result for item in report.comparisons] == [Compared.equal] * 4


def test_verify_names_each_difference(runs_dir: Path, db: Engine) -> None:
    rebuild(db, runs_dir)
    save_run_set(db, make_run_set("merged", path=None))
    retried(
        db,
        lambda connection: connection.exec_driver_sql("UPDATE run_set SET mean_s = 1 WHERE run_set = ?", (NAMES[0],)),
    )
    write_attempt(_folder(runs_dir, NAMES[1]), 0, 1)
    (runs_dir / NAMES[2] / "run_set.json").write_text("{")
    write_run_folder(runs_dir, "20240502-000000-resnet50-0009")
    report = verify(db, runs_dir)
    assert not report.is_good
    assert {item.run_set: item.result for item in report.comparisons} == {
        NAMES[0]: Compared.rows_differ,
        NAMES[1]: Compared.files_changed,
        NAMES[2]: Compared.files_unreadable,
        "merged": Compared.files_missing,
        "20240502-000000-resnet50-0009": Compared.not_stored,
    }
    assert "mean_s 1.0, expected" in str(report.comparisons[0].detail)


def test_verify_sees_rows_without_their_parent(runs_dir: Path, db: Engine, tmp_path: Path) -> None:
    import sqlite3

    rebuild(db, runs_dir)
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        connection.execute("UPDATE epoch SET run_id = 9999 WHERE id = 1")
    connection.close()
    assert any("its run is missing" in fault for fault in verify(db, runs_dir).database_faults)


def test_damaged_file_is_set_aside_and_a_sound_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    save_run_set(open_database(str(path)), make_run_set())
    assert set_damaged_aside(str(path)) is None
    path.write_bytes(b"no database at all " * 1000)
    aside = set_damaged_aside(str(path))
    assert aside is not None
    assert aside.name.startswith("x.sqlite.damaged-")
    assert not path.exists()


def test_merge_folder_and_database_without_duplicates(runs_dir: Path, db: Engine, tmp_path: Path) -> None:
    assert merge(db, str(runs_dir)).added == NAMES
    assert merge(db, str(runs_dir)).known == NAMES
    other = open_database(str(tmp_path / "other.sqlite"))
    rebuild(other, runs_dir)
    save_run_set(other, make_run_set("theirs", path="/their/machine/theirs"))
    report = merge(db, str(tmp_path / "other.sqlite"))
    assert (report.added, report.known, report.conflicts) == (["theirs"], NAMES, [])
    theirs = load_run_set(db, "theirs", telemetry=True)
    assert theirs.path is None
    assert theirs.provenance["path_elsewhere"] == "/their/machine/theirs"
    assert theirs.runs[0].telemetry[0].points == [0.25, None, 0.75]


def test_merge_same_id_with_other_content_leaves_ours(db: Engine, tmp_path: Path) -> None:
    save_run_set(db, make_run_set("x", score_s=1.0))
    save_run_set(open_database(str(tmp_path / "o.sqlite")), make_run_set("x", score_s=2.0, content_hash="other"))
    assert merge(db, str(tmp_path / "o.sqlite")).conflicts == ["x"]
    assert load_run_set(db, "x").score_s == 1.0


def test_merge_same_content_under_another_id_is_known(db: Engine, tmp_path: Path) -> None:
    save_run_set(db, make_run_set("x"))
    save_run_set(open_database(str(tmp_path / "o.sqlite")), make_run_set("y", content_hash="hash of x"))
    assert merge(db, str(tmp_path / "o.sqlite")).known == ["y"]


def test_merge_of_what_is_none_is_refused(db: Engine, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        merge(db, str(tmp_path / "absent.sqlite"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="mlbench import"):
        merge(db, str(tmp_path / "empty"))
