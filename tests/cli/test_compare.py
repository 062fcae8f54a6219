"""`mlbench compare` and `mlbench baseline` as a user types them: table, JSON, gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from tests.support.run_logs import base_set


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A database with the base set of cases.md, and one whose runs take 5 % longer."""
    monkeypatch.chdir(tmp_path)
    base_set(tmp_path / "Lab" / "results" / "sysA" / "resnet")
    for index, path in enumerate(base_set(tmp_path / "Lab" / "results" / "sysB" / "resnet")):
        _slow_down(path, 1.05, seed=100 + index)
    assert run_command(["import", str(tmp_path / "Lab")]) == 0
    capsys.readouterr()
    return tmp_path


def _slow_down(path: Path, factor: float, *, seed: int) -> None:
    lines = []
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    start = next(item["time_ms"] for item in records if item["key"] == "run_start")
    for item in records:
        if item["time_ms"] > start:
            item["time_ms"] = start + (item["time_ms"] - start) * factor
        if item["key"] == "seed":
            item["value"] = seed
        lines.append(":::MLLOG " + json.dumps(item))
    path.write_text("\n".join(lines) + "\n")


def _names(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert run_command(["results", "list", "--json"]) == 0
    names = {item["system"]: item["run_set"] for item in json.loads(capsys.readouterr().out)}
    return names["sysA"], names["sysB"]


def test_compare_says_how_much_slower_and_that_it_is_no_noise(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = _names(capsys)
    assert run_command(["compare", one, two, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["verdict"] == "slower"
    time = next(item for item in found["metrics"] if item["metric"] == "time_to_train_s")
    assert time["ratio"] == pytest.approx(1.05)
    assert (time["base"]["n_good"], time["base"]["n_asked"]) == (5, 5)
    assert time["change"] == "5.0 % slower"
    assert time["interval"][0] < 1.05 < time["interval"][1]
    assert found["explanation"].startswith("time to train 5.0 % slower: epochs to target no change")


@pytest.mark.parametrize(("tolerance", "status"), [("2%", 4), ("4.9", 4), ("5.1 %", 0), ("10%", 0)])
def test_gate_shuts_only_beyond_the_tolerance(
    database: Path, capsys: pytest.CaptureFixture[str], tolerance: str, status: int
) -> None:
    one, two = _names(capsys)
    assert run_command(["baseline", "pin", "release", one]) == 0
    assert run_command(["compare", two, "--baseline", "release", "--tolerance", tolerance]) == status
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("Within tolerance" if status == 0 else "Not within tolerance")


def test_gate_lets_a_faster_one_through(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = _names(capsys)
    assert run_command(["compare", two, one, "--tolerance", "0%"]) == 0
    assert "4.8 % faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "nothing", "else"], "run set 'nothing': not in the database"),
        (["compare", "{one}"], "compare: one run set alone"),
        (["compare", "{one}", "{one}"], "names one run set twice"),
        (["compare", "{one}", "--baseline", "relese"], "--baseline: 'relese' is not pinned; did you mean 'release'?"),
        (["compare", "{one}", "{two}", "--tolerance", "much"], "--tolerance: found 'much', expected a percentage"),
        (["compare", "{one}", "{two}", "--tolerance", "-3%"], "--tolerance: found '-3%', expected a percentage"),
        (["baseline", "drop", "relese"], "baseline 'relese' is not pinned; did you mean 'release'?"),
        (["baseline", "pin", "x", "nothing"], "run set 'nothing': not in the database"),
    ],
)
def test_words_that_mean_nothing_are_one_sentence_and_status_2(
    database: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    one, two = _names(capsys)
    assert run_command(["baseline", "pin", "release", one]) == 0
    capsys.readouterr()
    assert run_command([word.format(one=one, two=two) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_baselines_are_listed_moved_and_dropped(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = _names(capsys)
    for run_set in (one, two):
        assert run_command(["baseline", "pin", "release", run_set]) == 0
    capsys.readouterr()
    assert run_command(["baseline", "list", "--json"]) == 0
    assert [(item["name"], item["run_set"]) for item in json.loads(capsys.readouterr().out)] == [("release", two)]
    assert run_command(["baseline", "drop", "release"]) == 0
    capsys.readouterr()
    assert run_command(["baseline", "list"]) == 0
    assert "no baseline is pinned" in capsys.readouterr().out


@pytest.mark.published
def test_published_dss8440_against_dgxa100_gives_the_known_minutes(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["import", str(published / "v1.0")]) == 0
    capsys.readouterr()
    assert run_command(["compare", "v1.0/Dell", "v1.0/NVIDIA"]) == 0
    said = capsys.readouterr().out
    assert "score 36.370 min" in said  # cases.md section 1: olympic means 36.37003 and 28.77086
    assert "score 28.771 min" in said
    assert "time to train: 21.1 % faster" in said
    assert "(4/5)" in said
