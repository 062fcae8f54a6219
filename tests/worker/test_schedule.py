"""Learning rate, epochs and evaluations against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from mlbench.worker import schedule
from mlbench.worker.job import Job, Optimizer, Schedule

MakeJob = Callable[..., Job]


@pytest.fixture
def published(make_job: MakeJob) -> Optimizer:
    """The DGX A100 run: LR 6 at batch 3264, warm-up 5 epochs, 42 epochs; 1,281,167 / 3264 = 392.5 steps an epoch."""
    optimizer = make_job().optimizer
    assert optimizer is not None
    return dataclasses.replace(
        optimizer, base_learning_rate=6.0, end_learning_rate=0.0001, decay_power=2, warmup_steps=1963, decay_steps=16485
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 6.0 / 1963),
        (981, 6.0 * 982 / 1963),
        (1962, 6.0),
        (1963, 6.0),  # first step of the decay: nothing of it is done yet
        (1963 + 7261, 0.0001 + 5.9999 * 0.25),  # half of the 14,522 decay steps: (1 - 0.5) ** 2
        (16485, 0.0001),
        (99999, 0.0001),
    ],
)
def test_learning_rate_published_recipe_is_as_by_hand(published: Optimizer, step: int, expected: float) -> None:
    assert schedule.learning_rate(published, step) == pytest.approx(expected, rel=1e-12)


def test_learning_rate_no_warmup_starts_at_the_base(published: Optimizer) -> None:
    assert schedule.learning_rate(dataclasses.replace(published, warmup_steps=0), 0) == 6.0


def test_learning_rate_warmup_to_the_end_never_divides_by_nothing(published: Optimizer) -> None:
    settings = dataclasses.replace(published, warmup_steps=10, decay_steps=10)
    assert schedule.learning_rate(settings, 9) == 6.0
    assert schedule.learning_rate(settings, 10) == 0.0001


@pytest.fixture
def plan(make_job: MakeJob) -> Schedule:
    found = make_job(schedule__max_epochs=42, schedule__eval_period=4, schedule__eval_offset=1).schedule
    assert found is not None
    return found


def test_is_evaluated_published_plan_is_1_5_9_to_41_and_the_last(plan: Schedule) -> None:
    epochs = [epoch for epoch in range(1, 43) if schedule.is_evaluated(plan, epoch)]
    assert epochs == [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 42]  # facts.md: "epochs 1, 5, 9 ... 41"


def test_is_evaluated_before_the_offset_is_false(plan: Schedule) -> None:
    later = dataclasses.replace(plan, eval_period=1, eval_offset=3)
    assert [epoch for epoch in range(1, 6) if schedule.is_evaluated(later, epoch)] == [3, 4, 5]


def test_block_of_runs_up_to_the_next_evaluation(plan: Schedule) -> None:
    # NVIDIA's v0.7 logs: block 1 has 1 epoch, the block from 2 on has 4.
    assert [schedule.block_of(plan, epoch) for epoch in (1, 2, 38, 42)] == [1, 4, 4, 1]


def test_num_steps_whole_epochs_are_equal() -> None:
    assert [schedule.num_steps(640, 32, epoch) for epoch in (1, 2, 3)] == [20, 20, 20]


def test_num_steps_odd_epochs_add_up_to_all_images() -> None:
    # 1,281,167 / 3264 = 392.51: epochs of 393 and 392 steps; 42 epochs are 53,809,014 images, 16,485.6 steps.
    steps = [schedule.num_steps(1281167, 3264, epoch) for epoch in range(1, 43)]
    assert steps[:4] == [393, 393, 392, 393]
    assert set(steps) == {392, 393}
    assert sum(steps) == 16486


def test_num_steps_batch_above_the_data_set_skips_epochs_without_loss() -> None:
    assert [schedule.num_steps(10, 25, epoch) for epoch in range(1, 6)] == [1, 0, 1, 0, 0]
