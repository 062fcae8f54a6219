"""`mlbench db`: sentences, JSON and status of the care verbs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.store import schema
from mlbench.store.engine import open_database
from mlbench.store.repository import all_run_sets, save_run_set
from tests.support.run_folders import write_run_folder
from tests.support.run_sets import make_run_set

NAME = "20240501-093000-resnet50-0001"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_run_folder(tmp_path / "home" / "runs", NAME)
    return tmp_path / "home"


def _json(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, object]:
    assert run_command(["db", *arguments, "--json"]) == status
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_upgrade_makes_and_then_leaves_the_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "home" / "db" / "mlbench.sqlite")
    expected = {"database": path, "old_schema": None, "new_schema": schema.HEAD, "copy": None}
    assert _json(capsys, "upgrade") == expected
    assert _json(capsys, "upgrade") == expected | {"old_schema": schema.HEAD}
    assert run_command(["db", "upgrade"]) == 0
    assert f"has schema {schema.HEAD} already" in capsys.readouterr().out


def test_rebuild_then_verify_is_good(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert run_command(["db", "rebuild"]) == 0
    assert "1 run set read from files (1 of them new)" in capsys.readouterr().out
    assert run_command(["db", "verify"]) == 0
    assert "1 of 1 run set equals its files: nothing differs" in capsys.readouterr().out


def test_verify_with_a_difference_ends_with_status_four(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    run_command(["db", "rebuild"])
    (home / "runs" / NAME / "hosts.json").write_text("{}")
    capsys.readouterr()
    assert run_command(["db", "verify"]) == 4
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{NAME}: files changed: ")
    assert out[-1] == "0 of 1 run set equals its files: 1 differs"
    found = _json(capsys, "verify", status=4)
    assert found["good"] is False


def test_rebuild_with_an_unreadable_folder_ends_with_status_two(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    write_run_folder(home / "runs", "20240501-093000-resnet50-0002")
    (home / "runs" / NAME / "run_set.json").write_text("{")
    assert run_command(["db", "rebuild"]) == 2
    captured = capsys.readouterr()
    assert "1 run set read from files" in captured.out
    assert "run_set.json: is not JSON" in captured.err
    assert captured.err.splitlines()[-1] == "mlbench: 1 could not be read, all others were"


def test_rebuild_of_a_damaged_database_keeps_it_aside(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "db").mkdir()
    (home / "db" / "mlbench.sqlite").write_bytes(b"no database " * 1000)
    assert run_command(["results", "list"]) == 2
    assert "`mlbench db rebuild` makes it anew" in capsys.readouterr().err
    assert run_command(["db", "rebuild"]) == 0
    assert "is kept as" in capsys.readouterr().err
    assert [item.run_set for item in all_run_sets(open_database())] == [NAME]
    assert len(list((home / "db").glob("*.damaged-*"))) == 1


def test_merge_says_what_came_and_what_was_here(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    other = str(home / "other.sqlite")
    save_run_set(open_database(other), make_run_set("theirs"))
    assert _json(capsys, "merge", other) == {"added": ["theirs"], "known": [], "conflicts": [], "unreadable": []}
    assert _json(capsys, "merge", other)["known"] == ["theirs"]
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE run_set SET content_hash = 'changed'")
    connection.close()
    assert run_command(["db", "merge", other]) == 4
    assert "another run set of this id is here" in capsys.readouterr().out


def test_merge_of_nothing_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["db", "merge", str(tmp_path / "absent")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_bundle_from_export_to_import(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    run_command(["db", "rebuild"])
    out = tmp_path / "x.zip"
    assert run_command(["results", "export", "--bundle", str(out), "latest"]) == 0
    assert "1 run set with" in capsys.readouterr().out
    other = str(tmp_path / "other.sqlite")
    assert run_command(["import", "--bundle", str(out), "--db", other]) == 0
    assert [item.run_set for item in all_run_sets(open_database(other))] == [NAME]


@pytest.mark.parametrize("verb", ["verify", "rebuild"])
def test_runs_folder_that_is_not_there_is_refused(verb: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["db", "rebuild"]) == 0
    capsys.readouterr()
    assert run_command(["db", verb, "--runs-dir", str(home / "rusn")]) == 2
    assert "rusn is not a folder; name the folder that holds the run sets" in capsys.readouterr().err
