"""Open MPI over two hosts of tests/support/hosts.py: each has network and process numbers of its own."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import hosts as support

pytestmark = [
    pytest.mark.netns,
    pytest.mark.mpi,
    pytest.mark.slow,
]

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "support" / "launch_driver.py"
STUBBORN = ROOT / "tests" / "support" / "stubborn.py"
SWEEP = ROOT / "mlbench" / "worker" / "processes.py"
ALL_REDUCE = """
import os, horovod.mxnet as hvd, mxnet as mx
hvd.init()
total = hvd.allreduce(mx.nd.ones((4,)) * (hvd.rank() + 1), average=False)
print("sum", int(total.asnumpy()[0]), "ranks", hvd.size(), "host", os.uname().nodename, flush=True)
"""


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[support.Hosts]:
    with support.running(["dl-worker-01", "dl-worker-02"]) as hosts:
        yield hosts


def order(folder: Path, hosts: support.Hosts, command: list[str], **more: Any) -> dict[str, Any]:
    return {
        "launcher": "mpirun",
        "hosts": dict.fromkeys(hosts.names, 1),
        "command": command,
        "dir": str(folder),
        "mark": f"netns-{folder.name}-{time.time_ns()}",
        "agent": str(support.write_agent(folder)),
        "nic": "eth0",
        **more,
    }


def start(hosts: support.Hosts, what: dict[str, Any]) -> subprocess.Popen[str]:
    command = shlex.join([sys.executable, str(DRIVER), json.dumps(what)])
    return subprocess.Popen(
        hosts.on("dl-worker-01", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    outcome: dict[str, Any] = json.loads(output)
    return outcome


def alive(hosts: support.Hosts, mark: str) -> list[str]:
    """What carries the mark on any host; ends it, too, so that one test's failure is not the next one's."""
    found = []
    for host in hosts.names:
        done = subprocess.run(
            hosts.on(host, sys.executable, "-I", "-S", str(SWEEP), mark), capture_output=True, text=True, timeout=60
        )
        found += json.loads(done.stdout)["found"]
    return found


def wait_for(paths: list[Path], limit_s: float = 40) -> None:
    deadline = time.monotonic() + limit_s
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"{paths} did not appear"
        time.sleep(0.05)


def test_mpirun_two_hosts_all_reduce_sums_over_both(two_hosts: support.Hosts, tmp_path: Path) -> None:
    outcome = finish(start(two_hosts, order(tmp_path, two_hosts, [sys.executable, "-c", ALL_REDUCE])))

    launcher_log = (tmp_path / "launcher.log").read_text()
    assert (outcome["ended_by"], outcome["exit_status"]) == ("exited", 0), launcher_log
    assert (outcome["strays"], outcome["left"]) == ([], [])
    said = [(tmp_path / f"rank_{rank}.log").read_text() for rank in (0, 1)]
    assert "sum 3 ranks 2 host dl-worker-01" in said[0]
    assert "sum 3 ranks 2 host dl-worker-02" in said[1]


def test_mpirun_two_hosts_time_limit_leaves_nothing_on_either(two_hosts: support.Hosts, tmp_path: Path) -> None:
    what = order(tmp_path, two_hosts, [sys.executable, str(STUBBORN), str(tmp_path)], time_limit_s=5)
    outcome = finish(start(two_hosts, what))

    assert all((tmp_path / f"alive_{rank}").exists() for rank in (0, 1)), "the ranks must have run"
    assert outcome["ended_by"] == "timeout"
    assert outcome["left"] == []
    assert alive(two_hosts, what["mark"]) == []


def test_mpirun_two_hosts_one_rank_fails_ends_the_other(two_hosts: support.Hosts, tmp_path: Path) -> None:
    program = "import os, sys, time\nsys.exit(7) if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else time.sleep(600)"
    what = order(tmp_path, two_hosts, [sys.executable, "-c", program])
    outcome = finish(start(two_hosts, what))

    assert (outcome["ended_by"], outcome["exit_status"]) == ("exited", 7)
    assert outcome["left"] == []
    assert alive(two_hosts, what["mark"]) == []


@pytest.mark.parametrize("victim", ["launch_driver", "supervisor_main"])
def test_mpirun_two_hosts_sigkill_of_mlbench_leaves_nothing(
    two_hosts: support.Hosts, tmp_path: Path, victim: str
) -> None:
    what = order(tmp_path, two_hosts, [sys.executable, str(STUBBORN), str(tmp_path)])
    process = start(two_hosts, what)
    wait_for([tmp_path / "alive_0", tmp_path / "alive_1"])
    # By number, inside the host's own process namespace: only what this test started is there.
    subprocess.run(
        two_hosts.on("dl-worker-01", f"for p in $(pgrep -f '[{victim[0]}]{victim[1:]}'); do kill -KILL $p; done"),
        check=False,
        timeout=30,
    )
    process.communicate(timeout=120)
    if victim == "launch_driver":
        assert process.returncode == 128 + signal.SIGKILL

    deadline = time.monotonic() + 20  # the grace of both sides
    while time.monotonic() < deadline and seen(two_hosts, what["mark"]):
        time.sleep(0.5)
    assert seen(two_hosts, what["mark"]) == []


def seen(hosts: support.Hosts, mark: str) -> list[str]:
    """What carries the mark, only looked at."""
    look = f"grep -lz '^MLBENCH_JOB={mark}' /proc/[0-9]*/environ 2> /dev/null || true"
    return [
        line
        for host in hosts.names
        for line in subprocess.run(hosts.on(host, look), capture_output=True, text=True, timeout=60).stdout.split()
    ]
