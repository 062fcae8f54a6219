"""The nccl-tests backend under a real mpirun, with a program in place of `all_reduce_perf` that prints its table.

There is no NCCL hardware here; what is tested is that the right command reaches every rank, that the table of rank 0 is
found in the launcher's output, and that processes that ran apart are refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.mpi]

STAND_IN = """#!{python}
import os, sys
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
assert sys.argv[1:] == "-b 8 -e 16 -f 2 -g 1 -w 5 -n 20 -c 1".split(), sys.argv
if {apart}:
    rank, size = 0, 1
if rank == 0:
    print("# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1")
    print("# Using devices")
    for number in range(size):
        print(f"#  Rank {{number:2d}} Group  0 Pid {{4100 + number}} on node-{{number}} device  0 [0x07] A GPU")
    print("#                     out-of-place                       in-place")
    print("# size count type redop root time algbw busbw #wrong time algbw busbw #wrong")
    print("# (B) (elements)          (us) (GB/s) (GB/s)        (us) (GB/s) (GB/s)")
    for nbytes in (8, 16):
        print(f"  {{nbytes}} {{nbytes // 4}} float sum -1 20.0 0.01 0.01 0 21.0 0.01 0.01 0")
    print("# Out of bounds values : 0 OK")
    print("# Avg bus bandwidth    : 0.01")
"""


def _run(tmp_path: Path, *, apart: bool) -> tuple[int, dict[str, Any]]:
    binary = tmp_path / "all_reduce_perf"
    binary.write_text(STAND_IN.format(python=sys.executable, apart=apart))
    binary.chmod(0o755)
    command = [
        *(sys.executable, "-m", "mlbench.cli.main", "run", "benchmark=allreduce", "gpus=2", "launcher=mpirun"),
        *("benchmark.allreduce.backend=nccl_tests", f"benchmark.allreduce.binary={binary}"),
        *("benchmark.allreduce.max_bytes=16", "--json"),
    ]
    environment = {**os.environ, "MLBENCH_HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_table_of_all_ranks_is_read_from_the_launchers_output(tmp_path: Path) -> None:
    status, found = _run(tmp_path, apart=False)
    assert status == 0, found["stages"]
    assert [(row["size_bytes"], row["in_place"], row["time_us"]) for row in found["allreduce"]] == [
        (8, False, 20.0),
        (8, True, 21.0),
        (16, False, 20.0),
        (16, True, 21.0),
    ]
    assert {(row["backend"], row["transport"], row["num_ranks"]) for row in found["allreduce"]} == {
        ("nccl_tests", "NCCL", 2)
    }


def test_processes_that_ran_apart_are_a_failed_stage_and_no_rows(tmp_path: Path) -> None:
    status, found = _run(tmp_path, apart=True)
    assert status == 3
    assert "2 tables instead of one: the processes ran apart" in found["stages"]["allreduce"]["text"]
    assert found["allreduce"] == []
