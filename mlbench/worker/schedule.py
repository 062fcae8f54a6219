"""When things happen: the learning rate of each step, the steps of each epoch, the epochs that are evaluated.

Standard library only.
"""

from __future__ import annotations

from .job import Optimizer, Schedule


def learning_rate(settings: Optimizer, step: int) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    Warm-up is linear and reaches `base_learning_rate` with the last of its steps; then
    end + (base - end) * (1 - (step - warmup) / (decay - warmup)) ** power, and `end` from step `decay_steps` on.
    `decay_steps` counts from the start of training, as in the reference (mlcommons/training, image_classification)."""
    base, end = settings.base_learning_rate, settings.end_learning_rate
    if step < settings.warmup_steps:
        return base * (step + 1) / settings.warmup_steps
    if step >= settings.decay_steps:
        return end
    done = (step - settings.warmup_steps) / (settings.decay_steps - settings.warmup_steps)
    return float(end + (base - end) * (1.0 - done) ** settings.decay_power)


def is_evaluated(schedule: Schedule, epoch: int) -> bool:
    """Whether the model is evaluated after `epoch`, counted from 1."""
    if epoch == schedule.max_epochs:
        return True
    return epoch >= schedule.eval_offset and (epoch - schedule.eval_offset) % schedule.eval_period == 0


def block_of(schedule: Schedule, epoch: int) -> int:
    """How many epochs the block has that begins with `epoch`: up to and with the next evaluation."""
    last = epoch
    while not is_evaluated(schedule, last):
        last += 1
    return last - epoch + 1


def first_step(num_train: int, global_batch: int, epoch: int) -> int:
    """Optimizer steps that come before `epoch`.

    The images of all epochs form one stream, epoch after epoch; each step takes the next `global_batch` of them. An
    epoch ends with the step that takes its last image, so no image is left out, and what the step takes beyond it
    belongs to the next epoch."""
    return -(-num_train * (epoch - 1) // global_batch)


def num_steps(num_train: int, global_batch: int, epoch: int) -> int:
    """Optimizer steps of `epoch`; 0 is possible when one step takes more than an epoch's images."""
    return first_step(num_train, global_batch, epoch + 1) - first_step(num_train, global_batch, epoch)
