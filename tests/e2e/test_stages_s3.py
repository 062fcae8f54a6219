"""`mlbench` on data in S3: the storage stage and training against five real servers on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlbench.dataset.digits import make_digits
from tests.support.s3_servers import Servers, set_credentials

pytestmark = [
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NAMES = ("train.rec", "train.idx", "val.rec", "val.idx")


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    set_credentials(monkeypatch)
    folder = tmp_path / "made"
    make_digits(folder)
    running = Servers([(str(folder / name), f"digits/{name}") for name in NAMES])
    yield running
    running.close()


def _mlbench(home: Path, servers: Servers, *arguments: str) -> tuple[int, dict[str, Any], str]:
    endpoints = ",".join(servers.urls)
    command = [sys.executable, "-m", "mlbench.cli.main", "run", "+hardware=ecs", "data=digits", *arguments, "--json"]
    command += [f"hardware.storage.s3_endpoints=[{endpoints}]", "data.path=s3://imagenet/digits"]
    environment = {**os.environ, "MLBENCH_HOME": str(home)}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=500, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def _no_secret_in(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"secret-of-the-test" not in path.read_bytes(), f"{path} holds a credential"


def test_storage_of_a_bucket_is_measured_from_every_rank_with_each_endpoints_share(
    tmp_path: Path, servers: Servers
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    settings = ("benchmark.storage.runtime_s=2", "benchmark.storage.block_sequential_bytes=65536")
    status, found, said = _mlbench(home, servers, "benchmark=storage", "gpus=2", *settings)
    assert status == 0, said
    rows = [row for row in found["storage"] if row["pattern"] == "training"]
    total = next(row for row in rows if row["endpoint"] is None)
    shares = {row["endpoint"]: row for row in rows if row["endpoint"] is not None}
    assert set(shares) == set(servers.urls)
    read_from = [url for url in servers.urls if shares[url]["bandwidth_bytes_per_s"] is not None]
    assert read_from == servers.urls[:2]  # rank r to endpoint r mod 5
    assert sum(shares[url]["total_bytes"] for url in read_from) == total["total_bytes"]
    assert shares[servers.urls[4]]["reason"] == "no rank reads from it"
    _no_secret_in(home)


def test_endpoint_that_does_not_answer_is_named_before_anything_is_launched(tmp_path: Path, servers: Servers) -> None:
    servers.kill(0)
    home = tmp_path / "home"
    home.mkdir()
    status, _, said = _mlbench(home, servers, "benchmark=storage", "gpus=2")
    assert status == 2
    assert f"{servers.urls[0]} cannot be reached" in said
    assert not (home / "runs").exists() or not list((home / "runs").iterdir())


def test_training_reads_its_records_from_the_bucket(tmp_path: Path, servers: Servers) -> None:
    home = tmp_path / "home"
    home.mkdir()
    settings = ("benchmark=resnet50_throughput", "benchmark.stages=[train]", "repeats=1", "gpus=2")
    batches = ("benchmark.num_batches=3", "benchmark.num_warmup_batches=1", "benchmark.model=resnet18_v1")
    status, found, said = _mlbench(home, servers, *settings, *batches)
    assert status == 0, said
    assert found["runs"][0]["samples_per_s"] > 0
    log = (Path(found["path"]) / "runs" / "run_0" / "attempt_0" / "rank_1.log").read_text()
    assert f"S3 endpoint {servers.urls[1]}: " in log
    _no_secret_in(home)
