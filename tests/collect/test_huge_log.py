"""A huge log needs no more memory than a small one. (How fast logs come in is measured by `make bench`.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_logs import record, run_lines

MAX_GROWTH_MIB = 16


_PEAK = """
import resource, sys
from pathlib import Path
from mlbench.analyse.score import time_to_train_s
from mlbench.collect.mllog import read_log
log = read_log(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time_to_train_s(log))
"""


def peak_mib(path: Path) -> float:
    done = subprocess.run([sys.executable, "-c", _PEAK, str(path)], check=True, capture_output=True, text=True)
    peak, time_s = done.stdout.split()
    assert float(time_s) == 36.5 * 60
    return int(peak) / 1024


@pytest.mark.slow
def test_huge_log_needs_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    lines = run_lines()
    small, huge = tmp_path / "small.txt", tmp_path / "huge.txt"
    small.write_text("\n".join(lines) + "\n", encoding="utf-8")
    filler = b"[17:40:01] src/operator/nn/cudnn: Running performance tests\n" * 10_000
    with huge.open("wb") as stream:
        stream.write(("\n".join(lines[:-1]) + "\n").encode())
        for number in range(300):
            stream.write(filler)
            values = [record("tracked_stats", {"n": number * 100 + n}, 1.0) for n in range(50)]
            values += [record(f"key_{number * 50 + n}", number, 1.0) for n in range(50)]
            stream.write(("\n".join(values) + "\n").encode())
        stream.write(b"y" * 40_000_000 + b"\n")  # a line without end
        stream.write((lines[-1] + "\n").encode())
    assert huge.stat().st_size > 200_000_000
    assert peak_mib(huge) - peak_mib(small) < MAX_GROWTH_MIB
