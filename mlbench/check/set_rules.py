"""Rules over the runs of one set together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from mlbench.analyse.score import time_to_train_s
from mlbench.check import rcp
from mlbench.check.finding import Severity
from mlbench.check.judgement import Judged
from mlbench.check.rule import NotApplicable, Outcome, Problem, Rule, Unknown, listed, logged_problem
from mlbench.check.rulesets import checks_seeds, max_lost_runs, num_runs_asked
from mlbench.check.subject import LogFile, ResultSet
from mlbench.collect.mllog import shown
from mlbench.wording import count_of

_UNUSUAL_SPREAD = 0.03
"""Coefficient of variation; eight of 201 published sets are above it, the median is 0.0012."""
_OWN_SETTINGS = {"seed", "quality_target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetContext:
    item: ResultSet
    judged: Judged
    division: str | None = None
    """The division that was asked for; None: whatever is logged."""


def enough_runs(context: SetContext) -> Iterable[Outcome]:
    """SET-01: the number of runs that the rules ask."""
    item = context.item
    for name, reason in item.unread.items():
        yield Problem(found=f"not read: {reason}", expected="a readable log", file=name)
    asked = num_runs_asked(item.benchmark or "")
    found = len(item.logs) + len(item.unread) + context.judged.num_missing
    if item.benchmark is None:
        yield Unknown(reason="no log names its benchmark, so the number of runs to expect is not known")
    elif asked is None:
        yield Unknown(reason=f"no number of runs is known for {shown(item.benchmark)}")
    elif found != asked:
        yield Problem(found=count_of(found, "run"), expected=f"{count_of(asked, 'run')} of {item.benchmark}")


def enough_converged(context: SetContext) -> Iterable[Outcome]:
    """SET-02: at most one run is lost."""
    judged, item = context.judged, context.item
    if not item.logs:
        yield Unknown(reason="no log")
        return
    allowed = max_lost_runs(item.benchmark or "")
    total = len(item.logs) + judged.num_missing
    if judged.num_lost > allowed:
        lost = [file.name for file, reason in zip(item.logs, judged.why_lost, strict=True) if reason is not None]
        yield Problem(
            found=f"{total - judged.num_lost} of {total} converged (lost: {listed(lost) or 'no log'})",
            expected=f"at most {count_of(allowed, 'lost run')}",
        )


def one_batch_size(context: SetContext) -> Iterable[Outcome]:
    """SET-03: all runs use one global batch size."""
    known = [file for file in context.item.logs if file.log.global_batch_size is not None]
    if not known:
        if context.item.benchmark not in (None, "resnet"):
            raise NotApplicable
        yield Unknown(reason="no global_batch_size is logged")
        return
    usual = statistics.mode([file.log.global_batch_size for file in known])
    for file in context.item.logs:
        if file.log.global_batch_size != usual:
            size = file.log.global_batch_size
            yield logged_problem(
                file,
                "global_batch_size",
                found="no usable global_batch_size" if size is None else f"global_batch_size {size}",
                expected=f"{usual}, as the other runs",
            )


def one_identity(context: SetContext) -> Iterable[Outcome]:
    """SET-04: all runs are of one benchmark, division, status, platform and organisation."""
    logs = context.item.logs
    if not logs:
        yield Unknown(reason="no log")
    for key in ("benchmark", "division", "submission_status", "platform", "org"):
        values = [getattr(file.log, key) for file in logs]
        known = [value for value in values if value is not None]
        if not known:
            continue
        usual = statistics.mode(known)
        record_key = key if key.startswith("submission_") else f"submission_{key}"
        for file, value in zip(logs, values, strict=True):
            if value is not None and value != usual:
                yield logged_problem(
                    file,
                    record_key,
                    found=f"{record_key} {shown(value)}",
                    expected=f"{shown(usual)}, as the other runs",
                )
    if context.division is not None and context.item.division != context.division:
        yield Problem(found=f"division {shown(context.item.division)}", expected=f"{context.division}, as asked")


def fresh_seeds(context: SetContext) -> Iterable[Outcome]:
    """SET-05: no two runs share a seed, wherever in the code it was logged."""
    item = context.item
    must = checks_seeds(item.ruleset, item.division) and "seed-checker-bypass" not in item.options
    seeds = {file.index: set(file.log.seeds) for file in item.logs}
    if not any(seeds.values()):
        yield Unknown(reason="no seed is logged", severity=None if must else Severity.warning)
        return
    first: dict[int, LogFile] = {}
    for file in item.logs:
        for seed in file.log.seeds:
            other = first.setdefault(seed, file)
            if other is file:
                continue
            whole = seeds[file.index] <= seeds[other.index] or seeds[other.index] <= seeds[file.index]
            record = next((entry for entry in file.records.all("seed") if entry.value == seed), None)
            yield Problem(
                found=f"seed {seed}, as in {_short(other, file)}",
                expected="a seed of its own",
                file=file.name,
                line=record.line if record is not None else None,
                severity=None if must and whole else Severity.warning,
            )


def no_clones(context: SetContext) -> Iterable[Outcome]:
    """SET-06: no log stands for two runs."""
    if len(context.item.logs) < 2:
        raise NotApplicable
    by_bytes: dict[str, LogFile] = {}
    by_times: dict[tuple[float, float], LogFile] = {}
    by_course: dict[tuple[float, ...], LogFile] = {}
    for file in context.item.logs:
        log = file.log
        twin = by_bytes.setdefault(file.sha256, file)
        if twin is not file:
            yield Problem(found=f"the same bytes as {_short(twin, file)}", expected="a run of its own", file=file.name)
            continue
        if log.run_start_ms is None or log.run_stop_ms is None:
            continue
        twin = by_times.setdefault((log.run_start_ms, log.run_stop_ms), file)
        if twin is not file:
            yield Problem(
                found=f"run_start and run_stop at the same millisecond as in {_short(twin, file)}",
                expected="a run of its own",
                file=file.name,
                line=log.run_stop_line,
            )
            continue
        spans = log.epochs or log.blocks
        accuracies = [item.accuracy for item in log.evaluations]
        course = (log.run_stop_ms - log.run_start_ms, *(span.stop_ms - span.start_ms for span in spans), *accuracies)
        twin = by_course.setdefault(course, file) if len(course) > 2 else file
        if twin is not file:
            yield Problem(
                found=f"every epoch time and every accuracy is that of {_short(twin, file)}",
                expected="a run of its own",
                file=file.name,
            )


def no_overlap(context: SetContext) -> Iterable[Outcome]:
    """SET-07: runs follow one another on the system."""
    timed = sorted(
        (
            (file.log.run_start_ms, file.log.run_stop_ms, file)
            for file in context.item.logs
            if file.log.run_start_ms is not None and file.log.run_stop_ms is not None
        ),
        key=lambda entry: entry[:2],
    )
    if len(timed) < 2:
        yield Unknown(reason="fewer than two runs are timed", severity=Severity.warning)
    for (_, stop_ms, earlier), (start_ms, _, later) in pairwise(timed):
        if start_ms < stop_ms:
            yield Problem(
                found=f"starts {(stop_ms - start_ms) / 1000:.0f} s before {_short(earlier, later)} has ended",
                expected="runs one after another, unless they ran on systems of the same kind side by side",
                file=later.name,
            )


def same_settings(context: SetContext) -> Iterable[Outcome]:
    """SET-08: hyperparameters are the same in every run."""
    logs = context.item.logs
    keys = sorted({key for file in logs for key in file.log.hyperparameters} - _OWN_SETTINGS)
    if not keys:
        yield Unknown(reason="no hyperparameter is logged", severity=Severity.warning)
    for key in keys:
        values = [json.dumps(file.log.hyperparameters.get(key), default=str) for file in logs]
        if len(set(values)) == 1 or not key.startswith(("opt_", "sgd_", "lars_", "gradient_accumulation", "model_bn")):
            continue
        usual = statistics.mode(values)
        for file, value in zip(logs, values, strict=True):
            if value != usual:
                yield logged_problem(
                    file, key, found=f"{key} {shown(value)}", expected=f"{shown(usual)}, as the other runs"
                )


def convergence_expected(context: SetContext) -> Iterable[Outcome]:
    """SET-09: the Reference Convergence Point test."""
    item, judged = context.item, context.judged
    if judged.rcp is None:
        raise NotApplicable
    if judged.batch_size is None:
        yield Unknown(reason="the batch size is not known, or the runs differ in it")
        return
    refusal = rcp.refusal(judged.rcp, batch_size=judged.batch_size, ruleset=item.ruleset)
    if refusal is None:
        return
    bypass = "rcp-bypass" in item.options
    sizes = ", ".join(str(point.batch_size) for point in rcp.pruned_points(item.ruleset))
    yield Problem(
        found=refusal + ("; rcp-bypass is in force" if bypass else ""),
        expected=f"a mean in keeping with the references at {sizes}" if sizes else "reference points",
        severity=Severity.warning if bypass else None,
    )


def usual_spread(context: SetContext) -> Iterable[Outcome]:
    """SET-10: the runs take about the same time; when not, say whether the system or the training was slower."""
    good = [
        file for file, reason in zip(context.item.logs, context.judged.why_lost, strict=True)
        if reason is None and time_to_train_s(file.log)
    ]  # fmt: skip
    if len(good) < 3:
        yield Unknown(reason="fewer than three converged runs", severity=Severity.warning)
        return
    times = [time_to_train_s(file.log) or 0.0 for file in good]
    mean = statistics.fmean(times)
    spread = statistics.stdev(times) / mean
    if spread <= _UNUSUAL_SPREAD:
        return
    farthest = max(range(len(good)), key=lambda number: abs(times[number] - statistics.median(times)))
    epochs = [file.log.evaluations[-1].epoch_num if file.log.evaluations else None for file in good]
    same = len(set(epochs)) == 1
    why = "all took the same epochs, so the system was slower" if same else f"{epochs[farthest]} epochs"
    yield Problem(
        found=f"coefficient of variation {spread:.1%}; {_duration(times[farthest])} in this run ({why})",
        expected=f"at most {_UNUSUAL_SPREAD:.0%}; the median of published sets is 0.12 %",
        file=good[farthest].name,
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.2f} min" if seconds >= 120 else f"{seconds:.2f} s"


def _short(other: LogFile, file: LogFile) -> str:
    """The other log's name; only its last part when both lie side by side."""
    return other.path.name if other.path.parent == file.path.parent else other.name


SET_RULES: tuple[Rule[SetContext], ...] = (
    Rule(id="SET-01", title="The number of runs is what the rules ask", severity=Severity.error,
         source="mlperf_logging benchmark_meta, package_checker",
         remedy="put exactly these logs side by side as result_0.txt, result_1.txt and so on; run what is missing",
         check=enough_runs),
    Rule(id="SET-02", title="At most one run is lost", severity=Severity.error,
         source="MLPerf training rules, scoring; mlperf_logging package_checker", remedy="repeat the set",
         check=enough_converged),
    Rule(id="SET-03", title="One batch size", severity=Severity.error, source="mlperf_logging rcp_checker",
         remedy="run all repetitions with the same ranks, batch and accumulation", check=one_batch_size),
    Rule(id="SET-04", title="One benchmark, division, status, platform and organisation", severity=Severity.error,
         source="mlbench", remedy="keep logs of different systems or submissions in folders of their own",
         check=one_identity),
    Rule(id="SET-05", title="Each run has a seed of its own", severity=Severity.error,
         source="mlperf_logging seed_checker (closed division, 1.0.0 on; it looks only at the same source line)",
         remedy="draw a fresh seed for each run", check=fresh_seeds),
    Rule(id="SET-06", title="No log stands for two runs", severity=Severity.error, source="mlbench",
         remedy="replace the copy by the log of the run it should be", check=no_clones),
    Rule(id="SET-07", title="Runs do not overlap", severity=Severity.warning, source="mlbench",
         remedy="state in the system description that several systems of the kind were used", check=no_overlap),
    Rule(id="SET-08", title="The same hyperparameters in every run", severity=Severity.error,
         source="MLPerf training rules, hyperparameters and optimizer",
         remedy="run all repetitions from one configuration", check=same_settings),
    Rule(id="SET-09", title="Convergence is in keeping with the references", severity=Severity.error,
         source="mlperf_logging rcp_checker (closed division, 1.0.0 on)",
         remedy="use a batch size with a reference point, or submit reference points for yours",
         check=convergence_expected),
    Rule(id="SET-10", title="The runs take about the same time", severity=Severity.warning, source="mlbench",
         remedy="compare epochs and samples/s of the runs (mlbench results show)", check=usual_spread),
)  # fmt: skip
