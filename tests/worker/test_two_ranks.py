"""Two real Horovod ranks, started as the launcher starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.conftest import Ended, SmallSet, job_for, run_worker

pytestmark = [pytest.mark.training, pytest.mark.slow]
HOROVODRUN = (str(Path(sys.executable).with_name("horovodrun")), "--gloo", "-np", "2")
PEAK_OF_CHILDREN = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command and writes the peak of the largest process below it, in KiB: this test's own children are many."""
TWO = {"num_ranks": 2, "schedule__batch_per_rank": 4, "schedule__target_accuracy": 1.0, "schedule__max_epochs": 2}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, easy_set: SmallSet, peak_file: Path) -> Ended:
    measured = (sys.executable, "-c", PEAK_OF_CHILDREN, str(peak_file), *HOROVODRUN)
    return run_worker(job_for(tmp_path_factory.mktemp("two"), easy_set, **TWO), prefix=measured)


@pytest.fixture(scope="module")
def peak_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peak") / "kib"


def test_two_ranks_one_of_them_logs(two_ranks: Ended) -> None:
    assert two_ranks.status == 0, two_ranks.stderr
    assert two_ranks.keys.count("init_start") == 1
    assert two_ranks.keys.count("run_stop") == 1
    assert two_ranks.values("global_batch_size") == [8]
    assert ":::MLLOG" not in two_ranks.stdout + two_ranks.stderr


def test_two_ranks_accuracy_is_sum_over_sum(two_ranks: Ended) -> None:
    """25 images in shares of 12 and 13: only sum over sum gives whole 25ths, a mean of means does not."""
    accuracies = two_ranks.values("eval_accuracy")
    assert len(accuracies) == 2
    for accuracy in accuracies:
        assert accuracy * 25 == pytest.approx(round(accuracy * 25), abs=1e-9)


def test_two_ranks_samples_are_those_of_both(two_ranks: Ended) -> None:
    found = [r["value"] for r in two_ranks.records if r["key"] == "tracked_stats" and r["metadata"]["of"] == "epoch"]
    assert [value["samples"] for value in found] == [64, 64]


def test_two_ranks_no_process_takes_more_than_2_gb(two_ranks: Ended, peak_file: Path) -> None:
    assert two_ranks.status == 0
    assert 0 < int(peak_file.read_text()) * 1024 <= 2e9


def test_two_ranks_asked_for_one_started_is_status_2(tmp_path: Path, easy_set: SmallSet) -> None:
    ended = run_worker(job_for(tmp_path, easy_set, **TWO))
    assert ended.status == 2
    assert "no launcher says which rank this is, but job.num_ranks is 2" in ended.stderr
    assert ended.records == []


GRADIENTS = """
import json, sys
from mlbench.worker.runtime import import_mxnet
mx = import_mxnet()
from mlbench.worker.ranks import connect, current
ranks = connect(current(2))
rank = ranks.rank.rank
weight = mx.nd.full((3,), rank + 1.0)
ranks.broadcast([weight])
gradient = mx.nd.array([1.0, 2.0, 3.0]) * (rank + 1)
ranks.sum_gradient(gradient, 0)
half = mx.nd.full((2,), 0.5, dtype="float16")
ranks.sum_gradient(half, 1)
total = ranks.sum([2.0**53 - 1 if rank == 0 else 1.0, 0.1])
ranks.barrier()
if rank == 0:
    print(json.dumps([weight.asnumpy().tolist(), gradient.asnumpy().tolist(), half.asnumpy().tolist(), total]))
ranks.close()
"""


def test_together_sums_and_broadcasts(tmp_path: Path) -> None:
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    done = subprocess.run(
        [*HOROVODRUN, sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = next(line for line in done.stdout.splitlines() if "[[" in line)
    weight, gradient, half, total = json.loads(printed[printed.index("[[") :])
    assert weight == [1.0, 1.0, 1.0]
    assert gradient == [3.0, 6.0, 9.0]
    assert half == [1.0, 1.0]
    assert total == [2.0**53, pytest.approx(0.2)]
