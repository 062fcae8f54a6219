"""The slurm launcher against a real Slurm: two nodes on this machine, see tests/support/slurm_cluster.sh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker import processes

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "support" / "launch_driver.py"
STUBBORN = ROOT / "tests" / "support" / "stubborn.py"
ALL_REDUCE = """
import os, horovod.mxnet as hvd, mxnet as mx
hvd.init()
total = hvd.allreduce(mx.nd.ones((4,)) * (hvd.rank() + 1), average=False)
print("sum", int(total.asnumpy()[0]), "ranks", hvd.size(), "node", os.environ["SLURMD_NODENAME"], flush=True)
"""


def order(folder: Path, command: list[str], **more: Any) -> dict[str, Any]:
    return {
        "launcher": "slurm",
        "hosts": {"node-0": 1, "node-1": 1},
        "command": command,
        "dir": str(folder),
        "mark": f"slurm-{folder.name}-{time.time_ns()}",
        **more,
    }


def start(what: dict[str, Any], *ahead: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ahead, sys.executable, str(DRIVER), json.dumps(what)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    outcome: dict[str, Any] = json.loads(output.splitlines()[-1])
    return outcome


def jobs(mark: str) -> str:
    """What Slurm still runs of this launch."""
    return subprocess.run(
        ["squeue", "--noheader", "--name", f"mlbench-{mark}"], capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()


def wait_until(true: Any, what: str, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def both_run(folder: Path) -> bool:
    return all((folder / f"alive_{rank}").exists() for rank in (0, 1))


def test_slurm_two_nodes_all_reduce_sums_over_both(tmp_path: Path) -> None:
    what = order(tmp_path, [sys.executable, "-c", ALL_REDUCE])
    outcome = finish(start(what))

    log = (tmp_path / "launcher.log").read_text()
    assert (outcome["ended_by"], outcome["exit_status"]) == ("exited", 0), log
    assert (outcome["strays"], outcome["left"]) == ([], [])
    said = sorted((tmp_path / f"rank_{rank}.log").read_text().strip().splitlines()[-1] for rank in (0, 1))
    assert said == ["sum 3 ranks 2 node mlnode1", "sum 3 ranks 2 node mlnode2"]
    assert "submitted" in log


def test_slurm_rank_fails_outcome_has_its_status(tmp_path: Path) -> None:
    program = "import os, sys, time\nsys.exit(7) if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else time.sleep(600)"
    what = order(tmp_path, [sys.executable, "-c", program])
    outcome = finish(start(what))

    assert (outcome["ended_by"], outcome["exit_status"]) == ("exited", 7)
    assert jobs(what["mark"]) == ""
    assert processes.find(what["mark"]) == []


def test_slurm_time_limit_cancels_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    what = order(tmp_path, [sys.executable, str(STUBBORN), str(tmp_path)], time_limit_s=6, term_grace_s=10)
    outcome = finish(start(what))

    assert both_run(tmp_path), (tmp_path / "launcher.log").read_text()
    assert outcome["ended_by"] == "timeout"
    assert outcome["left"] == []
    assert jobs(what["mark"]) == ""
    assert processes.find(what["mark"]) == []


def test_slurm_job_cancelled_by_another_is_a_failure(tmp_path: Path) -> None:
    what = order(tmp_path, [sys.executable, str(STUBBORN), str(tmp_path)])
    process = start(what)
    wait_until(lambda: both_run(tmp_path), "the ranks did not start")
    subprocess.run(["scancel", "--name", f"mlbench-{what['mark']}"], check=True, timeout=30)
    outcome = finish(process)

    assert outcome["ended_by"] == "exited"
    assert outcome["exit_status"] not in (0, None)
    assert outcome["left"] == []
    assert processes.find(what["mark"]) == []


def test_slurm_sigkill_of_mlbench_cancels_the_job(tmp_path: Path) -> None:
    what = order(tmp_path, [sys.executable, str(STUBBORN), str(tmp_path)], term_grace_s=6)
    process = start(what)
    wait_until(lambda: both_run(tmp_path), "the ranks did not start")
    process.kill()
    process.communicate(timeout=30)

    wait_until(lambda: not jobs(what["mark"]) and not processes.find(what["mark"]), "something is left", 60)


def test_slurm_nodes_never_free_job_waits_and_is_cancelled(tmp_path: Path) -> None:
    """Time in the queue counts for no limit; Ctrl-C while waiting takes the job out of the queue."""
    import signal

    blocker = subprocess.Popen(["srun", "--nodes=2", "--exclusive", "sleep", "600"], start_new_session=True)
    try:
        wait_until(lambda: "R" in _states("sleep"), "the blocking job did not start")
        what = order(tmp_path, ["true"], time_limit_s=1)
        process = start(what)
        wait_until(lambda: jobs(what["mark"]) != "", "the job was not submitted")
        time.sleep(3)  # longer than the limit of 1 s
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    finally:
        blocker.terminate()
        blocker.wait(timeout=30)
    assert outcome["ended_by"] == "interrupted"
    assert outcome["left"] == []
    assert jobs(what["mark"]) == ""


def _states(name: str) -> list[str]:
    return subprocess.run(
        ["squeue", "--noheader", "--name", name, "--format", "%t"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout.split()


def test_slurm_inside_an_allocation_uses_its_nodes(tmp_path: Path) -> None:
    what = order(tmp_path, [sys.executable, "-c", ALL_REDUCE], launcher="allocation")
    outcome = finish(start(what, "salloc", "--quiet", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"))

    assert (outcome["ended_by"], outcome["exit_status"]) == ("exited", 0), (tmp_path / "launcher.log").read_text()
    assert outcome["left"] == []
    said = sorted((tmp_path / f"rank_{rank}.log").read_text().strip().splitlines()[-1] for rank in (0, 1))
    assert said == ["sum 3 ranks 2 node mlnode1", "sum 3 ranks 2 node mlnode2"]
    assert "SLURM_JOB_ID" not in os.environ
