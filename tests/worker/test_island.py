"""The island stands alone: its imports, its Python version, its way of being mounted."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).resolve().parents[2] / "mlbench" / "worker"
SOURCES = sorted(WORKER.rglob("*.py"))
OPTIONAL = {"mxnet", "horovod", "numpy", "mlperf_logging"}
"""Third-party modules that training itself needs; imported inside functions only."""

PROBE = """
import json, sys
before = set(sys.modules)
import mlbench_worker.__main__, mlbench_worker.train, mlbench_worker.throughput, mlbench_worker.cache
found = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(found - set(sys.stdlib_module_names))))
"""


def imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(WORKER).as_posix())
def test_module_never_names_the_rest_of_mlbench(path: Path) -> None:
    for node in imports_of(path):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        assert not any(name.split(".")[0].startswith("mlbench") for name in names), f"line {node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(WORKER).as_posix())
def test_module_relative_imports_stay_inside(path: Path) -> None:
    depth = len(path.relative_to(WORKER).parts)
    for node in imports_of(path):
        assert not isinstance(node, ast.ImportFrom) or node.level <= depth, f"line {node.lineno}"


def test_import_of_the_worker_brings_the_standard_library_only(tmp_path: Path) -> None:
    (tmp_path / "mlbench_worker").symlink_to(WORKER)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert json.loads(done.stdout) == ["mlbench_worker"]


def test_mounted_alone_it_answers_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "mlbench_worker").symlink_to(WORKER)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "mlbench_worker", str(tmp_path / "nothing.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 2
    assert "nothing.json: [Errno 2] No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_sources_are_python_38() -> None:
    """`vermin` knows when each part of the language and of the standard library appeared."""
    vermin = Path(sys.executable).with_name("vermin")
    command = [str(vermin), "-t=3.8-", "--no-tips", "--violations", "--eval-annotations", str(WORKER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_environment_is_read_for_the_rank_only() -> None:
    """os.environ and os.getenv appear where the rank is found (and in the parents that start ranks), nowhere else."""
    readers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"):
                readers.add(path.relative_to(WORKER).as_posix())
    training = {"__main__.py", "log.py", "model.py", "optimizer.py", "step.py", "train.py", "throughput.py"}
    training |= {"schedule.py", "validate.py", "runtime.py", "pipelines/base.py", "pipelines/mxnet_iter.py"}
    assert "ranks.py" in readers
    assert not readers & training
