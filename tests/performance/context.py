"""What the experiments are given: where to work, how much to do, and which peers are here."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.performance.command import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`folder` is scratch space that is removed afterwards. Pythons of peers are None when nobody named them."""

    folder: Path
    quick: bool
    full: bool
    published: Path | None
    torch_python: str | None
    dali_python: str | None
    postgres_url: str | None

    def sized(self, quick: int, usual: int, full: int | None = None) -> int:
        """How much of something, by the size that was asked for."""
        if self.quick:
            return quick
        return full if self.full and full is not None else usual


def make_context(folder: Path, *, quick: bool, full: bool) -> Context:
    """Reads MLBENCH_PUBLISHED, MLBENCH_TORCH_PYTHON, MLBENCH_DALI_PYTHON, MLBENCH_TEST_POSTGRES_URL."""
    published = Path(os.environ.get("MLBENCH_PUBLISHED") or ROOT.parent / "shared" / "published")
    return Context(
        folder=folder,
        quick=quick,
        full=full,
        published=published.resolve() if (published / "expected.json").is_file() else None,
        torch_python=os.environ.get("MLBENCH_TORCH_PYTHON"),
        dali_python=os.environ.get("MLBENCH_DALI_PYTHON"),
        postgres_url=os.environ.get("MLBENCH_TEST_POSTGRES_URL"),
    )


def has_training() -> bool:
    return find_spec("mxnet") is not None and find_spec("horovod") is not None


def has_mpi() -> bool:
    return shutil.which("mpirun") is not None and find_spec("mpi4py") is not None


def horovodrun() -> str:
    """The one of this environment."""
    return str(Path(sys.executable).parent / "horovodrun")


def num_cpus() -> int:
    return len(os.sched_getaffinity(0))
