"""Batch size and learning rate, by the published recipe and, beyond it, by the linear rule.

Source of the rule and its numbers: the published settings of the DGX A100 runs (training_results_v0.7, NVIDIA):
global batch 3264 with base learning rate 6 on 8 GPUs (408 each) and on 16 (204 each).
"""

from __future__ import annotations

from dataclasses import dataclass

from mlbench.config import TrainingConfig
from mlbench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    per_rank: int
    global_size: int
    """per_rank x ranks x accumulation."""
    learning_rate: float
    published: bool | None
    """The recipe's published global batch and rate; None: the recipe is not a published one."""
    notes: tuple[str, ...]


def choose_batch(training: TrainingConfig, num_ranks: int) -> Batch:
    """Batch per rank, global batch and learning rate for a number of ranks.

    The published global batch is kept, with its learning rate, as long as each rank gets at least
    `min_batch_per_rank`; beyond, each rank gets that minimum and the rate follows the batch linearly. A batch that the
    user names is used as it is; the rate follows it when the recipe is a published one.
    Raises ConfigError for numbers below 1.
    """
    accumulation = training.gradient_accumulation_steps
    published = training.published_global_batch
    per_rank = training.batch_per_rank
    if accumulation < 1:
        raise ConfigError(f"training.gradient_accumulation_steps={accumulation}: expected at least 1")
    if per_rank is None and published is None:
        raise ConfigError("training.batch_per_rank has no value, and the recipe names no published global batch")
    if per_rank is None and published is not None:
        per_rank = max(published // (num_ranks * accumulation), training.min_batch_per_rank)
    assert per_rank is not None
    if per_rank < 1:
        raise ConfigError(f"training.batch_per_rank={per_rank}: expected a whole number of at least 1")
    global_size = per_rank * num_ranks * accumulation
    rate = training.base_learning_rate
    if published is None:
        return Batch(per_rank=per_rank, global_size=global_size, learning_rate=rate, published=None, notes=())
    if global_size != published:
        rate *= global_size / published
    return Batch(
        per_rank=per_rank,
        global_size=global_size,
        learning_rate=rate,
        published=global_size == published,
        notes=tuple(_notes(training, per_rank, global_size, published, rate)),
    )


def _notes(training: TrainingConfig, per_rank: int, global_size: int, published: int, rate: float) -> list[str]:
    notes = []
    if global_size != published:
        notes.append(
            f"not a published setting: global batch {global_size} (published {published}), learning rate {rate:g} by "
            f"the linear rule from {training.base_learning_rate:g} at {published}, warm-up kept"
        )
    largest = training.max_batch_per_rank
    if largest is not None and per_rank > largest:
        steps = -(-per_rank // largest) * training.gradient_accumulation_steps
        notes.append(
            f"{per_rank} images a GPU are more than {largest}, the largest published for this memory; "
            f"training.gradient_accumulation_steps={steps} keeps the global batch with fewer at a time"
        )
    return notes
