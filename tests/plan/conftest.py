"""A machine that is always the same, and the shipped configuration without the user's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.compose import compose
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from tests.support.machines import a_machine


@pytest.fixture
def machine() -> Machine:
    return a_machine()


@pytest.fixture
def planned(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Plan from overrides, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)
    return lambda *overrides: make_plan(compose(overrides), machine)
