"""Running one launch of a stage to its end, with the user's Ctrl-C and the proof that nothing is left."""

from __future__ import annotations

from mlbench.errors import RunFailedError
from mlbench.launch.base import Launch
from mlbench.launch.factory import make_launcher
from mlbench.launch.supervisor import Outcome, run_launch
from mlbench.plan.types import Plan
from mlbench.runner.context import StageContext
from mlbench.wording import count_of


def run_to_end(context: StageContext, plan: Plan, launch: Launch) -> Outcome:
    """Start `launch` with the launcher of `plan` and wait. Raises RunFailedError: a process could not be ended."""
    with context.stop.waking():
        outcome = run_launch(make_launcher(plan), launch, term_grace_s=plan.config.limits.term_grace_s)
    if outcome.left:
        left = count_of(len(outcome.left), "process", "processes")
        raise RunFailedError(f"{launch.cwd}: {left} could not be ended: {'; '.join(outcome.left)}")
    return outcome
