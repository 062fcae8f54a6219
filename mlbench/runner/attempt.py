"""One attempt at one repetition: cold cache, job, launch, watch, judge, record."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlbench.collect.mllog import read_log
from mlbench.collect.runfiles import SCHEMA_VERSION, AttemptFile, write_json
from mlbench.collect.runfolder import AttemptFolder
from mlbench.collect.runlog import RunLog, RunStatus
from mlbench.errors import InputError, RunFailedError
from mlbench.launch.supervisor import EndedBy, Outcome, run_launch
from mlbench.runner.cold import clear_cache
from mlbench.runner.context import StageContext
from mlbench.runner.events import AttemptProgress, Listener, Said
from mlbench.runner.judge import Judgement, judge
from mlbench.runner.launching import Prepared, prepare
from mlbench.runner.missing import Slot
from mlbench.runner.seeds import fresh_seed, numbered_seed
from mlbench.runner.tail import LogTail, Progress, last_lines
from mlbench.runner.telling import first_failure, telling_log

POLL_S = 0.2
_NUM_LAST_LINES = 20


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt that is over. `left` names processes that could not be ended: nothing may be started over them."""

    record: AttemptFile
    progress: Progress
    left: tuple[str, ...]


def choose_seed(context: StageContext, slot: Slot, used: Collection[int]) -> int:
    """A fresh seed that is not in `used`; with `seed=N` the number that belongs to this repetition and attempt."""
    first = context.plan.config.seed
    if first is None:
        return fresh_seed(used)
    return numbered_seed(
        first,
        index=slot.index,
        attempt=slot.attempt,
        warmup=slot.warmup,
        repeats=context.identity.repeats,
        warmup_runs=context.identity.warmup_runs,
    )


def run_attempt(context: StageContext, slot: Slot, seed: int) -> Finished:
    """Run one attempt to its end, whatever that is, and write its record.

    Raises RunFailedError: the attempt's files cannot be written, so the run set cannot go on."""
    folder = context.folder.attempt(slot.index, slot.attempt, warmup=slot.warmup)
    try:
        folder.path.mkdir(parents=True)
        cache_clear, why_warm = clear_cache(context.plan, folder)
        if why_warm is not None and not context.identity.rehearsal:
            context.listener(Said(f"the cache was not proven cold: {why_warm}", warning=True))
        prepared = prepare(context.plan, context.folder, folder, seed=seed, cache_clear=cache_clear)
        launched_at = datetime.now(UTC)
        outcome, progress = _launch(context, prepared)
        record = _record(context, prepared, outcome, launched_at)
        write_json(folder.outcome, record)
    except OSError as error:
        raise RunFailedError(
            f"{folder.path}: cannot be written ({error.strerror}); what was finished before is kept; make room or mend "
            f"it, then `mlbench resume {context.folder.run_set}`"
        ) from error
    return Finished(record, progress, outcome.left)


def _launch(context: StageContext, prepared: Prepared) -> tuple[Outcome, Progress]:
    limits = context.plan.config.limits
    follower = Follower(LogTail(prepared.folder.mllog), context.listener)
    try:
        with context.stop.waking():
            outcome = run_launch(
                prepared.launcher,
                prepared.launch,
                watch=prepared.folder.mllog,
                no_record_s=limits.no_record_s,
                term_grace_s=limits.term_grace_s,
                on_poll=follower.poll,
                poll_s=POLL_S,
            )
    except KeyboardInterrupt:
        # Between two of its steps; nothing was started yet, or all of it has been ended.
        outcome = Outcome(ended_by=EndedBy.interrupted, exit_status=None, seconds=0.0)
    follower.poll()
    return outcome, follower.tail.progress


class Follower:
    """Reads the growing log and tells the listener."""

    def __init__(self, tail: LogTail, listener: Listener) -> None:
        self.tail = tail
        self._listener = listener
        self._began = time.monotonic()

    def poll(self) -> None:
        self.tail.poll()
        self._listener(AttemptProgress(self.tail.progress, time.monotonic() - self._began))


def _record(context: StageContext, prepared: Prepared, outcome: Outcome, launched_at: datetime) -> AttemptFile:
    log = read_log_if_any(prepared.folder.mllog)
    verdict = judge(
        log,
        exit_status=outcome.exit_status,
        stopped=_stopped(context, outcome),
        target=context.plan.target_accuracy,
    )
    return make_record(
        prepared.folder,
        verdict,
        exit_status=outcome.exit_status,
        seed=prepared.seed,
        cache_clear=prepared.cache_clear,
        rehearsal=context.identity.rehearsal,
        job_id=prepared.launch.mark,
        launched_at=launched_at,
        ended_at=datetime.now(UTC),
        lifetime_s=outcome.seconds,
        argv=prepared.launcher.argv(prepared.launch),
        num_strays=len(outcome.strays),
    )


def make_record(
    folder: AttemptFolder,
    verdict: Judgement,
    *,
    exit_status: int | None,
    seed: int,
    cache_clear: bool,
    rehearsal: bool,
    job_id: str,
    launched_at: datetime,
    ended_at: datetime,
    lifetime_s: float | None,
    argv: list[str],
    num_strays: int,
) -> AttemptFile:
    """attempt.json of a judged attempt; with the end of its log when it did not end well."""
    tail = LogTail(folder.mllog)
    while tail.poll():
        continue
    good = verdict.status is RunStatus.success
    failed = first_failure(folder.launcher_log) if verdict.status is RunStatus.crashed else None
    log = None if good else telling_log(folder)
    return AttemptFile(
        schema_version=SCHEMA_VERSION,
        job_id=job_id,
        index=folder.index,
        attempt=folder.attempt,
        warmup=folder.warmup,
        rehearsal=rehearsal,
        status=verdict.status.value,
        reason=verdict.reason if failed is None else f"{verdict.reason}; {failed}",
        exit_status=exit_status,
        seed=seed,
        cache_clear=cache_clear,
        launched_at=launched_at.isoformat(timespec="milliseconds"),
        ended_at=ended_at.isoformat(timespec="milliseconds"),
        lifetime_s=None if lifetime_s is None else round(lifetime_s, 6),
        argv=argv,
        last_record=None if good else tail.progress.last_record,
        last_lines=[] if log is None else last_lines(log, _NUM_LAST_LINES),
        log=None if log is None else log.name,
        num_strays=num_strays,
    )


def read_log_if_any(path: Path) -> RunLog | None:
    """The run's log; None when it is missing or cannot be read."""
    try:
        return read_log(path) if path.is_file() else None
    except InputError:
        return None


def _stopped(context: StageContext, outcome: Outcome) -> tuple[RunStatus, str] | None:
    """What mlbench itself did to the run; None when the launcher ended by itself."""
    limits = context.plan.config.limits
    seen = f"; last record seen: {outcome.last_record[:300]}" if outcome.last_record else "; no record was seen"
    match outcome.ended_by:
        case EndedBy.exited:
            return None
        case EndedBy.timeout:
            return RunStatus.timeout, f"stopped at the limit of {limits.max_minutes:g} minutes for one run{seen}"
        case EndedBy.no_record:
            return RunStatus.timeout, f"stopped after {limits.no_record_s:g} s without a new record{seen}"
        case EndedBy.interrupted:
            return RunStatus.interrupted, "stopped by the user"
        case EndedBy.not_started:
            return RunStatus.crashed, f"could not be started: {outcome.note}"
        case EndedBy.supervisor_lost:
            return RunStatus.crashed, f"lost its supervisor: {outcome.note}"
