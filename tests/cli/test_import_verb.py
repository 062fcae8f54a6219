from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.store.engine import open_database
from mlbench.store.repository import list_run_sets, load_run_set
from tests.support.run_logs import base_set, submission


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'results.sqlite'}"


def imported(url: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[object]]]:
    status = run_command(["import", *arguments, "--db", url, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_import_stores_what_results_list_shows(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    submission(tmp_path / "training_results_v2.1", org="DellEMC", system="DSS8440")
    status, said = imported(url, capsys, str(tmp_path))
    assert status == 0
    assert [row["run_set"] for row in said["imported"]] == ["v2.1/DellEMC/DSS8440/resnet"]
    (listed,) = list_run_sets(open_database(url))
    assert listed.score_s == pytest.approx(36.5 * 60)
    assert (listed.origin, listed.num_runs, listed.num_accelerators) == ("import", 5, 8)
    stored = load_run_set(open_database(url), "v2.1/DellEMC/DSS8440")
    assert [run.seed for run in stored.runs] == [11, 12, 13, 14, 15]
    assert len(stored.runs[0].epoch_rows) == 35


def test_import_twice_changes_nothing(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    submission(tmp_path / "v2.1")
    for expected in ("inserted", "unchanged"):
        status, said = imported(url, capsys, str(tmp_path))
        assert status == 0
        assert [row["outcome"] for row in said["imported"]] == [expected]
    assert len(list_run_sets(open_database(url))) == 1


def test_import_changed_files_replace_the_set(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = submission(tmp_path / "v2.1")
    imported(url, capsys, str(tmp_path))
    base_set(folder, accuracy=0.7)
    status, said = imported(url, capsys, str(tmp_path))
    assert status == 0  # reading went well; what it says is another matter
    assert [(row["outcome"], row["score_status"]) for row in said["imported"]] == [("replaced", "invalid")]


def test_import_several_paths_at_once(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    submission(tmp_path / "v2.0")
    submission(tmp_path / "v2.1")
    status, said = imported(url, capsys, str(tmp_path / "v2.0"), str(tmp_path / "v2.1"))
    assert status == 0
    assert [row["round"] for row in said["imported"]] == ["v2.0", "v2.1"]


def test_import_table_names_minutes_and_the_reason_of_a_raw_set(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = submission(tmp_path / "v2.1")
    base_set(tmp_path / "v2.1" / "Lab" / "results" / "sysB" / "resnet")
    (folder / "result_4.txt").unlink()
    assert run_command(["import", str(tmp_path), "--db", url]) == 0
    out = capsys.readouterr().out
    assert "36.50000" in out
    assert "v2.1/Lab/sysA/resnet: raw, not a score: 4 runs of 5 asked" in out
    assert out.rstrip().endswith("2 run sets with 9 runs: 2 inserted.")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "nowhere", "no such file or folder"),
        (lambda path: path, "no result logs here"),
        (lambda path: _written(path / "result_0.txt", "ordinary text"), "no MLLOG record found"),
        (lambda path: _written(path / "run_set.json", "{}").parent, "mlbench db rebuild"),
    ],
)
def test_import_what_is_no_result_ends_with_2_and_a_sentence(  # type: ignore[no-untyped-def]
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], make, words: str
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    assert run_command(["import", str(make(folder)), "--db", url]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_import_unreadable_part_ends_with_2_and_the_rest_is_stored(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submission(tmp_path / "v2.1")
    (tmp_path / "v2.1" / "Lab" / "systems" / "sysA.json").write_text("{", encoding="utf-8")
    status, said = imported(url, capsys, str(tmp_path))
    assert status == 2
    assert len(said["unreadable"]) == 1
    assert [row["score_status"] for row in said["imported"]] == ["valid"]


def test_import_unknown_round_is_refused_before_anything_is_read(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["import", str(tmp_path), "--round", "latest", "--db", url]) == 2
    assert "round 'latest'" in capsys.readouterr().err


def test_import_shows_control_characters_of_names_instead_of_obeying_them(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submission(tmp_path / "v2.1", org="Lab\x1b[31m")
    assert run_command(["import", str(tmp_path), "--db", url]) == 0
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "\\x1b[31m" in out
