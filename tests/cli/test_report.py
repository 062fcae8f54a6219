"""`mlbench report` as a user types it: published and own run sets, options, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.store.engine import open_database
from mlbench.store.repository import save_run_set
from tests.support.report_sets import full_run_set
from tests.support.run_logs import base_set


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The base set of cases.md in the database; the run set's public id."""
    monkeypatch.chdir(tmp_path)
    base_set(tmp_path / "Lab" / "results" / "sysA" / "resnet")
    assert run_command(["import", str(tmp_path / "Lab")]) == 0
    capsys.readouterr()
    assert run_command(["results", "list", "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)
    return str(item["run_set"])


@pytest.mark.slow
def test_report_of_an_import_is_written_and_told(
    imported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["report", imported, "--out", "out", "--formats", "svg", "--json"]
    assert run_command(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(tmp_path / "out")
    assert told["verdicts"] == ["score 36.500 min"]  # cases.md section 4: olympic mean of the base set
    assert {"throughput", "spread", "accuracy"} <= set(told["plots"])
    assert {item["plot"] for item in told["missing"]} >= {"Telemetry", "Storage bandwidth"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert told["html_bytes"] == len(page.encode())
    assert "Compliant with ruleset" in page
    assert f"mlbench report {imported} --out out --formats svg" in page
    on_disk = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert on_disk == {*told["files"], "report.json"}


@pytest.mark.slow
def test_report_again_replaces_the_earlier_one_and_says_what_is_missing(
    imported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run_command(["report", imported, "--out", "out", "--formats", "none", "--no-check"]) == 0
    said = capsys.readouterr().out
    assert "not shown: Telemetry: published logs hold no telemetry" in said
    assert said.strip().splitlines()[-1].startswith("open out/report.html")
    assert "Compliance not checked: --no-check." in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "plots").exists()


@pytest.mark.slow
def test_sizing_of_a_set_whose_size_nobody_logged_is_not_guessed(
    imported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["report", imported, "--out", "out", "--formats", "none", "--no-check", "--json"]
    assert run_command([*arguments, "--hardware", "dgxa100,f800"]) == 0
    missing = {item["plot"]: item["reason"] for item in json.loads(capsys.readouterr().out)["missing"]}
    assert missing["Storage demand and supply"] == "the number of accelerators is not known"


@pytest.mark.slow
def test_own_run_set_shows_telemetry_and_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_run_set(open_database(str(tmp_path / "db.sqlite")), full_run_set("own", num_points=40))
    arguments = [
        "report",
        "own",
        "--db",
        str(tmp_path / "db.sqlite"),
        "--out",
        "out",
        "--formats",
        "none",
        "--no-check",
    ]
    assert run_command([*arguments, "--hardware", "dgxa100,f800"]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for key in ("throughput", "allreduce", "storage", "telemetry_gpu", "telemetry_network", "consistency", "sizing"):
        assert f'id="plot-{key}"' in page
    assert "mlbench reproduce own" in page
    assert "mlbench &#39;+hardware=[dgxa100,f800]&#39; gpus=32" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{one}", "--out", "taken"], "--out {folder}/taken: holds 1 file that is no report of mlbench"),
        (
            ["{one}", "--out", "out", "--formats", "svg,pnd"],
            "--formats: found 'pnd', expected some of svg, png, pdf, html",
        ),
        (["{one}", "{one}", "--out", "out"], "names one run set twice"),
        (["nothing", "--out", "out"], "run set 'nothing': not in the database"),
        (["{one}", "--out", "out", "--hardware", "dgxa100"], "--hardware 'dgxa100': expected a compute and a storage"),
        (["{one}", "--out", "out", "--hardware", "dgxa10,f800"], "did you mean 'dgxa100'?"),
        (["{one}"], "Missing option '--out'"),
    ],
)
def test_words_that_mean_nothing_are_one_sentence_and_write_nothing(
    imported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    assert run_command(["report", *(word.format(one=imported) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert said.format(folder=tmp_path) in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine.txt"]


def test_folder_that_cannot_be_written_is_one_sentence(
    imported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    assert run_command(["report", imported, "--out", "file/out", "--formats", "none", "--no-check"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.published
@pytest.mark.slow
def test_published_systems_are_reported_side_by_side(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["import", str(published)]) == 0
    capsys.readouterr()
    arguments = ["report", "v1.0/Dell", "v1.0/NVIDIA", "--out", "out", "--formats", "none", "--json"]
    assert run_command([*arguments, "--hardware", "dgxa100,f800"]) == 0
    told = json.loads(capsys.readouterr().out)
    # cases.md section 1: olympic means 36.37003 and 28.77086 min.
    assert [text.split("score ")[1] for text in told["verdicts"]] == ["36.370 min", "28.771 min"]
    assert {"throughput", "epochs", "spread", "accuracy", "comparison", "sizing_1", "sizing_2"} <= set(told["plots"])
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "time to train: 21.1 % faster (p = 0.008)" in page


@pytest.mark.published
@pytest.mark.slow
def test_every_published_system_can_be_reported(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["import", str(published)]) == 0
    capsys.readouterr()
    assert run_command(["results", "list", "--json"]) == 0
    names = [item["run_set"] for item in json.loads(capsys.readouterr().out)]
    assert len(names) == 10
    for name in names:
        assert run_command(["report", name, "--out", "out", "--formats", "none", "--no-check"]) == 0
    assert run_command(["report", *names, "--out", "all", "--formats", "none", "--no-check"]) == 0
