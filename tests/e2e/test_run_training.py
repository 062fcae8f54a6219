"""Real training through the command `mlbench`: small, to a low target, two ranks on this machine's CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from mlbench.collect.mllog import read_log
from mlbench.collect.runfiles import read_attempt, read_run_set
from mlbench.collect.runfolder import RunFolder

pytestmark = [pytest.mark.training, pytest.mark.slow, pytest.mark.timeout(1500)]

LIMIT_S = 1400
# The target is met after the first epochs; the open division allows another than the rules' 0.759.
SMALL = ["benchmark.stages=[train]", "repeats=2", "training.target_accuracy=0.15", "training.max_epochs=3"]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MLBENCH_HOME": str(home)}


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mlbench.cli.main", *arguments],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(run_set: str) -> Iterator[tuple[int, dict[str, str], str]]:
    """pid, environment and command line of each living process of the run set."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if variables.get("MLBENCH_JOB", "").startswith(f"{run_set}.") and command:
            yield int(entry.name), variables, command


def the_run_set(home: Path) -> RunFolder:
    return RunFolder(next(home.glob("runs/*/run_set.json")).parent)


def test_training_two_repetitions_are_trained_logged_and_stored(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL, "--json")
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    value = json.loads(output)
    assert [run["status"] for run in value["runs"]] == ["success", "success"]
    assert all(run["converged"] for run in value["runs"])
    assert len({run["seed"] for run in value["runs"]}) == 2
    folder = the_run_set(tmp_path)
    identity = read_run_set(folder.identity)
    assert not identity.rehearsal
    assert identity.framework == "MXNet 1.9.1"
    for run in value["runs"]:
        item = folder.attempt(run["index"], 0)
        log = read_log(item.mllog)
        assert log.cache_clear is True
        assert json.loads(item.cache.read_text())["cache_clear"] is True
        assert log.seeds == [run["seed"]]
        assert log.train_samples == 640
        assert log.run_start_ms is not None
        assert log.run_stop_ms is not None
        assert run["time_to_train_s"] == pytest.approx((log.run_stop_ms - log.run_start_ms) / 1e3)
    assert list(processes(folder.run_set)) == []
    # What lies between the runs (cold cache, records, database) costs at most a twentieth.
    records = [read_attempt(folder.attempt(index, 0).outcome) for index in range(2)]
    begun, ended = (datetime.fromisoformat(text) for text in (records[0].launched_at, records[-1].ended_at))
    assert (ended - begun).total_seconds() <= 1.05 * sum(record.lifetime_s or 0.0 for record in records)


def test_training_mlbench_killed_three_times_is_resumed_to_the_end(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL)
    for number, sign in enumerate(("init_start", "epoch_start", "eval_start")):
        wait_for_record(tmp_path, process, number, sign)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        folder = the_run_set(tmp_path)
        deadline = time.monotonic() + 30
        while list(processes(folder.run_set)):
            assert time.monotonic() < deadline, "a rank is left"
            time.sleep(0.1)
        process = start(tmp_path, "resume", folder.run_set)
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output + errors
    ended = [
        (item.index, item.attempt) for item in folder.attempts() if read_log(item.mllog).run_stop_status == "success"
    ]
    assert sorted(index for index, _ in ended) == [0, 1]


def wait_for_record(home: Path, process: subprocess.Popen[str], attempt: int, key: str) -> None:
    """The newest attempt, number `attempt` of its run, has logged `key`."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        assert time.monotonic() < deadline, f"{key} was not logged"
        assert process.poll() is None, process.communicate()
        logs = list(home.glob(f"runs/*/runs/run_0/attempt_{attempt}/result.txt"))
        if logs and f'"{key}"' in logs[0].read_text():
            return
        time.sleep(0.05)


def test_training_rank_killed_leaves_the_others_and_a_clear_failure(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL)
    deadline = time.monotonic() + LIMIT_S
    victim = None
    while victim is None:
        assert time.monotonic() < deadline, "no rank was seen training"
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
        logs = list(tmp_path.glob("runs/*/runs/run_0/attempt_0/result.txt"))
        if logs and '"epoch_start"' in logs[0].read_text():
            found = [
                pid
                for pid, variables, command in processes(the_run_set(tmp_path).run_set)
                if variables.get("HOROVOD_RANK") == "1" and "__main__" in command and " parent " not in command
            ]
            victim = found[0] if found else None
    os.kill(victim, signal.SIGKILL)
    output, _ = process.communicate(timeout=LIMIT_S)
    folder = the_run_set(tmp_path)
    assert process.returncode == 3
    record = read_attempt(folder.attempt(0, 0).outcome)
    assert record.status == "crashed"
    assert record.reason is not None
    assert "rank 1 was the first to fail, with status 137 (SIGKILL)" in record.reason
    assert read_attempt(folder.attempt(1, 0).outcome).status == "success"
    assert "run 0: crashed" in output
    assert output.splitlines()[-1].startswith("Failed: 1 of 2 runs are finished and stored, 1 missing")
    assert list(processes(folder.run_set)) == []
