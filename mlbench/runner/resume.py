"""Running only what is missing of a run set, after making sure that nothing of its past is still there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mlbench.collect.runfiles import Resume, RunSetFile, read_run_set, write_json
from mlbench.collect.runfolder import AttemptFolder, RunFolder
from mlbench.collect.safety import storable_arguments, storable_environment
from mlbench.errors import PreflightError
from mlbench.launch.supervisor import Limits, supervise
from mlbench.plan.types import Plan
from mlbench.runner.attempt import make_record, read_log_if_any
from mlbench.runner.events import Listener, RunSetStarted, Said
from mlbench.runner.facts import all_facts, differences, read_hosts
from mlbench.runner.identity import held
from mlbench.runner.interrupt import StopRequest
from mlbench.runner.judge import judge
from mlbench.runner.launching import job_mark, launcher_afterwards
from mlbench.runner.missing import Attempt, attempts_of
from mlbench.runner.outcome import SeriesResult
from mlbench.runner.provenance import gather
from mlbench.runner.ready import Ready
from mlbench.runner.series import run_stages
from mlbench.wording import count_of
from mlbench.worker.job import JobError, load

_CLEAN_LIMIT_S = 60.0


def resume_series(
    folder: RunFolder,
    ready: Ready,
    *,
    command_line: Sequence[str],
    listener: Listener,
    stop: StopRequest,
    force: bool,
) -> SeriesResult:
    """Run what is missing of `folder`, made ready again from its stored configuration.

    Args: force: go on although facts differ, and record it.
    Raises PreflightError: another mlbench runs it, facts differ, or something of it is still alive."""
    plan = ready.plan
    with held(folder):
        identity = read_run_set(folder.identity)
        changed = changed_facts(identity, folder, ready)
        if changed and not force:
            facts = count_of(len(changed), "fact differs", "facts differ")
            raise PreflightError(
                f"{folder.run_set}: {facts} from its first call ({'; '.join(changed[:5])}), so its "
                "runs would not be one set; make them alike, or `--force` to go on and record it"
            )
        listener(RunSetStarted(folder.run_set, str(folder.path), resumed=True))
        adopt_cut_short(folder, plan, identity, listener)
        entry = Resume(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            command_line=storable_arguments(command_line),
            forced=bool(changed),
            differences=changed,
        )
        identity = replace(identity, resumes=[*identity.resumes, entry])
        try:
            write_json(folder.identity, identity)
        except OSError as error:
            raise PreflightError(f"{folder.identity}: cannot be written ({error.strerror})") from error
        return run_stages(plan, folder, identity, listener=listener, stop=stop, differences=changed)


def changed_facts(identity: RunSetFile, folder: RunFolder, ready: Ready) -> list[str]:
    """What differs now from when the run set was started."""
    before = all_facts(identity, read_hosts(folder.hosts), ready.volatile)
    provenance = gather(ready.plan, ready.clock_offsets_s)
    now = all_facts(
        replace(identity, provenance=provenance, environment=storable_environment(ready.plan.environment)),
        ready.hosts,
        ready.volatile,
    )
    return differences(before, now)


def adopt_cut_short(folder: RunFolder, plan: Plan, identity: RunSetFile, listener: Listener) -> int:
    """End what may be left of attempts without a record, and write their records from their own evidence.

    A run whose log says that it ended is kept as the result it is. Returns how many were adopted.
    Raises PreflightError: a process of such an attempt cannot be ended."""
    cut_short = [item for item in attempts_of(folder) if item.record is None]
    for item in cut_short:
        _end_rest(folder, plan, item)
    return sum(_adopt(item.folder, plan, identity, listener) for item in cut_short)


def _end_rest(folder: RunFolder, plan: Plan, item: Attempt) -> None:
    # A launch of nothing under the old mark: the supervisor then ends whatever carries it, here and on other hosts.
    mark = job_mark(folder, item.folder)
    outcome = supervise(
        ["true"],
        environment={"PATH": os.environ.get("PATH", os.defpath)},
        mark=mark,
        cwd=item.folder.path,
        log=Path(os.devnull),
        limits=Limits(time_s=_CLEAN_LIMIT_S, term_grace_s=plan.config.limits.term_grace_s),
        afterwards=launcher_afterwards(plan, item.folder, mark),
    )
    if outcome.left:
        left = count_of(len(outcome.left), "process of this run is", "processes of this run are")
        raise PreflightError(
            f"{item.folder.path}: {left} still there and cannot be ended "
            f"({'; '.join(outcome.left[:3])}); end them first"
        )


def _adopt(item: AttemptFolder, plan: Plan, identity: RunSetFile, listener: Listener) -> bool:
    try:
        job = load(str(item.job))
    except JobError:
        return False  # it was cut short before it was told anything: nothing was run
    verdict = judge(read_log_if_any(item.mllog), exit_status=None, stopped=None, target=plan.target_accuracy)
    record = make_record(
        item,
        verdict,
        exit_status=None,
        seed=job.seed,
        cache_clear=job.cache_clear,
        rehearsal=identity.rehearsal,
        job_id=job.job_id,
        launched_at=_time_of(item.job),
        ended_at=_time_of(item.mllog if item.mllog.is_file() else item.job),
        lifetime_s=None,
        argv=[],
        num_strays=0,
    )
    write_json(item.outcome, record)
    what = "warm-up" if item.warmup else "run"
    listener(Said(f"{what} {item.index} was cut short; its log makes it: {record.status}"))
    return True


def _time_of(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
