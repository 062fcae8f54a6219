"""Samples per second of one run, from its epochs or, where there are none, from its blocks of epochs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
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
    evals = _union(log.evals)
    first_block = _timed(log.blocks[:1], evals).rate(samples) if _eval_is_apart(log, log.blocks) else None
    method = _method(log)
    if method is ThroughputMethod.none:
        return Throughput(method=method, samples_per_s_first_block=first_block)
    by_epoch = method is ThroughputMethod.epochs
    spans = log.epochs if by_epoch else log.blocks
    first, others = _timed(spans[:1], evals), _timed(spans[1:], evals)
    whole = _Timed(first.num_epochs + others.num_epochs, first.train_ms + others.train_ms)
    return Throughput(
        method=method,
        samples_per_s=whole.rate(samples),
        samples_per_s_first_epoch=first.rate(samples) if by_epoch else None,
        samples_per_s_steady=others.rate(samples) if by_epoch else None,
        samples_per_s_first_block=first_block,
        num_epochs=whole.num_epochs,
        train_s=whole.train_ms / 1000.0,
    )


def span_rates(log: RunLog) -> list[float | None]:
    """Samples per second of each epoch, or of each block where the log has no epochs."""
    spans = log.epochs or log.blocks
    if not log.train_samples or not _eval_is_apart(log, spans):
        return [None] * len(spans)
    evals = _union(log.evals)
    return [_timed([span], evals).rate(log.train_samples) for span in spans]


@dataclass(frozen=True, slots=True)
class _Timed:
    """Epochs and the milliseconds that training took of them."""

    num_epochs: float
    train_ms: float

    def rate(self, samples: int) -> float | None:
        if self.train_ms <= 0 or self.num_epochs <= 0:
            return None
        return samples * self.num_epochs / (self.train_ms / 1000.0)


def _timed(spans: Sequence[Span], evals: Sequence[tuple[float, float]]) -> _Timed:
    return _Timed(sum(span.num_epochs for span in spans), sum(_train_ms(span, evals) for span in spans))


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
    times = sorted(item.time_ms for item in log.evaluations if item.time_ms is not None)
    return not any(bisect_right(times, span.start_ms) < bisect_left(times, span.stop_ms) for span in spans)


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans without overlap, ascending: ranks that evaluate at the same time take that time once."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _train_ms(span: Span, evals: Sequence[tuple[float, float]]) -> float:
    """`evals` is a union: ascending, without overlap."""
    left = bisect_left(evals, span.start_ms, key=lambda pair: pair[1])
    right = bisect_right(evals, span.stop_ms, key=lambda pair: pair[0])
    inside = sum(max(0.0, min(stop, span.stop_ms) - max(start, span.start_ms)) for start, stop in evals[left:right])
    return span.stop_ms - span.start_ms - inside
