"""The training stage: warm-ups, then the repetitions, each with a cold cache, a fresh seed and a clean machine."""

from __future__ import annotations

import time

from mlbench.choices import OnFailure
from mlbench.errors import InputError, RunFailedError
from mlbench.runner.attempt import choose_seed, run_attempt
from mlbench.runner.context import StageContext, StageReport
from mlbench.runner.events import AttemptEnded, AttemptStarted, Said, StageState
from mlbench.runner.judge import ended_by_itself
from mlbench.runner.missing import Slot, attempts_of, missing_slots
from mlbench.runner.observe import observe
from mlbench.wording import count_of


class TrainStage:
    """Runs what is missing of the run set; called for a new one, that is everything."""

    def is_done(self, context: StageContext) -> bool:
        """Never asked to skip: `run` looks at what is missing itself."""
        return False

    def run(self, context: StageContext) -> StageReport:
        """Raises RunFailedError: the disk does not take the files, or a process could not be ended."""
        began = time.monotonic()
        before = attempts_of(context.folder)
        used = {item.record.seed for item in before if item.record is not None}
        slots = missing_slots(before, repeats=context.identity.repeats, warmup_runs=context.identity.warmup_runs)
        num_failed = num_done = 0
        lifetimes_s = 0.0
        for number, slot in enumerate(slots, start=1):
            if context.stop.requested:
                break
            good, lifetime_s = _run_slot(context, slot, number, len(slots), used)
            num_done += 1
            lifetimes_s += lifetime_s
            if good:
                continue
            num_failed += 1
            if context.plan.config.on_failure is OnFailure.stop:
                break
        wall_s = time.monotonic() - began
        _observe(context)
        return _report(num_done, len(slots), num_failed, wall_s, lifetimes_s)


def _observe(context: StageContext) -> None:
    """Findings about what the machine did; a damaged file of theirs costs no finished run."""
    try:
        observe(context)
    except InputError as error:
        context.listener(Said(str(error), warning=True))
    except OSError as error:
        raise RunFailedError(f"{context.folder.findings}: cannot be written ({error.strerror})") from error


def _run_slot(context: StageContext, slot: Slot, number: int, total: int, used: set[int]) -> tuple[bool, float]:
    """Whether the attempt came to its own end, and how long the launcher lived."""
    seed = choose_seed(context, slot, used)
    used.add(seed)
    max_epochs = context.plan.schedule.max_epochs
    context.listener(
        AttemptStarted(
            index=slot.index,
            attempt=slot.attempt,
            warmup=slot.warmup,
            number=number,
            total=total,
            max_epochs=max_epochs,
            expected_epochs=context.plan.config.training.expected_epochs or max_epochs,
            seed=seed,
        )
    )
    finished = run_attempt(context, slot, seed)
    folder = context.folder.attempt(slot.index, slot.attempt, warmup=slot.warmup)
    context.keeper.keep()
    context.listener(AttemptEnded(finished.record, str(folder.path), finished.progress))
    if finished.record.num_strays:
        strays = count_of(finished.record.num_strays, "process", "processes")
        text = f"{strays} outlived the launcher of this run; mlbench ended what was left"
        context.listener(Said(text, warning=True))
    if finished.left:
        raise RunFailedError(
            f"{folder.path}: {count_of(len(finished.left), 'process', 'processes')} of this run could not be ended "
            f"({'; '.join(finished.left[:3])}); end them, then `mlbench resume {context.folder.run_set}`"
        )
    return ended_by_itself(finished.record.status), finished.record.lifetime_s or 0.0


def _report(num_done: int, num_wanted: int, num_failed: int, wall_s: float, lifetimes_s: float) -> StageReport:
    text = f"{num_done - num_failed} of {count_of(num_wanted, 'run')} came to their end"
    if num_failed:
        text += f", {num_failed} failed"
    if lifetimes_s > 0:
        text += f"; {wall_s:.1f} s in all, {lifetimes_s:.1f} s of them in the workers"
    good = num_failed == 0 and num_done == num_wanted
    return StageReport(StageState.measured if good else StageState.failed, text)
