"""What a run set tells while it runs. A listener (the command line, a test) is called with each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from mlbench.choices import Stage
from mlbench.collect.runfiles import AttemptFile
from mlbench.runner.tail import Progress


class StageState(Enum):
    measured = "measured"
    not_measured = "not_measured"  # its tool is not here; the run set goes on
    failed = "failed"  # it was tried and went wrong


@dataclass(frozen=True, slots=True)
class RunSetStarted:
    run_set: str
    path: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the user; a warning is something they may have to act on."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class StageStarted:
    stage: Stage
    number: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class StageEnded:
    stage: Stage
    text: str
    state: StageState


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """`number` counts from 1 what this call starts, `total` is how many it will start. `expected_epochs` is what the
    recipe usually needs."""

    index: int
    attempt: int
    warmup: bool
    number: int
    total: int
    max_epochs: int
    expected_epochs: float
    seed: int


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    progress: Progress
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    record: AttemptFile
    path: str
    progress: Progress


Event = RunSetStarted | Said | StageStarted | StageEnded | AttemptStarted | AttemptProgress | AttemptEnded
Listener = Callable[[Event], None]
