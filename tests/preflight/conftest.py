"""A machine without and one with GPUs, and plans in an empty folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.compose import compose
from mlbench.plan.machine import Gpu, Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from tests.support.machines import a_machine


@pytest.fixture
def machine() -> Machine:
    return a_machine()


@pytest.fixture
def dgx(machine: Machine) -> Machine:
    gpu = Gpu(name="NVIDIA A100-SXM4-40GB", memory_bytes=40_000_000_000)
    return dataclasses.replace(machine, gpus=(gpu,) * 8)


@pytest.fixture
def planned(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)
    return lambda *overrides: make_plan(compose(overrides), machine)
