"""Which attempt meets the accident that is rehearsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.choices import RehearsalFault
from mlbench.config import RehearsalConfig
from mlbench.launch.rehearsal import fault_of
from mlbench.worker.rehearsal import FAULTS


def settings(fault_in_run: int | None) -> RehearsalConfig:
    return RehearsalConfig(fault=RehearsalFault.crash, fault_in_run=fault_in_run, seconds_per_run=0.1, epochs=5)


def test_every_fault_is_explained_in_the_how_to() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "run.md").read_text(encoding="utf-8")
    assert all(f"| `{fault.value}` |" in page for fault in RehearsalFault if fault is not RehearsalFault.none)


def test_faults_of_the_configuration_are_those_the_worker_plays() -> None:
    assert {fault.value for fault in RehearsalFault} == set(FAULTS)


@pytest.mark.parametrize(
    ("fault_in_run", "index", "attempt", "warmup", "expected"),
    [
        (1, 1, 0, False, RehearsalFault.crash),
        (1, 0, 0, False, RehearsalFault.none),
        (None, 0, 0, False, RehearsalFault.crash),
        (None, 3, 0, False, RehearsalFault.crash),
        (None, 0, 1, False, RehearsalFault.none),
        (None, 0, 0, True, RehearsalFault.none),
    ],
)
def test_fault_is_met_by_the_first_attempt_of_the_chosen_runs_alone(
    fault_in_run: int | None, index: int, attempt: int, warmup: bool, expected: RehearsalFault
) -> None:
    assert fault_of(settings(fault_in_run), index=index, attempt=attempt, warmup=warmup) is expected
