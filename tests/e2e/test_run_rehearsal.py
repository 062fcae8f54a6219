"""The command `mlbench` as a user types it, on the rehearsal launcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

QUICK = ["launcher=rehearsal", "benchmark.stages=[train]", "launcher.rehearsal.seconds_per_run=0.05"]
LIMIT_S = 120


def mlbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", *arguments],
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MLBENCH_HOME": str(home)}


def rows(home: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(home / "db" / "mlbench.sqlite") as db:
        return db.execute(query).fetchall()


def test_run_prints_table_and_says_it_is_no_result(tmp_path: Path) -> None:
    done = mlbench(*QUICK, "warmup_runs=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = done.stdout
    assert "REHEARSAL: nothing was trained" in text
    assert "run   time, s  epochs  accuracy  samples/s    epoch 1        seed  status" in text
    assert text.count("  converged\n") == 5
    assert "  warm-up\n" in text
    assert "mean of 3 of 5, fastest and slowest dropped; 5 converged of 5 asked" in " ".join(text.split())
    assert text.splitlines()[-1].startswith("Done. Raw, not a score: a rehearsal")
    table = text[text.index("run   time, s") : text.index("Olympic mean")]
    assert max(len(line) for line in table.splitlines()) <= 80


def test_run_json_is_one_object_and_progress_is_on_stderr(tmp_path: Path) -> None:
    done = mlbench(*QUICK, "repeats=2", "--json", cwd=tmp_path)
    assert done.returncode == 0
    value = json.loads(done.stdout)
    assert value["exit_status"] == 0
    assert value["rehearsal"] is True
    assert value["score_s"] is None
    assert value["official"] == {
        "verdict": None,
        "ruleset": "4.0.0",
        "reason": "a rehearsal is not a result",
        "findings": [],
    }
    assert [run["index"] for run in value["runs"]] == [0, 1]
    assert "run 0 (1 of 2): started" in done.stderr


def test_run_that_crashes_shows_log_and_resume_and_ends_with_3(tmp_path: Path) -> None:
    # case D6, as the user sees it
    fault = ["launcher.rehearsal.fault=crash", "launcher.rehearsal.fault_in_run=2"]
    done = mlbench(*QUICK, *fault, cwd=tmp_path)
    assert done.returncode == 3
    assert "run 2: crashed" in done.stdout
    assert "runs/run_2/attempt_0/rank_0.log, its last lines:" in done.stdout
    assert "  | RehearsalError: this is the crash that was asked for" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Failed: 4 of 5 runs are finished and stored, 1 missing; `mlbench resume ")
    name = last.split("`")[1].split()[-1]
    again = mlbench("resume", name, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "run 2 (attempt 2) (1 of 1): started" in again.stdout
    assert "5 converged of 5 asked" in " ".join(again.stdout.split())
    assert rows(tmp_path, 'select "index", attempt, status from run order by 1, 2') == [
        (0, 0, "success"),
        (1, 0, "success"),
        (2, 0, "crashed"),
        (2, 1, "success"),
        (3, 0, "success"),
        (4, 0, "success"),
    ]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_run_interrupted_once_keeps_what_is_finished_and_ends_with_130(tmp_path: Path, signum: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbench.cli.main", *QUICK, "launcher.rehearsal.seconds_per_run=1.5"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(list(tmp_path.glob("runs/*/runs/run_0/attempt_0/attempt.json"))) == 1)
    wait_for(lambda: len(list(tmp_path.glob("runs/*/runs/run_1/attempt_0/result.txt"))) == 1)
    os.killpg(process.pid, signum)  # as the terminal does
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert errors == "mlbench: launcher.rehearsal.seconds_per_run is given twice; the last, 1.5, counts\n"
    assert output.splitlines()[-1].startswith("Interrupted: 1 of 5 runs are finished and stored, 4 missing; `mlbench")
    assert rows(tmp_path, 'select "index", status from run') == [(0, "success"), (1, "interrupted")]


def wait_for(condition: Any, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_run_whose_current_folder_is_removed_ends_with_a_sentence(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbench.cli.main", *QUICK, "repeats=2", "launcher.rehearsal.seconds_per_run=0.5"],
        cwd=here,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(list(home.glob("runs/*/runs/run_0/attempt_0/attempt.json"))) == 1)
    here.rmdir()
    output, errors = process.communicate(timeout=LIMIT_S)
    said = "mlbench: launcher.rehearsal.seconds_per_run is given twice; the last, 0.5, counts\n"
    assert (process.returncode, errors) == (0, said)
    assert output.splitlines()[-1].startswith("Done. Raw, not a score: a rehearsal")


def test_run_bad_settings_start_nothing(tmp_path: Path) -> None:
    for overrides in (["repeats=0"], ["gpus=0"], ["submission.division=closed", "repeats=4"], ["repeat=3"]):
        done = mlbench(*QUICK, *overrides, cwd=tmp_path)
        assert done.returncode == 2, overrides
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.rglob("rank_0.log")) == []
    assert not (tmp_path / "runs").exists()


def test_run_unwritable_database_keeps_files_and_points_to_rebuild(tmp_path: Path) -> None:
    # case P27
    done = mlbench(*QUICK, "repeats=1", "db.url=sqlite:////proc/mlbench.sqlite", cwd=tmp_path)
    assert done.returncode == 0
    assert "`mlbench db rebuild` loads" in done.stdout
    assert "Database      not stored" in done.stdout
    assert len(list(tmp_path.glob("runs/*/runs/run_0/attempt_0/attempt.json"))) == 1


def test_run_eight_at_once_give_eight_run_sets(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "mlbench.cli.main", *QUICK, "repeats=1"]
    started = [
        subprocess.Popen(arguments, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL)
        for _ in range(8)
    ]
    assert [process.wait(LIMIT_S) for process in started] == [0] * 8
    assert len(list(tmp_path.glob("runs/*/run_set.json"))) == 8
    assert rows(tmp_path, "select count(*), count(distinct run_set) from run_set") == [(8, 8)]
    assert rows(tmp_path, "select count(*) from run") == [(8,)]


def test_reproduce_runs_again_and_says_how_it_compares(tmp_path: Path) -> None:
    mlbench(*QUICK, "repeats=2", cwd=tmp_path)
    name = next(tmp_path.glob("runs/*/run_set.json")).parent.name
    done = mlbench("reproduce", name, "--json", cwd=tmp_path)
    value = json.loads(done.stdout)
    assert value["run_set"] != name
    assert value["reproduction"]["old"] == name
    assert value["reproduction"]["verdict"] in ("within", "faster", "slower")
    assert value["reproduction"]["differences"] == []
    assert done.returncode == (4 if value["reproduction"]["verdict"] == "slower" else 0)
    assert json.loads((tmp_path / "runs" / value["run_set"] / "run_set.json").read_text())["reproduces"] == name


def test_resume_of_an_unknown_run_set_is_one_sentence(tmp_path: Path) -> None:
    done = mlbench("resume", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "run set 'nothing'" in done.stderr


def test_multirun_gives_one_run_set_a_point_and_a_scaling_table(tmp_path: Path) -> None:
    done = mlbench(*QUICK, "--multirun", "gpus=1,2", "repeats=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Scaling against the smallest point" in done.stdout
    assert done.stdout.splitlines()[-1] == "Done: 2 of 2 points are good."
    files = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/run_set.json")]
    assert sorted(item["num_ranks"] for item in files) == [1, 2]
    assert len({item["sweep"] for item in files}) == 1


def test_multirun_with_one_bad_point_starts_none(tmp_path: Path) -> None:
    done = mlbench(*QUICK, "--multirun", "gpus=1,0", cwd=tmp_path)
    assert done.returncode == 2
    assert not (tmp_path / "runs").exists()


def test_run_whose_reader_goes_away_finishes_all_the_same(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "mlbench.cli.main", *QUICK, "repeats=3"])
    done = subprocess.run(
        ["sh", "-c", f"{command} | head -n 1"], cwd=tmp_path, env=environment(tmp_path), timeout=LIMIT_S, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    wait_for(lambda: rows(tmp_path, "select count(*) from run where status = 'success'") == [(3,)])
