"""The real worker under a real Python 3.8, mounted alone as in a vendor's container.

MLBENCH_PYTHON38 may name a Python that has MXNet; else the first one found gets an environment of its own with MXNet,
kept in pytest's cache folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import mlperf_logging
import pytest

from tests.support.python38 import find_python38
from tests.worker.conftest import ROOT, SmallSet, job_for, read_log

pytestmark = [pytest.mark.python38, pytest.mark.slow]
PACKAGES = ("mxnet==1.9.1", "numpy==1.23.5")


def has_mxnet(python: Path) -> bool:
    """Look for the package without importing it (NumPy may need mending first)."""
    probe = "import sys, importlib.util as u; sys.exit(sys.version_info[:2] != (3, 8) or u.find_spec('mxnet') is None)"
    return subprocess.run([str(python), "-c", probe], check=False, timeout=60).returncode == 0


@pytest.fixture(scope="session")
def python38(pytestconfig: pytest.Config) -> Path:
    base = find_python38()
    assert base is not None
    if has_mxnet(base):
        return base
    assert pytestconfig.cache is not None
    folder = Path(str(pytestconfig.cache.mkdir("python38"))) / "venv"
    python = folder / "bin" / "python"
    if not (python.exists() and has_mxnet(python)):
        subprocess.run([str(base), "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True, timeout=500)
    return python


@pytest.fixture
def mounted(tmp_path: Path) -> dict[str, str]:
    """The environment of a rank: the island as mlbench_worker, mllog beside it, nothing else of ours."""
    packages = tmp_path / "opt"
    packages.mkdir()
    (packages / "mlbench_worker").symlink_to(ROOT / "mlbench" / "worker")
    (packages / "mlperf_logging").symlink_to(Path(mlperf_logging.__file__).parent)
    return {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}


def test_worker_under_python38_trains_and_logs(
    tmp_path: Path, easy_set: SmallSet, python38: Path, mounted: dict[str, str]
) -> None:
    job = job_for(tmp_path, easy_set, schedule__max_epochs=1, schedule__target_accuracy=0.0)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    command = [str(python38), "-m", "mlbench_worker", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=mounted)
    assert done.returncode == 0, done.stderr
    records = read_log(tmp_path / "result.txt")
    assert (records[-1]["key"], records[-1]["metadata"]["status"]) == ("run_stop", "success")
    assert sum(record["key"] == "eval_accuracy" for record in records) == 1


def test_worker_under_python38_refuses_a_bad_job(
    tmp_path: Path, easy_set: SmallSet, python38: Path, mounted: dict[str, str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job_for(tmp_path, easy_set, num_ranks="two")))
    command = [str(python38), "-m", "mlbench_worker", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=mounted)
    assert (done.returncode, done.stderr) == (2, "job.num_ranks: found 'two', expected int\n")


def test_cache_helper_under_python38(tmp_path: Path, python38: Path, mounted: dict[str, str]) -> None:
    data = tmp_path / "train.rec"
    data.write_bytes(os.urandom(100_000))
    command = [str(python38), "-m", "mlbench_worker.cache", "--mode", "evict", "--files", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=mounted)
    assert json.loads(done.stdout)["proven"] is True


def test_every_module_of_the_island_compiles_under_python38(python38: Path, tmp_path: Path) -> None:
    island = tmp_path / "island"
    shutil.copytree(ROOT / "mlbench" / "worker", island, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    command = [str(python38), "-m", "compileall", "-q", "-f", str(island)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
