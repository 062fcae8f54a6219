"""Rules over a run set of mlbench: what its logs say against what was asked and recorded."""

from __future__ import annotations

from collections.abc import Iterable

from mlbench.check.finding import Severity
from mlbench.check.judgement import ENDED
from mlbench.check.rule import Outcome, Problem, Rule, Unknown, listed, logged_problem
from mlbench.check.subject import LogFile, OwnRunSet, ResultSet
from mlbench.collect.mllog import shown
from mlbench.wording import count_of
from mlbench.worker.job import Job


def _own(item: ResultSet) -> OwnRunSet:
    assert item.own is not None, "own rules are applied to run sets of mlbench"
    return item.own


def measured(item: ResultSet) -> Iterable[Outcome]:
    """OWN-01: real training, not a rehearsal."""
    if _own(item).identity.rehearsal:
        yield Problem(found="rehearsal true", expected="runs of real training", file="run_set.json")


def every_run_ended(item: ResultSet) -> Iterable[Outcome]:
    """OWN-02: every repetition that was asked has an attempt that ended well."""
    own = _own(item)
    for index in range(own.identity.repeats):
        run = own.runs.get(index)
        if run is None:
            yield Problem(found=f"run {index} was not started", expected=count_of(own.identity.repeats, "run"))
        elif run.attempt is None:
            yield Problem(
                found="no attempt.json: the attempt was cut short", expected="a finished attempt", file=run.name
            )
        elif run.attempt.status not in ENDED:
            reason = f" ({shown(run.attempt.reason)})" if run.attempt.reason else ""
            yield Problem(found=f"status {run.attempt.status}{reason}", expected="success", file=run.name)


def logs_tell_the_same(item: ResultSet) -> Iterable[Outcome]:
    """OWN-03: seed, cache, organisation, platform, division and batch of a log are those that were asked."""
    own = _own(item)
    if not item.logs:
        yield Unknown(reason="no log")
    for file in item.logs:
        run = own.runs.get(file.index)
        if run is None or run.job is None:
            yield Unknown(reason=f"no job.json beside {file.name}, so its log cannot be compared")
            continue
        yield from _compare(file, run.job, own)


def _compare(file: LogFile, job: Job, own: OwnRunSet) -> Iterable[Outcome]:
    log = file.log
    pairs: list[tuple[str, object, object]] = [
        ("submission_org", log.org, own.identity.org),
        ("submission_platform", log.platform, own.identity.platform),
        ("submission_division", log.division, own.identity.division),
        ("submission_status", log.submission_status, own.identity.submission_status),
        ("global_batch_size", log.global_batch_size, own.identity.global_batch_size),
        ("cache_clear", log.cache_clear, job.cache_clear),
        ("seed", job.seed if job.seed in log.seeds else (log.seeds or None), job.seed),
    ]
    for key, found, asked in pairs:
        if found is not None and found != asked:
            yield logged_problem(
                file, key, found=f"{key} {shown(found)}", expected=f"{shown(asked)}, as recorded when it was launched"
            )


def no_second_try(item: ResultSet) -> Iterable[Outcome]:
    """OWN-04: only runs that failed were run again; a finished run is never replaced by a better one."""
    for index, run in sorted(_own(item).runs.items()):
        ended = [number for number, status in enumerate(run.earlier) if status in ENDED]
        if ended:
            yield Problem(
                found=f"run {index}: attempt {ended[0]} had ended, and was run again",
                expected="only attempts that crashed, hung or were stopped are repeated",
                file=run.name,
            )
        elif run.earlier:
            statuses = [status or "cut short" for status in run.earlier]
            yield Problem(
                found=f"run {index}: {count_of(len(run.earlier), 'earlier attempt')} failed ({listed(statuses)})",
                expected="the last attempt counts; every attempt stays on disk",
                file=run.name,
                severity=Severity.note,
            )


def tidy(item: ResultSet) -> Iterable[Outcome]:
    """OWN-05: nothing lies in the run folder that mlbench did not make."""
    for name in _own(item).stray_names:
        yield Problem(
            found=f"{shown(name)} is not of mlbench's making", expected="files of the run set only", file=name
        )


def warmups_apart(item: ResultSet) -> Iterable[Outcome]:
    """OWN-06: warm-up runs are there as asked; they are labelled and never averaged."""
    own = _own(item)
    if own.num_warmups != own.identity.warmup_runs:
        yield Problem(
            found=count_of(own.num_warmups, "warm-up run"),
            expected=f"{own.identity.warmup_runs}, as asked",
            file="run_set.json",
        )


OWN_RULES: tuple[Rule[ResultSet], ...] = (
    Rule(id="OWN-01", title="Not a rehearsal", severity=Severity.error, source="mlbench",
         remedy="run with launcher=local, mpirun or slurm", check=measured),
    Rule(id="OWN-02", title="Every repetition ended", severity=Severity.error, source="mlbench",
         remedy="mlbench resume runs what is missing", check=every_run_ended, excused=True),
    Rule(id="OWN-03", title="The logs say what was asked", severity=Severity.error, source="mlbench",
         remedy="do not edit logs; run the set again", check=logs_tell_the_same),
    Rule(id="OWN-04", title="Finished runs are not replaced", severity=Severity.error,
         source="MLPerf training rules, run results", remedy="keep the first finished attempt of each run",
         check=no_second_try),
    Rule(id="OWN-05", title="The run folder holds nothing else", severity=Severity.note, source="mlbench",
         remedy="nothing to do: it is left out of packages", check=tidy),
    Rule(id="OWN-06", title="Warm-up runs are apart", severity=Severity.note, source="mlbench",
         remedy="nothing to do: warm-up runs are never scored", check=warmups_apart),
)  # fmt: skip
