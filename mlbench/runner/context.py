"""What every stage of a run set is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder
from mlbench.plan.types import Plan
from mlbench.runner.events import Listener, StageState
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


@dataclass(frozen=True, slots=True)
class StageReport:
    """`text` is one sentence: what was found, or what is missing and how to get it."""

    state: StageState
    text: str


class StageRunner(Protocol):
    """One stage. `is_done`: its result is on disk already (a resumed run set). `run` raises RunFailedError when the
    run set cannot go on; a tool that is absent is a report `not_measured` that names the package to install."""

    def is_done(self, context: StageContext) -> bool: ...

    def run(self, context: StageContext) -> StageReport: ...
