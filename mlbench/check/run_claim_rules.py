"""Rules over what one run claims: convergence, accuracy, data, seed, cache, speed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from mlbench.analyse.score import Target
from mlbench.check.finding import Severity
from mlbench.check.rule import NotApplicable, Outcome, Problem, Rule, RunContext, Unknown
from mlbench.check.rulesets import checks_seeds
from mlbench.check.run_facts import MAX_CLOCK_STEP_MS, last_epoch, need_records, only_resnet, rule_file
from mlbench.collect.mllog import shown
from mlbench.collect.mllog_scan import finite

_IMAGENET_TRAIN, _IMAGENET_VAL = 1_281_167, 50_000


def converged(run: RunContext) -> Iterable[Outcome]:
    """RUN-07: run_stop says success and the target was reached."""
    need_records(run)
    if run.target is None:
        # such a benchmark's quality is judged by the official rule file alone
        severity = Severity.note if run.parent.benchmark else None
        yield Unknown(
            reason=f"no quality target of {run.parent.benchmark or 'this benchmark'} is known", severity=severity
        )
    if run.why_lost is not None:
        stop = run.file.records.last("run_stop")
        where = stop or run.file.records.last("eval_accuracy")
        yield Problem(
            found=run.why_lost.split(", expected")[0],
            expected=f"run_stop status 'success'{_wanted(run.target)}",
            line=where.line if where is not None else None,
        )


def _wanted(target: Target | None) -> str:
    if target is None:
        return ""
    word = "an eval_accuracy of at least" if target.higher_is_better else "a loss of at most"
    return f" and {word} {target.value:g}"


def accuracies_plausible(run: RunContext) -> Iterable[Outcome]:
    """RUN-08: every accuracy is a number from 0 to below 1; exactly 1.0 fails every ruleset."""
    only_resnet(run)
    records = run.file.records.all("eval_accuracy")
    if not records:
        yield Unknown(reason="no eval_accuracy is logged")
    for record in records:
        number = finite(record.value)
        if number is None or not 0.0 <= number < 1.0:
            found = "NaN" if isinstance(record.value, float) and math.isnan(record.value) else shown(record.value)
            yield Problem(found=f"eval_accuracy {found}", expected="a share from 0 to below 1", line=record.line)


def evaluations_follow_training(run: RunContext) -> Iterable[Outcome]:
    """RUN-09: no accuracy is reported for an epoch that was not trained, and evaluations go forward."""
    only_resnet(run)
    index = run.file.records
    evaluations = [
        (number, record)
        for record in index.all("eval_accuracy")
        if (number := finite(record.metadata.get("epoch_num"))) is not None
    ]
    if not evaluations:
        yield Unknown(reason="no eval_accuracy with epoch_num is logged")
        return
    last = last_epoch(run)
    for number, record in evaluations:
        if last is not None and number > last + 1:
            yield Problem(
                found=f"accuracy of epoch {number:g}, but the last epoch that was started is {last:g}",
                expected="evaluations of epochs that were trained",
                line=record.line,
            )
    for (first, earlier), (second, later) in pairwise(evaluations):
        if second < first:
            yield Problem(
                found=f"accuracy of epoch {second:g} after that of epoch {first:g} (line {earlier.line})",
                expected="evaluations in order",
                line=later.line,
            )


def seed_logged(run: RunContext) -> Iterable[Outcome]:
    """RUN-12: a whole number as seed."""
    need_records(run)
    records = run.file.records.all("seed")
    must = checks_seeds(run.parent.ruleset, run.parent.division)
    if not records:
        severity = None if must else Severity.warning
        yield Problem(found="no seed", expected="a fresh seed, logged", severity=severity)
    for record in records:
        if isinstance(record.value, bool) or not isinstance(record.value, int):
            yield Problem(
                found=f"seed {shown(record.value)}",
                expected="a whole number",
                line=record.line,
                severity=None if must else Severity.warning,
            )


def cache_cleared(run: RunContext) -> Iterable[Outcome]:
    """RUN-13: the log says that the cache was cleared, as the closed division asks."""
    records = run.file.records.all("cache_clear")
    if not records:
        yield Unknown(reason="no cache_clear is logged")
        return
    severity = None if run.parent.division == "closed" else Severity.warning
    for record in records:
        if record.value is False:
            yield Problem(
                found="cache_clear false", expected="true: data read cold", line=record.line, severity=severity
            )
        elif record.value is not True:
            yield Problem(
                found=f"cache_clear {shown(record.value)}",
                expected="true or false",
                line=record.line,
                severity=Severity.warning,
            )


def data_whole(run: RunContext) -> Iterable[Outcome]:
    """RUN-14: the closed division of resnet trains on all of ILSVRC2012."""
    if run.parent.benchmark != "resnet" or run.parent.division != "closed":
        raise NotApplicable
    for key, expected in (("train_samples", _IMAGENET_TRAIN), ("eval_samples", _IMAGENET_VAL)):
        record = run.file.records.first(key)
        if record is None:
            yield Unknown(reason=f"no {key} is logged", expected=str(expected))
        elif finite(record.value) != expected:
            yield Problem(found=f"{key} {shown(record.value)}", expected=str(expected), line=record.line)


def batch_plausible(run: RunContext) -> Iterable[Outcome]:
    """RUN-15: the global batch size is a count, and not larger than the data set."""
    only_resnet(run)
    record = run.file.records.first("global_batch_size")
    if record is None:
        yield Unknown(reason="no global_batch_size is logged")
        return
    number = finite(record.value)
    if number is None or number <= 0 or number != int(number):
        yield Problem(found=f"global_batch_size {shown(record.value)}", expected="a count above 0", line=record.line)
    elif run.file.log.train_samples is not None and number > run.file.log.train_samples:
        yield Problem(
            found=f"global_batch_size {number:g} of {run.file.log.train_samples} training samples",
            expected="at most one epoch in a step",
            line=record.line,
        )


def inside_the_run(run: RunContext) -> Iterable[Outcome]:
    """RUN-16: epochs and evaluations lie between run_start and run_stop, and each takes time."""
    only_resnet(run)
    log = run.file.log
    spans = log.epochs or log.blocks
    if log.run_start_ms is None or log.run_stop_ms is None or not spans:
        yield Unknown(reason="run_start, run_stop or the epochs are missing")
        return
    for note in log.untrusted:
        yield Problem(found=note.text, expected="a log that does not contradict itself", line=note.line)
    for span in spans:
        if span.stop_ms <= span.start_ms:
            yield Problem(
                found=f"epoch {span.num:g} takes no time" if span.num is not None else "an epoch takes no time",
                expected="epochs that take time",
            )
    for earlier, later in pairwise(spans):
        if earlier.stop_ms - later.start_ms > MAX_CLOCK_STEP_MS:
            yield Problem(
                found=f"epoch {later.num} starts {(earlier.stop_ms - later.start_ms) / 1000:.1f} s before epoch "
                f"{earlier.num} has ended",
                expected="one epoch after another",
            )


def steady_speed(run: RunContext) -> Iterable[Outcome]:
    """RUN-17: no epoch is a small part of the usual; work that was left out would look like that."""
    only_resnet(run)
    rates = [
        (span.stop_ms - span.start_ms) / span.num_epochs
        for span in run.file.log.epochs or run.file.log.blocks
        if span.num_epochs > 0
    ]
    if len(rates) < 3:
        yield Unknown(reason="fewer than three epochs or blocks are timed")
        return
    usual = sorted(rates)[len(rates) // 2]
    for number, rate in enumerate(rates, start=1):
        if rate < usual / 3:
            yield Problem(
                found=f"epoch {number} took {rate / 1000:.2f} s, the usual one {usual / 1000:.2f} s",
                expected="at least a third of the usual time",
            )


def real(run: RunContext) -> Iterable[Outcome]:
    """RUN-18: the log does not come from the rehearsal launcher."""
    need_records(run)
    record = run.file.records.first("rehearsal")
    if record is not None and record.value is not False:
        yield Problem(found="rehearsal true", expected="a log of real training", line=record.line)


CLAIM_RULES: tuple[Rule[RunContext], ...] = (
    Rule(id="RUN-07", title="The run converged", severity=Severity.error, source=rule_file("closed_resnet.yaml"),
         remedy="one run of a set may be lost; otherwise repeat the set", check=converged, excused=True),
    Rule(id="RUN-08", title="Accuracies are shares below 1", severity=Severity.error,
         source=rule_file("closed_resnet.yaml, open_resnet.yaml"),
         remedy="validate on enough images that 1.0 is out of reach; look for NaN in the loss",
         check=accuracies_plausible, excused=True),
    Rule(id="RUN-09", title="Evaluations belong to epochs that were trained", severity=Severity.error, source="mlbench",
         remedy="log eval_accuracy with the epoch_num it was measured after", check=evaluations_follow_training,
         excused=True),
    Rule(id="RUN-12", title="A seed is logged", severity=Severity.error,
         source="mlperf_logging seed_checker (closed division, 1.0.0 on); otherwise a warning",
         remedy="draw a fresh seed for each run and log it with MLLOG", check=seed_logged, excused=True),
    Rule(id="RUN-13", title="The cache was cleared", severity=Severity.error,
         source="MLPerf training rules, caches; a warning in the open division",
         remedy="run with cache=auto, drop or evict; never log what did not happen", check=cache_cleared),
    Rule(id="RUN-14", title="The whole data set was used", severity=Severity.error,
         source="MLPerf training rules, benchmark definition of resnet", remedy="train and validate on all images, or "
         "submit to the open division", check=data_whole, excused=True),
    Rule(id="RUN-15", title="The batch size is plausible", severity=Severity.error,
         source=rule_file("closed_resnet.yaml"), remedy="log per-rank batch x ranks x accumulation steps",
         check=batch_plausible, excused=True),
    Rule(id="RUN-16", title="The run holds its epochs", severity=Severity.error, source="mlbench",
         remedy="log run_start before the first epoch and run_stop after the last evaluation, on one clock",
         check=inside_the_run, excused=True),
    Rule(id="RUN-17", title="Epochs take about the same time", severity=Severity.warning, source="mlbench",
         remedy="look for skipped batches, a stepped clock, or a data set that was cut short", check=steady_speed),
    Rule(id="RUN-18", title="Not a rehearsal", severity=Severity.error, source="mlbench",
         remedy="run with launcher=local, mpirun or slurm", check=real),
)  # fmt: skip
