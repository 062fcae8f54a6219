"""From logs to the rows of store/tables.py: the one way, for our own run folders and for imported trees."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from mlbench.analyse.score import (
    RunResult,
    RunSetScore,
    Target,
    best_accuracy,
    time_to_train_s,
    why_not_converged,
)
from mlbench.analyse.throughput import Throughput, ThroughputMethod, span_rates, throughput
from mlbench.collect.runlog import PIPELINE, PIPELINE_REASON, Note, RunLog, RunStatus
from mlbench.store.tables import Epoch, EvaluationRow, Hyperparameter, NoteRow, Run, RunSet

T = TypeVar("T")


def build_run(
    log: RunLog,
    *,
    index: int,
    target: Target | None,
    attempt: int = 0,
    warmup: bool = False,
    ended: RunStatus | None = None,
    ended_reason: str | None = None,
    exit_status: int | None = None,
    log_path: str | None = None,
    log_sha256: str | None = None,
) -> Run:
    """The row of one run with its epochs, evaluations and settings.

    Args:
        target: what the benchmark must reach; None: not known, so nothing has converged.
        ended: how the runner saw the process end. Anything but success wins over what the log says.
    """
    rates = throughput(log)
    status, reason, converged = _judge(log, target, ended, ended_reason)
    last = log.evaluations[-1] if log.evaluations else None
    time_s = time_to_train_s(log)
    return Run(
        index=index,
        attempt=attempt,
        warmup=warmup,
        status=status.value,
        status_reason=reason,
        converged=converged,
        time_to_train_s=time_s,
        epochs=last.epoch_num if last else None,
        final_accuracy=last.accuracy if last else None,
        best_accuracy=best_accuracy(log, target),
        quality_target=target.value if target else None,
        seed=log.seeds[0] if log.seeds else None,
        samples_per_s=rates.samples_per_s,
        samples_per_s_first_epoch=rates.samples_per_s_first_epoch,
        samples_per_s_steady=rates.samples_per_s_steady,
        train_samples=log.train_samples,
        global_batch_size=log.global_batch_size,
        cache_clear=log.cache_clear,
        started_at=utc(log.run_start_ms),
        init_s=_init_s(log),
        exit_status=exit_status,
        log_path=log_path,
        log_sha256=log_sha256,
        epoch_rows=_epoch_rows(log),
        evaluations=_evaluation_rows(log),
        hyperparameters=[Hyperparameter(key=key, value=json.dumps(value)) for key, value in _settings(log)],
    )


def _settings(log: RunLog) -> list[tuple[str, Any]]:
    """What was set and what was really used, by key."""
    used = {PIPELINE: log.input_pipeline, PIPELINE_REASON: log.input_pipeline_reason}
    return sorted((log.hyperparameters | {key: value for key, value in used.items() if value is not None}).items())


def _judge(
    log: RunLog, target: Target | None, ended: RunStatus | None, ended_reason: str | None
) -> tuple[RunStatus, str | None, bool]:
    why_not = why_not_converged(log, target)
    if ended is not None and ended is not RunStatus.success:
        return ended, ended_reason or why_not, False
    if log.run_start_ms is None or log.run_stop_ms is None:
        return RunStatus.incomplete, why_not, False
    status = RunStatus.success if log.run_stop_status == "success" else RunStatus.aborted
    return status, why_not, why_not is None


def _init_s(log: RunLog) -> float | None:
    if log.init_start_ms is None or log.init_stop_ms is None or log.init_stop_ms < log.init_start_ms:
        return None
    return (log.init_stop_ms - log.init_start_ms) / 1000.0


def _epoch_rows(log: RunLog) -> list[Epoch]:
    """Rows need a run_start to count from; without one there are none."""
    start_ms = log.run_start_ms
    if start_ms is None:
        return []
    spans, kind = (log.epochs, "epoch") if log.epochs else (log.blocks, "block")
    return [
        Epoch(
            kind=kind,
            epoch_num=span.num,
            num_epochs=span.num_epochs,
            start_s=(span.start_ms - start_ms) / 1000.0,
            duration_s=(span.stop_ms - span.start_ms) / 1000.0,
            samples_per_s=rate,
        )
        for span, rate in zip(spans, span_rates(log), strict=True)
    ]


def _evaluation_rows(log: RunLog) -> list[EvaluationRow]:
    start_ms = log.run_start_ms
    return [
        EvaluationRow(
            epoch_num=item.epoch_num,
            accuracy=item.accuracy,
            time_s=None if start_ms is None or item.time_ms is None else (item.time_ms - start_ms) / 1000.0,
        )
        for item in log.evaluations
    ]


def run_results(runs: Iterable[Run]) -> list[RunResult]:
    """What scoring needs, in order. Warm-ups are left out; of several attempts at a run the last one counts."""
    last: dict[int, Run] = {}
    for run in runs:
        known = last.get(run.index)
        if not run.warmup and (known is None or (run.attempt or 0) >= (known.attempt or 0)):
            last[run.index] = run
    return [RunResult(time_s=last[i].time_to_train_s, converged=last[i].converged) for i in sorted(last)]


def apply_score(row: RunSet, score: RunSetScore) -> None:
    """Write a score into a run set's row."""
    row.num_runs, row.num_converged = score.num_runs, score.num_converged
    row.olympic_mean_s, row.score_s = score.olympic_mean_s, score.score_s
    row.score_status, row.score_reason = score.score_status.value, score.score_reason
    row.scaling_factor, row.rcp_factor = score.scaling_factor, score.rcp_factor
    row.mean_s, row.min_s, row.max_s, row.cv = score.mean_s, score.min_s, score.max_s, score.cv


def apply_throughput(row: RunSet, logs: Sequence[tuple[RunLog, bool]]) -> None:
    """Rates of a run set: means over the converged runs. `logs` are (log, converged) of the runs that count."""
    rates = [throughput(log) for log, converged in logs if converged]
    row.samples_per_s = _mean(rates, "samples_per_s")
    row.samples_per_s_first_epoch = _mean(rates, "samples_per_s_first_epoch")
    methods = {item.method for item in rates} - {ThroughputMethod.none}
    row.throughput_method = ", ".join(sorted(method.value for method in methods)) or None


def _mean(rates: Sequence[Throughput], name: str) -> float | None:
    values = [value for item in rates if (value := getattr(item, name)) is not None]
    return statistics.fmean(values) if values else None


def agreed(values: Iterable[T | None]) -> T | None:
    """The value that all runs that tell one agree on; None when they differ or none tells."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None


def cache_state(logs: Iterable[RunLog]) -> str:
    """`cold` when every run says its cache was cleared, `warm` when one says it was not, else `unknown`."""
    states = [log.cache_clear for log in logs]
    if any(state is False for state in states):
        return "warm"
    return "cold" if states and all(states) else "unknown"


def note_rows(notes: Iterable[Note], *, severity: str = "note") -> list[NoteRow]:
    return [NoteRow(severity=severity, file=note.file, line=note.line, text=note.text) for note in notes]


def utc(time_ms: float | None) -> datetime | None:
    """A log's milliseconds as a moment; None when no calendar has that time."""
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000.0, UTC)
    except (OverflowError, ValueError, OSError):
        return None
