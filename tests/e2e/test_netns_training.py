"""The whole program on two hosts: mlbench on the first, real training on both, through Open MPI."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hosts as support

pytestmark = [pytest.mark.netns, pytest.mark.mpi, pytest.mark.training, pytest.mark.slow]

MLBENCH = Path(sys.executable).parent / "mlbench"


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[support.Hosts]:
    with support.running(["dl-worker-01", "dl-worker-02"]) as hosts:
        yield hosts


def mlbench(hosts: support.Hosts, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent
    line = shlex.join([str(MLBENCH), *words])
    return subprocess.run(
        hosts.on(hosts.names[0], f"cd {home} && MLBENCH_HOME={home} PATH={program}:$PATH {line}"),
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_mlbench_two_hosts_trains_on_both_and_keeps_their_facts(two_hosts: support.Hosts, tmp_path: Path) -> None:
    """Few small batches: placement, preflight, launch, log and record are what is tried, not speed."""
    agent = support.write_agent(tmp_path)
    done = mlbench(
        two_hosts,
        tmp_path,
        *("run", "--json", "launcher=mpirun", "hosts=[dl-worker-01:1,dl-worker-02:1]", f"launcher.rsh_agent={agent}"),
        *("benchmark=resnet50_throughput", "benchmark.stages=[train]", "repeats=1", "data.pipeline=mxnet"),
        "benchmark.model=resnet18_v1",
        *("training.batch_per_rank=4", "benchmark.num_batches=3", "benchmark.num_warmup_batches=1"),
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    (run_set,) = (path.parent for path in (tmp_path / "runs").glob("*/run_set.json"))
    hosts = json.loads((run_set / "hosts.json").read_text())
    assert set(hosts) == {"dl-worker-01", "dl-worker-02"}
    attempt = run_set / "runs" / "run_0" / "attempt_0"
    record = json.loads((attempt / "attempt.json").read_text())
    assert (record["status"], record["exit_status"], record["num_strays"]) == ("success", 0, 0)
    for rank, host in enumerate(("dl-worker-01", "dl-worker-02")):
        assert host in (attempt / f"rank_{rank}.log").read_text(), "mpirun reports bindings with the host's name"


def test_mlbench_second_host_unreachable_launches_nothing(two_hosts: support.Hosts, tmp_path: Path) -> None:
    agent = support.write_agent(tmp_path)
    done = mlbench(
        two_hosts,
        tmp_path,
        *("run", "launcher=mpirun", "hosts=[dl-worker-01:1,dl-worker-09:1]", f"launcher.rsh_agent={agent}"),
        *("benchmark=resnet50_throughput", "benchmark.stages=[train]", "repeats=1", "data.pipeline=mxnet"),
    )
    assert done.returncode == 2, done.stderr[-3000:]
    said = " ".join((done.stderr + done.stdout).split())
    assert "dl-worker-09" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "runs").glob("*/runs/*/attempt_*"))
