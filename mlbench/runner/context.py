"""What every stage of a run set is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder
from mlbench.config import Stage
from mlbench.plan.types import Plan
from mlbench.runner.events import Listener
from mlbench.runner.interrupt import StopRequest
from mlbench.runner.storing import Keeper


@dataclass(frozen=True, slots=True)
class StageContext:
    """`identity` is what run_set.json says. A stage writes its files below `folder`, tells `listener` what happens,
    looks at `stop.requested` between its steps, and calls `keeper.keep()` when there is something new to store."""

    plan: Plan
    folder: RunFolder
    identity: RunSetFile
    listener: Listener
    stop: StopRequest
    keeper: Keeper


class StageState(Enum):
    measured = "measured"
    not_measured = "not_measured"  # its tool is not here; the run set goes on
    failed = "failed"  # it was tried and went wrong


@dataclass(frozen=True, slots=True)
class StageReport:
    """`text` is one sentence: what was found, or what is missing and how to get it."""

    state: StageState
    text: str


class StageRunner(Protocol):
    """One stage. Raises RunFailedError when the run set cannot go on."""

    def run(self, context: StageContext) -> StageReport: ...


Registry = Mapping[Stage, str]
"""Stage -> `module:class`, imported when the stage is reached."""
