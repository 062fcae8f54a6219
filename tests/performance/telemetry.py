"""Telemetry: the processor time and memory of the sampler at one sample a second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mlbench.launch.command import BARE, ISLAND
from tests.performance.context import Context
from tests.performance.harness import Experiment, Goal, Metrics, PeerError, Quantity, Ratio, Sample

SETTLE_S = 2.0
"""Its start is paid once; what runs on beside training is its samples."""
ONE_PERCENT = Goal(bound=1.0, at_least=False, of_ratio=False)
MEMORY = Goal(bound=30.0, at_least=False, of_ratio=False)


def experiments(context: Context) -> Iterator[Experiment]:
    """One: the sampler as a launch starts it."""
    seconds = context.sized(4, 10)
    yield Experiment(
        name="telemetry",
        about=f"the sampler of one host, 1 Hz, {seconds} s",
        contestants={"sampler": lambda: _sampler(context.folder / "telemetry", seconds)},
        ratios=[
            Ratio(
                name="processor time",
                unit="% of a core",
                quantity=Quantity.time,
                ours=("sampler", "cpu"),
                goal=ONE_PERCENT,
            ),
            Ratio(
                name="resident memory",
                unit="MB",
                quantity=Quantity.time,
                ours=("sampler", "memory"),
                goal=MEMORY,
            ),
        ],
        max_rounds=3,
    )


def _sampler(folder: Path, seconds: int) -> Metrics:
    folder.mkdir(exist_ok=True)
    argv = [
        sys.executable,
        *BARE[:1],
        str(ISLAND / "start.py"),
        "telemetry",
        "--folder",
        str(folder),
        "--mark",
        "bench",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLE_S)
        before, begun = _cpu_s(process.pid), time.monotonic()
        time.sleep(seconds)
        cpu_s, elapsed_s = _cpu_s(process.pid) - before, time.monotonic() - begun
        memory_mb = _resident_mb(process.pid)
    except OSError as error:
        raise PeerError(f"the sampler ended early ({error})") from error
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    # Shown as they are: percent and megabytes.
    return {"cpu": Sample(wall_s=100 * cpu_s / elapsed_s), "memory": Sample(wall_s=memory_mb)}


def _cpu_s(pid: int) -> float:
    """In nanoseconds from the scheduler: ticks of a hundredth are too coarse here."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
