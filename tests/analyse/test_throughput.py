from __future__ import annotations

import pytest

from mlbench.analyse.throughput import ThroughputMethod, span_rates, throughput
from mlbench.collect.runlog import Evaluation, RunLog, Span


def log(
    *,
    epochs: list[tuple[float, float]] | None = None,
    blocks: list[tuple[float, float, float]] | None = None,
    evals: list[tuple[float, float]] | None = None,
    accuracies: list[float] | None = None,
    samples: int | None = 1_000,
) -> RunLog:
    """Times in seconds; a block is (start, stop, number of epochs)."""
    return RunLog(
        file="result_0.txt",
        train_samples=samples,
        epochs=[Span(number + 1, 1.0, start * 1000, stop * 1000) for number, (start, stop) in enumerate(epochs or [])],
        blocks=[Span(start, count, start * 1000, stop * 1000) for start, stop, count in blocks or []],
        evals=[(start * 1000, stop * 1000) for start, stop in evals or []],
        evaluations=[Evaluation(None, 0.5, time * 1000, 1) for time in accuracies or []],
    )


def test_throughput_of_epochs_is_samples_over_seconds_in_epochs() -> None:
    rates = throughput(log(epochs=[(0, 20), (30, 40), (40, 50)], evals=[(20, 30)]))
    assert rates.method is ThroughputMethod.epochs
    assert rates.samples_per_s == 3_000 / 40
    assert rates.samples_per_s_first_epoch == 1_000 / 20
    assert rates.samples_per_s_steady == 2_000 / 20
    assert rates.first_epoch_over_overall == pytest.approx((1_000 / 20) / (3_000 / 40))
    assert (rates.num_epochs, rates.train_s) == (3, 40)


def test_throughput_leaves_evaluation_inside_an_epoch_out() -> None:
    rates = throughput(log(epochs=[(0, 20)], evals=[(15, 20)]))
    assert rates.samples_per_s == 1_000 / 15


def test_throughput_counts_ranks_that_evaluate_together_once() -> None:
    rates = throughput(log(epochs=[(0, 20)], evals=[(14, 18), (15, 20), (15, 16)]))
    assert rates.samples_per_s == 1_000 / 14


def test_throughput_of_blocks_takes_timed_evaluation_off() -> None:
    rates = throughput(log(blocks=[(0, 50, 4), (50, 100, 4)], evals=[(40, 50), (90, 100)], accuracies=[50, 100]))
    assert rates.method is ThroughputMethod.blocks_less_eval
    assert rates.samples_per_s == 8_000 / 80
    assert rates.samples_per_s_first_block == 4_000 / 40
    assert rates.samples_per_s_first_epoch is None


def test_throughput_of_blocks_closed_before_the_accuracy_is_known() -> None:
    rates = throughput(log(blocks=[(0, 40, 4), (50, 90, 4)], accuracies=[45, 95]))
    assert rates.method is ThroughputMethod.blocks_before_eval
    assert rates.samples_per_s == 8_000 / 80


def test_throughput_is_not_known_when_evaluation_hides_in_the_blocks() -> None:
    rates = throughput(log(blocks=[(0, 50, 4), (50, 100, 4)], accuracies=[45, 95]))
    assert rates.method is ThroughputMethod.none
    assert rates.samples_per_s is None
    assert rates.samples_per_s_first_block is None


@pytest.mark.parametrize("samples", [None, 0])
def test_throughput_without_train_samples_is_not_zero_but_unknown(samples: int | None) -> None:
    rates = throughput(log(epochs=[(0, 20)], samples=samples))
    assert rates.method is ThroughputMethod.none
    assert rates.samples_per_s is None


def test_throughput_of_an_empty_log_is_unknown() -> None:
    assert throughput(log()).method is ThroughputMethod.none


def test_throughput_of_epochs_without_length_is_unknown() -> None:
    assert throughput(log(epochs=[(5, 5)])).samples_per_s is None


def test_throughput_of_one_epoch_has_no_steady_part() -> None:
    assert throughput(log(epochs=[(0, 20)])).samples_per_s_steady is None


def test_span_rates_are_one_for_each_epoch() -> None:
    assert span_rates(log(epochs=[(0, 20), (20, 30)])) == [50.0, 100.0]
    assert span_rates(log(epochs=[(0, 20), (20, 30)], samples=None)) == [None, None]


@pytest.mark.slow
def test_throughput_of_a_hundred_thousand_spans_takes_no_ages() -> None:
    import time

    many = 100_000
    begun = time.process_time()
    throughput(log(epochs=[(n, n + 0.5) for n in range(many)], evals=[(n + 0.5, n + 1) for n in range(many)]))
    assert time.process_time() - begun < 10
