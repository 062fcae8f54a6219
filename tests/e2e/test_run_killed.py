"""SIGKILL of mlbench at random moments: nothing finished is lost, nothing is left running, resume completes."""

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

from mlbench.collect.mllog import read_log
from mlbench.collect.runfolder import RunFolder

pytestmark = pytest.mark.slow

NUM_SERIES = 30
REPEATS = 3
LIMIT_S = 120
COMMAND = [
    *(sys.executable, "-m", "mlbench.cli.main"),
    *("launcher=rehearsal", "benchmark.stages=[train]", f"repeats={REPEATS}", "limits.term_grace_s=1"),
    "launcher.rehearsal.seconds_per_run=0.15",
]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MLBENCH_HOME": str(home)}


def marked(run_set: str) -> list[str]:
    """Pids of processes that carry a mark of the run set."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"MLBENCH_JOB={run_set}.".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def finished_runs(folder: RunFolder) -> dict[tuple[int, int], int]:
    """(index, attempt) -> seed of every run whose log says success."""
    return {
        (item.index, item.attempt): log.seeds[0]
        for item in folder.attempts()
        if item.mllog.is_file() and (log := read_log(item.mllog)).run_stop_status == "success"
    }


@pytest.mark.parametrize("number", range(NUM_SERIES))
def test_kill_at_a_random_moment_then_resume_completes(tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    process = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    while not (found := list(tmp_path.glob("runs/*/run_set.json"))):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    # A series takes about this long once its folder is there; the tail of the range meets its last steps.
    time.sleep(rng.uniform(0.0, 1.6))
    os.kill(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)

    folder = RunFolder(found[0].parent)
    deadline = time.monotonic() + 10
    while marked(folder.run_set):
        assert time.monotonic() < deadline, "a rank is left"
        time.sleep(0.02)
    before = finished_runs(folder)

    again = subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", "resume", folder.run_set],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    after = finished_runs(folder)
    assert before.items() <= after.items()
    assert sorted(index for index, _ in after) == list(range(REPEATS)), "each run is finished exactly once"
    with sqlite3.connect(tmp_path / "db" / "mlbench.sqlite") as db:
        assert db.execute("select count(*), num_runs, num_converged from run_set").fetchall() == [(1, REPEATS, REPEATS)]
        good = db.execute("select \"index\", attempt, seed from run where status = 'success'").fetchall()
    assert {(index, attempt): seed for index, attempt, seed in good} == after
