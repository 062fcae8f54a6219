"""Samples per second of one run, from its epochs or, where there are none, from its blocks of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mlbench.collect.runlog import RunLog, Span


class ThroughputMethod(Enum):
    """Where the seconds come from. Evaluation is never among them."""

    epochs = "epochs"  # epoch_start to epoch_stop
    blocks_less_eval = "blocks less eval"  # blocks minus eval_start to eval_stop
    blocks_before_eval = "blocks before eval"  # blocks are closed before the accuracy is logged
    none = "none"  # not computable


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Samples per second; None where the log does not tell. `num_epochs` and `train_s` are what was timed."""

    method: ThroughputMethod
    samples_per_s: float | None = None
    samples_per_s_first_epoch: float | None = None
    samples_per_s_steady: float | None = None
    samples_per_s_first_block: float | None = None
    num_epochs: float | None = None
    train_s: float | None = None

    @property
    def first_epoch_over_overall(self) -> float | None:
        if self.samples_per_s is None or self.samples_per_s_first_epoch is None:
            return None
        return self.samples_per_s_first_epoch / self.samples_per_s


def throughput(log: RunLog) -> Throughput:
    """Rates of one run.

    `samples_per_s` is train_samples times epochs over the seconds in epochs (or blocks), evaluation left out;
    `samples_per_s_first_epoch` that of the first epoch, `samples_per_s_steady` that of all others. A rate is None
    when evaluation cannot be told from training, or when train_samples is not logged.
    """
    samples = log.train_samples
    if not samples:
        return Throughput(method=ThroughputMethod.none)
    method = _method(log)
    first_block = None
    if log.blocks and _eval_is_apart(log, log.blocks):
        first_block = _rate(samples, log.blocks[:1], log.evals)
    spans = log.epochs if method is ThroughputMethod.epochs else log.blocks
    if method is ThroughputMethod.none:
        return Throughput(method=method)
    by_epoch = method is ThroughputMethod.epochs
    return Throughput(
        method=method,
        samples_per_s=_rate(samples, spans, log.evals),
        samples_per_s_first_epoch=_rate(samples, spans[:1], log.evals) if by_epoch else None,
        samples_per_s_steady=_rate(samples, spans[1:], log.evals) if by_epoch else None,
        samples_per_s_first_block=first_block,
        num_epochs=sum(span.num_epochs for span in spans),
        train_s=sum(_train_ms(span, log.evals) for span in spans) / 1000.0,
    )


def epoch_rate(log: RunLog, span: Span) -> float | None:
    """Samples per second of one epoch or block."""
    if not log.train_samples or not _eval_is_apart(log, [span]):
        return None
    return _rate(log.train_samples, [span], log.evals)


def _method(log: RunLog) -> ThroughputMethod:
    if log.epochs:
        return ThroughputMethod.epochs if _eval_is_apart(log, log.epochs) else ThroughputMethod.none
    if not log.blocks or not _eval_is_apart(log, log.blocks):
        return ThroughputMethod.none
    if log.evals:
        return ThroughputMethod.blocks_less_eval
    return ThroughputMethod.blocks_before_eval if log.evaluations else ThroughputMethod.none


def _eval_is_apart(log: RunLog, spans: Sequence[Span]) -> bool:
    """Evaluations are timed, or their accuracies are logged outside the spans."""
    if log.evals:
        return True
    times = [item.time_ms for item in log.evaluations]
    return not any(time is not None and span.start_ms < time < span.stop_ms for span in spans for time in times)


def _train_ms(span: Span, evals: Sequence[tuple[float, float]]) -> float:
    inside = sum(max(0.0, min(stop, span.stop_ms) - max(start, span.start_ms)) for start, stop in evals)
    return span.stop_ms - span.start_ms - inside


def _rate(samples: int, spans: Sequence[Span], evals: Sequence[tuple[float, float]]) -> float | None:
    train_ms = sum(_train_ms(span, evals) for span in spans)
    num_epochs = sum(span.num_epochs for span in spans)
    return samples * num_epochs / (train_ms / 1000.0) if train_ms > 0 and num_epochs > 0 else None
