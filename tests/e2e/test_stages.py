"""The all-reduce and storage stages alone, through the command line, with real Horovod, Open MPI and fio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.training]


def _mlbench(folder: Path, *arguments: str, path: str | None = None) -> tuple[int, dict[str, Any], str]:
    environment = {**os.environ, "MLBENCH_HOME": str(folder)}
    if path is not None:
        environment["PATH"] = path
    command = [sys.executable, "-m", "mlbench.cli.main", "run", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.mpi
def test_allreduce_alone_measures_horovod_and_its_ceiling(tmp_path: Path) -> None:
    status, found, said = _mlbench(tmp_path, "benchmark=allreduce", "benchmark.allreduce.max_bytes=1048576")
    assert status == 0, said
    assert found["stages"]["allreduce"]["state"] == "measured"
    backends = {(row["backend"], row["transport"]) for row in found["allreduce"]}
    assert backends == {("horovod", "Gloo"), ("mpi", "MPI")}
    sizes = [row["size_bytes"] for row in found["allreduce"] if row["backend"] == "horovod"]
    assert sizes == [8 * 2**n for n in range(18)]  # 8 B to 1 MiB by factor 2
    for row in found["allreduce"]:
        assert row["num_wrong"] == 0
        # nccl-tests, doc/PERFORMANCE.md: busbw = algbw x 2 (n - 1) / n, which is algbw for two ranks
        assert row["busbw_gb_per_s"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3)


@pytest.mark.mpi
def test_allreduce_under_mpirun_goes_over_mpi(tmp_path: Path) -> None:
    arguments = ("benchmark=allreduce", "gpus=2", "launcher=mpirun", "benchmark.allreduce.max_bytes=65536")
    status, found, said = _mlbench(tmp_path, *arguments, "benchmark.allreduce.backend=horovod")
    assert status == 0, said
    assert {(row["backend"], row["transport"]) for row in found["allreduce"]} == {("horovod", "MPI")}


def test_allreduce_of_one_rank_is_not_measured_and_says_why(tmp_path: Path) -> None:
    _, found, _ = _mlbench(tmp_path, "benchmark=allreduce", "gpus=1")
    stage = found["stages"]["allreduce"]
    assert stage["state"] == "not_measured"
    assert "1 rank moves nothing" in stage["text"]
    assert found["allreduce"] == []


@pytest.mark.fio
def test_storage_alone_gives_fios_own_numbers(tmp_path: Path) -> None:
    settings = ("benchmark.storage.runtime_s=1", "benchmark.storage.file_size_gb=0.1")
    status, found, said = _mlbench(tmp_path, "benchmark=storage", *settings)
    assert status == 0, said
    patterns = [(row["pattern"], row["cache"]) for row in found["storage"]]
    assert patterns == [("sequential", "direct"), ("random", "direct"), ("training", "cold"), ("training", "warm")]
    (raw,) = (Path(found["path"]) / "storage" / "attempt_0").glob("[!s]*.json")
    for row, test in zip(found["storage"], json.loads(raw.read_text())["tests"], strict=True):
        read = json.loads(test["stdout"][test["stdout"].index("{") :])["jobs"][0]["read"]
        assert row["bandwidth_bytes_per_s"] == read["bw_bytes"]
        assert row["iops"] == read["iops"]
    assert not list(tmp_path.rglob(".mlbench-fio-*")), "fio's own files must be gone"


def test_storage_without_fio_names_the_package_and_goes_on(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("python3", "sh", "env"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    _, found, _ = _mlbench(tmp_path, "benchmark=storage", path=str(tools))
    assert found["stages"]["storage"] == {
        "state": "not_measured",
        "text": "fio is not installed here: apt-get install fio",
    }
