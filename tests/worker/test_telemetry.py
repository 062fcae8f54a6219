"""The sampler of the island: parsers on texts in the kernel's form, and the real program beside a real process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench.worker import telemetry

START = Path(telemetry.__file__).with_name("start.py")


def test_cpu_shares_leave_idle_and_waiting_out() -> None:
    before = telemetry.parse_cpu("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1\nintr 5\n")
    now = telemetry.parse_cpu("cpu  160 0 70 900 70 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1\n")
    shares = telemetry.cpu_shares(before["cpu"], now["cpu"])
    assert shares == {"": 0.4, "_user": 0.3, "_system": 0.1, "_iowait": 0.1}  # 80, 60, 20, 20 of 200 ticks


def test_cpu_shares_without_a_tick_are_not_known() -> None:
    assert telemetry.cpu_shares((1,) * 8, (1,) * 8) is None


def test_memory_is_bytes_and_what_is_missing_stays_missing() -> None:
    text = "MemTotal:       1000 kB\nMemAvailable:    400 kB\nCached:          300 kB\n"
    assert telemetry.parse_memory(text) == {"memory_used_bytes": 600 * 1024, "page_cache_bytes": 300 * 1024}


def test_network_leaves_loopback_and_unused_interfaces_out() -> None:
    text = (
        "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
        "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
        "  ib0:700 1 0 0 0 0 0 0 800 1 0 0 0 0 0 0\n"
        "  ifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    assert telemetry.parse_network(text) == {"ib0": (700, 800)}


def test_disks_count_sectors_of_512_bytes() -> None:
    text = " 259 0 nvme0n1 10 0 200 5 4 0 80 3 0 1 1\n 259 1 nvme0n1p1 1 0 8 1 0 0 0 0 0 0 0\n"
    assert telemetry.parse_disks(text, ["nvme0n1"]) == {"nvme0n1": (10, 200 * 512, 4, 80 * 512)}


def test_cpu_list_reads_ranges() -> None:
    assert telemetry.cpu_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]


@pytest.mark.slow
def test_sampler_beside_a_busy_process_sees_it_and_ends_with_term(tmp_path: Path) -> None:
    mark = f"telemetry-test-{os.getpid()}"
    busy = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], env={**os.environ, "MLBENCH_JOB": mark}, start_new_session=True
    )
    command = [sys.executable, "-I", str(START), "telemetry", "--folder", str(tmp_path), "--mark", mark]
    sampler = subprocess.Popen([*command, "--interval", "0.5"])
    try:
        time.sleep(4)
        sampler.send_signal(signal.SIGTERM)
        assert sampler.wait(timeout=5) == 0
    finally:
        for process in (busy, sampler):
            process.kill()
            process.wait()
    (file,) = tmp_path.glob("*.jsonl")
    head, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert head["schema_version"] == telemetry.SCHEMA_VERSION
    assert len(lines) >= 5
    assert all(b["t"] > a["t"] for a, b in itertools.pairwise(lines))
    cores = [line["m"]["ranks_cpu_cores"] for line in lines if "ranks_cpu_cores" in line["m"]]
    assert max(cores) > 0.2  # one loop; the machine may be busy with others
    assert 0 <= lines[-1]["m"]["cpu_share"] <= 1


@pytest.mark.slow
def test_sampler_whose_parent_is_gone_already_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(START), "telemetry", "--folder", str(tmp_path), "--mark", "x"]
    done = subprocess.run([*command, "--parent", "1073741824"], timeout=20, check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_sampler_ends_when_its_parent_goes(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-I', {str(START)!r}, 'telemetry', '--folder', {str(tmp_path)!r},"
        " '--mark', 'x', '--interval', '0.2', '--parent', str(os.getpid())])\n"
        "print(p.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_sampler_costs_less_than_one_percent_of_a_core_and_30_mb(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(START), "telemetry", "--folder", str(tmp_path), "--mark", "none"]
    sampler = subprocess.Popen(command)
    try:
        time.sleep(3)
        before, memory = telemetry.parse_process(Path(f"/proc/{sampler.pid}/stat").read_text()) or (0, 0)
        time.sleep(10)
        after, _ = telemetry.parse_process(Path(f"/proc/{sampler.pid}/stat").read_text()) or (0, 0)
    finally:
        sampler.kill()
        sampler.wait()
    assert memory < 30e6
    # CPU time of the process itself, so it holds on a busy machine too.
    assert (after - before) / os.sysconf("SC_CLK_TCK") <= 0.1
