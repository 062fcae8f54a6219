"""`mlbench launcher=mpirun` over two hosts of tests/support/hosts.py: proven, made cold, trained, stored."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.collect.runfiles import read_run_set
from mlbench.collect.runfolder import RunFolder
from tests.support import hosts as support

pytestmark = [
    pytest.mark.netns,
    pytest.mark.mpi,
    pytest.mark.training,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]
NAMES = ["dl-worker-01", "dl-worker-02"]


def test_run_on_two_hosts_trains_on_both_with_a_cold_cache_on_each(tmp_path: Path) -> None:
    with support.running(NAMES) as hosts:
        agent = support.write_agent(tmp_path)
        command = [
            *(sys.executable, "-m", "mlbench.cli.main", "launcher=mpirun"),
            *(f"hosts=[{','.join(f'{name}:1' for name in NAMES)}]", f"launcher.rsh_agent={agent}"),
            *("benchmark.stages=[train]", "repeats=1", "training.target_accuracy=0.15", "training.max_epochs=3"),
        ]
        there = f"cd {tmp_path} && MLBENCH_HOME={tmp_path} {shlex.join(command)}"
        done = subprocess.run(hosts.on(NAMES[0], there), capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder(next(tmp_path.glob("runs/*/run_set.json")).parent)
    identity = read_run_set(folder.identity)
    assert (identity.num_nodes, identity.num_ranks) == (2, 2)
    assert sorted(identity.provenance.clock_offsets_s) == NAMES
    assert sorted(json.loads(folder.hosts.read_text())) == NAMES
    cache = json.loads(folder.attempt(0, 0).cache.read_text())
    assert cache["cache_clear"] is True
    assert {name: report["host"] for name, report in cache["hosts"].items()} == dict(zip(NAMES, NAMES, strict=True))
    assert "resnet50, 2 CPU ranks on 2 nodes" in done.stdout
    assert folder.attempt(0, 0).rank_log(1).is_file()
