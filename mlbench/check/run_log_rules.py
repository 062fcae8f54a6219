"""Rules over the log of one run: what it must hold, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from mlbench.check.finding import Severity
from mlbench.check.rule import Outcome, Problem, Rule, RunContext, Unknown
from mlbench.check.rulesets import DIVISIONS, LOGGED_STATUSES, init_limit_min, knows
from mlbench.check.rulesets import last_that_knows as last_ruleset
from mlbench.check.run_facts import MAX_CLOCK_STEP_MS, need_records, only_resnet, rule_file, time_ms
from mlbench.collect.mllog import shown
from mlbench.collect.mllog_scan import finite
from mlbench.collect.runlog import Record
from mlbench.errors import near_miss
from mlbench.wording import count_of

_REQUIRED = (
    "submission_benchmark", "submission_division", "submission_org", "submission_platform", "submission_status",
    "cache_clear", "init_start", "init_stop", "run_start", "run_stop", "train_samples", "eval_samples",
    "eval_accuracy",
)  # fmt: skip
_ONE_VALUE = (
    "submission_benchmark", "submission_division", "submission_org", "submission_platform", "submission_status",
    "global_batch_size", "train_samples", "eval_samples", "opt_name", "gradient_accumulation_steps",
    "quality_target",
)  # fmt: skip
_ONE_RANK = (
    "run_start",
    "epoch_start",
    "epoch_stop",
    "block_start",
    "block_stop",
    "eval_start",
    "eval_stop",
    "run_stop",
)
_EARLIEST_MS = 1_388_534_400_000.0  # 2014-01-01, before the first MLPerf round
_LATEST_MS = 4_102_444_800_000.0  # 2100-01-01
MAX_SHOWN = 12


def readable(run: RunContext) -> Iterable[Outcome]:
    """RUN-01: every record can be read."""
    records = run.file.records
    if run.file.log.num_records == 0 and not records.torn:
        yield Problem(found="no MLLOG record in this file", expected="a log of one run")
        return
    for torn in records.torn[:MAX_SHOWN]:
        what = f" of {torn.key}" if torn.key else ""
        yield Problem(found=f"torn record{what}: {shown(torn.text)}", expected="a whole MLLOG record", line=torn.line)
    if len(records.torn) > MAX_SHOWN:
        yield Problem(found=count_of(len(records.torn) - MAX_SHOWN, "more torn record"), expected="whole MLLOG records")
    if records.num_left_out:
        yield Unknown(reason=f"{count_of(records.num_left_out, 'record is', 'records are')} too many to be looked at")
    for record in (item for items in records.by_key.values() for item in items):
        if record.time_ms is None:
            yield Problem(found=f"{record.key} has no usable time_ms", expected="milliseconds", line=record.line)
        if not record.metadata:
            yield Problem(
                found=f"{record.key} has no metadata", expected="metadata with file and lineno", line=record.line
            )


def complete(run: RunContext) -> Iterable[Outcome]:
    """RUN-02: the keys that the rules require are there."""
    need_records(run)
    index = run.file.records
    missing = [key for key in _REQUIRED if index.first(key) is None]
    if run.parent.benchmark not in (None, "resnet"):
        missing = [key for key in missing if key.startswith(("submission_", "init_", "run_"))]
    elif index.first("epoch_start") is None and index.first("block_start") is None:
        missing.append("epoch_start or block_start")
    if run.parent.division == "closed" and index.first("global_batch_size") is None:
        missing.append("global_batch_size")
    for key in missing:
        yield Problem(found=f"no {key}", expected=f"a record of {key}")


def ordered(run: RunContext) -> Iterable[Outcome]:
    """RUN-03: init_start, init_stop, run_start, run_stop follow one another, in the file and by the clock."""
    steps = [run.file.records.first(key) for key in ("init_start", "init_stop", "run_start", "run_stop")]
    there = [record for record in steps if record is not None]
    if len(there) < 2:
        yield Unknown(reason="fewer than two of init_start, init_stop, run_start and run_stop are logged")
        return
    for earlier, later in pairwise(there):
        if later.line < earlier.line or time_ms(later) < time_ms(earlier):
            by_file = later.line < earlier.line
            yield Problem(
                found=f"{later.key} {'stands' if by_file else 'is timed'} before {earlier.key} (line {earlier.line})",
                expected="init_start, init_stop, run_start, run_stop",
                line=later.line,
            )
    init_stop, started = steps[1], run.file.log.run_start_ms
    if init_stop is not None and started is not None:
        for late in run.file.records.all("init_start"):
            if late.line > init_stop.line:
                yield Problem(found="init_start after init_stop", expected="before it", line=late.line)


def single(run: RunContext) -> Iterable[Outcome]:
    """RUN-04: one run in one file, and no key that contradicts itself."""
    need_records(run)
    for key in ("run_start", "run_stop", "init_stop"):
        records = run.file.records.all(key)
        for again in records[1:]:
            if again.time_ms != records[0].time_ms or again.metadata.get("status") != records[0].metadata.get("status"):
                yield Problem(
                    found=f"{key} again, first in line {records[0].line}",
                    expected="one run in a file",
                    line=again.line,
                )
    for key in _ONE_VALUE:
        records = run.file.records.all(key)
        for again in records[1:]:
            if again.value != records[0].value:
                yield Problem(
                    found=f"{key} is {shown(again.value)} here and {shown(records[0].value)} in line {records[0].line}",
                    expected="one value",
                    line=again.line,
                )


def timed(run: RunContext) -> Iterable[Outcome]:
    """RUN-05: the times of the run are plausible and do not go back."""
    sequence = _first_of_each(record for record in run.file.records.all(*_ONE_RANK) if record.time_ms is not None)
    if not sequence:
        yield Unknown(reason="no timed record of the run")
        return
    first = sequence[0]
    if not _EARLIEST_MS <= time_ms(first) < _LATEST_MS:
        yield Problem(
            found=f"{first.key} at {time_ms(first):.0f} ms", expected="milliseconds since 1970", line=first.line
        )
    last_of_key: dict[str, Record] = {}
    for earlier, later in pairwise(sequence):
        last_of_key[earlier.key] = earlier
        same = last_of_key.get(later.key)
        if same is not None and time_ms(same) - time_ms(later) > MAX_CLOCK_STEP_MS:
            yield _goes_back(later, same, None)
        elif time_ms(later) < time_ms(earlier):
            # ranks of other nodes, with clocks of their own, may have logged the one or the other
            step = time_ms(earlier) - time_ms(later) > MAX_CLOCK_STEP_MS
            yield _goes_back(later, earlier, Severity.warning if step else Severity.note)


def _first_of_each(records: Iterable[Record]) -> list[Record]:
    """What several ranks log of one event is taken once."""
    kept: dict[tuple[str, float | None, float | None], Record] = {}
    for record in records:
        epoch, block = record.metadata.get("epoch_num"), record.metadata.get("first_epoch_num")
        kept.setdefault((record.key, finite(epoch), finite(block)), record)
    return list(kept.values())


def _goes_back(later: Record, earlier: Record, severity: Severity | None) -> Problem:
    return Problem(
        found=f"{later.key} is {time_ms(earlier) - time_ms(later):.0f} ms earlier than {earlier.key} "
        f"in line {earlier.line}",
        expected="times that do not go back",
        line=later.line,
        severity=severity,
    )


def epochs_ordered(run: RunContext) -> Iterable[Outcome]:
    """RUN-06: epochs (or blocks) are numbered upwards without gaps or repeats."""
    only_resnet(run)
    index = run.file.records
    starts = index.all("epoch_start") or index.all("block_start")
    if not starts:
        yield Unknown(reason="neither epoch_start nor block_start is logged")
        return
    field = "epoch_num" if index.first("epoch_start") is not None else "first_epoch_num"
    first: dict[float, Record] = {}
    for record in starts:
        number = finite(record.metadata.get(field))
        if number is None:
            yield Problem(found=f"{record.key} without {field}", expected=f"metadata.{field}", line=record.line)
            continue
        known = first.setdefault(number, record)
        if abs(time_ms(record) - time_ms(known)) > MAX_CLOCK_STEP_MS:
            yield Problem(
                found=f"{record.key} {number:g} again, first in line {known.line}",
                expected="each epoch once",
                line=record.line,
            )
    timed_starts = [(number, record) for number, record in first.items() if record.time_ms is not None]
    in_time = sorted(timed_starts, key=lambda item: (time_ms(item[1]), item[0]))
    for (before, earlier), (number, record) in pairwise(in_time):
        if number < before:
            yield Problem(
                found=f"{record.key} {number:g} after {before:g} (line {earlier.line})",
                expected="epochs in order",
                line=record.line,
            )
        elif field == "epoch_num" and number > before + 1:
            yield Problem(
                found=f"{record.key} {number:g} after {before:g}", expected=f"{before + 1:g}", line=record.line
            )


def init_in_time(run: RunContext) -> Iterable[Outcome]:
    """RUN-10: initialisation ends within its limit."""
    log = run.file.log
    if log.init_start_ms is None or log.init_stop_ms is None:
        yield Unknown(reason="init_start or init_stop is missing")
        return
    limit_min = init_limit_min(run.parent.ruleset, log.division)
    took_min = (log.init_stop_ms - log.init_start_ms) / 60_000.0
    if took_min >= limit_min:
        stop = run.file.records.last("init_stop")
        yield Problem(
            found=f"initialisation took {took_min:.1f} min",
            expected=f"less than {limit_min:g} min in the {log.division or 'closed'} division",
            line=stop.line if stop is not None else None,
        )


def in_vocabulary(run: RunContext) -> Iterable[Outcome]:
    """RUN-11: division, status and benchmark are words of the ruleset."""
    need_records(run)
    log, index, ruleset = run.file.log, run.file.records, run.parent.ruleset
    words = (
        ("submission_division", log.division, DIVISIONS),
        ("submission_status", log.submission_status, LOGGED_STATUSES),
    )
    for key, value, known in words:
        record = index.first(key)
        if record is not None and value not in known:
            found = shown(record.value)
            yield Problem(
                found=f"{key} {found}{near_miss(found, known)}", expected=" or ".join(known), line=record.line
            )
    benchmark = index.first("submission_benchmark")
    if benchmark is not None and not knows(ruleset, str(benchmark.value)):
        last = last_ruleset(str(benchmark.value))
        yield Problem(
            found=f"ruleset {ruleset} does not know the benchmark {shown(benchmark.value)}",
            expected=f"a ruleset up to {last}, the last that does" if last else "a benchmark of MLPerf Training",
            line=benchmark.line,
            remedy=f"check with --ruleset {last}" if last else "name the benchmark as MLPerf does, for example resnet",
        )


LOG_RULES: tuple[Rule[RunContext], ...] = (
    Rule(id="RUN-01", title="Records can be read", severity=Severity.error, source="mlperf_logging mlp_parser",
         remedy="log to a file of rank 0's own, so that records are not torn or mixed with other output; run again",
         check=readable, excused=True),
    Rule(id="RUN-02", title="Required records are there", severity=Severity.error, source=rule_file("common.yaml"),
         remedy="log the key; a run that ended early counts as not converged", check=complete, excused=True),
    Rule(id="RUN-03", title="Initialisation ends before the run starts", severity=Severity.error,
         source=rule_file("common.yaml"), remedy="log init_stop, then run_start, before any training data is touched",
         check=ordered, excused=True),
    Rule(id="RUN-04", title="One run in a file, one value for a key", severity=Severity.error,
         source=rule_file("common.yaml, EXACTLY_ONE"), remedy="keep one file for each run; log such a key on one rank",
         check=single, excused=True),
    Rule(id="RUN-05", title="Times do not go back", severity=Severity.error, source="mlbench",
         remedy="synchronise the clocks of the nodes (chrony, ptp) and log from one rank", check=timed, excused=True),
    Rule(id="RUN-06", title="Epochs are in order", severity=Severity.error, source=rule_file("common.yaml"),
         remedy="number epochs from 1 and log start and stop of each once", check=epochs_ordered, excused=True),
    Rule(id="RUN-10", title="Initialisation within its time limit", severity=Severity.error,
         source=rule_file("common.yaml, init_stop"), remedy="compile and warm up faster; only work inside init is free",
         check=init_in_time, excused=True),
    Rule(id="RUN-11", title="Division, status and benchmark are known", severity=Severity.error,
         source=rule_file("common.yaml, closed_common.yaml"), remedy="write the word as the rules have it",
         check=in_vocabulary),
)  # fmt: skip
