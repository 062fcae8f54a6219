"""Batch size and learning rate: the published recipe, and the linear rule beyond it."""

from __future__ import annotations

import dataclasses

import pytest

from mlbench.compose import compose
from mlbench.config import TrainingConfig
from mlbench.errors import ConfigError
from mlbench.plan.batch import choose_batch


@pytest.fixture(scope="module")
def imagenet() -> TrainingConfig:
    return compose(["data=imagenet"]).training


# Per-GPU batch and rate: 8 and 16 GPUs published in training_results_v0.7 (NVIDIA); 32 GPUs by the rule of design.md.
@pytest.mark.parametrize(("num_ranks", "per_rank"), [(8, 408), (16, 204), (32, 102), (64, 51), (96, 34), (102, 32)])
def test_batch_up_to_102_gpus_keeps_the_published_global_batch(
    imagenet: TrainingConfig, num_ranks: int, per_rank: int
) -> None:
    batch = choose_batch(imagenet, num_ranks)

    assert (batch.per_rank, batch.global_size, batch.learning_rate) == (per_rank, 3264, 6.0)
    assert batch.published is True
    assert batch.notes == ()


@pytest.mark.parametrize("num_ranks", [104, 128, 1024, 4096])
def test_batch_beyond_is_32_a_gpu_with_the_linear_rule(imagenet: TrainingConfig, num_ranks: int) -> None:
    batch = choose_batch(imagenet, num_ranks)

    assert (batch.per_rank, batch.global_size) == (32, 32 * num_ranks)
    assert batch.learning_rate == pytest.approx(6 * 32 * num_ranks / 3264)
    assert batch.published is False
    assert batch.notes[0].startswith(f"not a published setting: global batch {32 * num_ranks}")


def test_batch_that_does_not_divide_is_said(imagenet: TrainingConfig) -> None:
    batch = choose_batch(imagenet, 40)  # 3264 / 40 = 81.6

    assert (batch.per_rank, batch.global_size) == (81, 3240)
    assert batch.published is False


def test_batch_larger_than_the_memory_was_published_for_is_said(imagenet: TrainingConfig) -> None:
    batch = choose_batch(imagenet, 4)

    assert batch.per_rank == 816
    assert "training.gradient_accumulation_steps=2 keeps the global batch" in batch.notes[-1]


def test_batch_with_accumulation_keeps_the_global_batch(imagenet: TrainingConfig) -> None:
    batch = choose_batch(dataclasses.replace(imagenet, gradient_accumulation_steps=2), 4)

    assert (batch.per_rank, batch.global_size, batch.learning_rate) == (408, 3264, 6.0)
    assert batch.notes == ()


def test_batch_named_by_the_user_moves_the_rate_with_it(imagenet: TrainingConfig) -> None:
    batch = choose_batch(dataclasses.replace(imagenet, batch_per_rank=204), 8)

    assert (batch.global_size, batch.learning_rate) == (1632, 3.0)
    assert "not a published setting" in batch.notes[0]


def test_batch_without_published_recipe_uses_the_rate_as_it_is() -> None:
    batch = choose_batch(compose().training, 3)

    assert (batch.per_rank, batch.global_size, batch.learning_rate, batch.published) == (16, 48, 0.05, None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_per_rank": 0}, "batch_per_rank=0"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0"),
        ({"batch_per_rank": None, "published_global_batch": None}, "batch_per_rank has no value"),
    ],
)
def test_batch_impossible_is_refused(imagenet: TrainingConfig, change: dict[str, int | None], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choose_batch(dataclasses.replace(imagenet, **change), 8)  # type: ignore[arg-type]
