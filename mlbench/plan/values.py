"""Values that the worker could never take, refused at once and under the key that the user wrote.

The schema knows a list of texts from a list of numbers, but not how long it is, nor that a share lies between 0 and 1.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from mlbench.choices import BenchmarkKind, Stage
from mlbench.config import BenchmarkConfig, Config, DataConfig, TrainingConfig
from mlbench.errors import ConfigError, near_miss
from mlbench.wording import count_of
from mlbench.worker.job import Optimizer
from mlbench.worker.model import RESNET50, least_px, zoo_names

MAX_SEED = (1 << 31) - 1
"""Seeds fit a signed 32-bit integer, which every library takes."""


def check_values(config: Config) -> None:
    """Raise ConfigError for the first value that cannot be meant."""
    for key, value, hint in _leaves("", config):
        _check_leaf(key, value, hint)
    _check_data(config.data)
    if Stage.train in config.benchmark.stages:
        _check_model(config.benchmark, config.data.image_px)
    _check_training(config.training)
    if config.seed is not None and config.seed + config.repeats + config.warmup_runs > MAX_SEED:
        raise ConfigError(f"seed={config.seed}: expected a seed whose runs' numbers stay below {MAX_SEED}")
    if config.launcher.ssh_timeout_s <= 0:
        raise ConfigError(f"launcher.ssh_timeout_s={config.launcher.ssh_timeout_s:g}: expected a number above 0")


def check_fit(config: Config, optimizer: Optimizer, num_ranks: int) -> None:
    """Raise ConfigError for values that are good alone and not together, once ranks and steps are known."""
    if optimizer.warmup_steps > optimizer.decay_steps:
        raise ConfigError(
            f"training: {optimizer.warmup_steps} steps of warm-up do not fit into the {optimizer.decay_steps} steps of "
            f"training.max_epochs={config.training.max_epochs}; give fewer of the first or more of the second"
        )
    if config.benchmark.kind is BenchmarkKind.train and config.data.num_val < num_ranks:
        raise ConfigError(
            f"data.num_val={config.data.num_val}: {num_ranks} ranks cannot share so few validation images; expected at "
            f"least one a rank"
        )


def _leaves(prefix: str, section: Any) -> Iterator[tuple[str, Any, Any]]:
    hints = typing.get_type_hints(type(section))
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        key = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _leaves(f"{key}.", value)
        else:
            yield key, value, hints[field.name]


def _check_leaf(key: str, value: Any, hint: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}={value:g}: expected a finite number")
    if typing.get_origin(hint) is not list:
        return
    (kind,) = typing.get_args(hint)
    for item in value:
        # A list inside a list is let through by the schema.
        fits = isinstance(item, int | float) if kind is float else isinstance(item, kind)
        if not fits or (isinstance(item, float) and not math.isfinite(item)):
            shown = item.name if isinstance(item, Enum) else item
            raise ConfigError(f"{key}: found {shown!r} in the list, expected {_WORDS.get(kind, 'one of its values')}")


_WORDS = {str: "texts alone, [a,b]", float: "finite numbers, [0.5,1.0]", int: "whole numbers, [4,8]"}


def _check_data(data: DataConfig) -> None:
    for key, least in (("num_train", 1), ("num_val", 1), ("num_classes", 2), ("image_px", 1), ("prefetch_batches", 1)):
        _at_least(f"data.{key}", getattr(data, key), least)
    if data.num_threads is not None:
        _at_least("data.num_threads", data.num_threads, 1)
    if not data.path.strip():
        raise ConfigError("data.path is empty; expected the folder of the .rec files, or s3://bucket/prefix")
    for key in ("train_rec", "val_rec"):
        if not getattr(data, key):
            raise ConfigError(f"data.{key} is empty; expected one or more names of .rec files, [train.rec]")
    _of_length("data.mean_rgb", data.mean_rgb, 3, "one number a colour, [124,117,104]")
    _of_length("data.std_rgb", data.std_rgb, 3, "one number a colour, [58,57,57]")
    if min(data.std_rgb) <= 0:
        raise ConfigError(f"data.std_rgb={data.std_rgb}: expected numbers above 0, the images are divided by them")
    augmentation = data.augmentation
    for key in ("area", "aspect"):
        pair = getattr(augmentation, key)
        _of_length(f"data.augmentation.{key}", pair, 2, "the least and the largest, [0.08,1.0]")
        if not 0 < pair[0] <= pair[1]:
            raise ConfigError(f"data.augmentation.{key}={pair}: expected two numbers above 0, the lesser first")
    if augmentation.area[1] > 1:
        raise ConfigError(f"data.augmentation.area={augmentation.area}: expected shares of the image, at most 1")
    _at_least("data.augmentation.max_shift_px", augmentation.max_shift_px, 0)
    _at_least("data.augmentation.resize_val_px", augmentation.resize_val_px, 1)


def _check_model(benchmark: BenchmarkConfig, image_px: int) -> None:
    known = (RESNET50, *zoo_names())
    if benchmark.model not in known:
        raise ConfigError(
            f"benchmark.model={benchmark.model}: no such model{near_miss(benchmark.model, known) or ';'} known ones "
            f"are {', '.join(known)}"
        )
    if image_px < least_px(benchmark.model):
        raise ConfigError(
            f"data.image_px={image_px}: {benchmark.model} takes images of {least_px(benchmark.model)} pixels and more"
        )


def _check_training(training: TrainingConfig) -> None:
    for key in ("momentum", "label_smoothing", "batch_norm_momentum"):
        value = getattr(training, key)
        if not 0 <= value <= 1:
            raise ConfigError(f"training.{key}={value:g}: expected a number from 0 to 1")
    for key in ("end_learning_rate", "weight_decay", "decay_power", "warmup_epochs", "warmup_steps", "lars_epsilon"):
        value = getattr(training, key)
        if value is not None and value < 0:
            raise ConfigError(f"training.{key}={value:g}: expected a number of at least 0")
    for key in ("expected_epochs", "lars_eta"):
        value = getattr(training, key)
        if value is not None and value <= 0:
            raise ConfigError(f"training.{key}={value:g}: expected a number above 0")


def _at_least(key: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{key}={value}: expected a whole number of at least {least}")


def _of_length(key: str, value: list[float], length: int, meaning: str) -> None:
    if len(value) != length:
        raise ConfigError(f"{key}={value}: found {count_of(len(value), 'number')}, expected {length}, {meaning}")
