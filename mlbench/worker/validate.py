"""Whether a job makes sense, before anything is started. Standard library only.

`job.load` has checked the keys; here are the types, the ranges and what must fit together. Each fault is one sentence
that begins with the key.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any, Sequence

from . import job as schema
from .job import Data, Job, JobError, Model, Optimizer, Schedule
from .model import RESNET50, least_px, zoo_names

KINDS = ("train", "throughput")
PIPELINES = ("mxnet", "native", "dali")
_NEEDED = {
    "train": ("submission", "model", "data", "optimizer", "schedule"),
    "throughput": ("model", "data", "optimizer", "schedule"),
}


@dataclass(frozen=True)
class TrainingJob(Job):
    """A job of kind `train` or `throughput`, checked: these sections are there."""

    model: Model
    data: Data
    optimizer: Optimizer
    schedule: Schedule


def check(job: Job) -> TrainingJob:
    """The same job with nothing left to doubt. Raises JobError at the first fault."""
    check_types(job, "job")
    _one_of("job.kind", job.kind, KINDS)
    for section in _NEEDED[job.kind]:
        if getattr(job, section) is None:
            raise JobError("job.%s: null, but a job of kind %r needs it" % (section, job.kind))
    checked = TrainingJob(**{field.name: getattr(job, field.name) for field in dataclasses.fields(job)})
    _one_of("job.device", checked.device, ("cpu", "gpu"))
    _at_least("job.num_ranks", checked.num_ranks, 1)
    _at_least("job.seed", checked.seed, 0)
    _check_model(checked)
    _check_data(checked)
    _check_optimizer(checked.optimizer)
    _check_schedule(checked)
    return checked


def check_types(value: Any, where: str) -> None:
    """Compare the fields of a dataclass with their annotations, sections inside it too. Raises JobError."""
    hints = typing.get_type_hints(type(value), vars(schema))
    for field in dataclasses.fields(value):
        _check_type(getattr(value, field.name), hints[field.name], "%s.%s" % (where, field.name))


def _check_type(value: Any, hint: Any, where: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        if value is not None:
            _check_type(value, arguments[0], where)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, hint):
            raise JobError("%s: found %s, expected an object" % (where, type(value).__name__))
        check_types(value, where)
    elif origin is list:
        if not isinstance(value, list):
            raise JobError("%s: found %r, expected a list" % (where, value))
        for item in value:
            _check_type(item, arguments[0], where)
    elif origin is tuple:
        if not isinstance(value, tuple) or len(value) != len(arguments):
            raise JobError("%s: found %r, expected a list of %d" % (where, value, len(arguments)))
        for item, inner in zip(value, arguments):
            _check_type(item, inner, where)
    elif origin is dict:
        if not isinstance(value, dict):
            raise JobError("%s: found %r, expected an object" % (where, value))
        for item in value.values():
            _check_type(item, arguments[1], where)
    else:
        _check_plain(value, hint, where)


def _check_plain(value: Any, hint: Any, where: str) -> None:
    if hint is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    elif hint is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, hint)
    if not fits:
        raise JobError("%s: found %r, expected %s" % (where, value, hint.__name__))


def _one_of(where: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise JobError("%s: found %r, expected one of %s" % (where, value, ", ".join(allowed)))


def _at_least(where: str, value: float, least: float) -> None:
    if value < least:
        raise JobError("%s: found %r, expected at least %r" % (where, value, least))


def _between(where: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise JobError("%s: found %r, expected %r to %r" % (where, value, low, high))


def _check_model(job: TrainingJob) -> None:
    model = job.model
    _one_of("job.model.name", model.name, (RESNET50,) + zoo_names())
    _one_of("job.model.layout", model.layout, ("NCHW", "NHWC"))
    _one_of("job.model.dtype", model.dtype, ("float32", "float16"))
    _at_least("job.model.num_classes", model.num_classes, 2)
    _between("job.model.batch_norm_momentum", model.batch_norm_momentum, 0.0, 1.0)
    if job.device == "cpu" and (model.layout, model.dtype) != ("NCHW", "float32"):
        raise JobError(
            "job.model: found layout %s and dtype %s on the CPU, expected NCHW and float32; MXNet computes the others "
            "on GPUs only" % (model.layout, model.dtype)
        )
    if model.name != RESNET50 and model.layout != "NCHW":
        raise JobError("job.model.layout: found %r, expected NCHW; the zoo has no other" % model.layout)


def _check_data(job: TrainingJob) -> None:
    data = job.data
    _one_of("job.data.pipeline", data.pipeline, PIPELINES)
    _at_least("job.data.num_train", data.num_train, 1)
    _at_least("job.data.image_px", data.image_px, least_px(job.model.name))
    _at_least("job.data.num_threads", data.num_threads, 1)
    _at_least("job.data.prefetch_batches", data.prefetch_batches, 1)
    for value in data.std_rgb:
        if value <= 0:
            raise JobError("job.data.std_rgb: found %r, expected numbers above 0" % (data.std_rgb,))
    _same_length("train", data.train_rec, data.train_idx)
    if job.kind == "train":
        _at_least("job.data.num_val", data.num_val, job.num_ranks)
        _same_length("val", data.val_rec, data.val_idx)


def _same_length(split: str, recs: Sequence[str], idxs: Sequence[str]) -> None:
    if not recs or len(recs) != len(idxs):
        raise JobError(
            "job.data.%s_rec: found %d files and %d indexes, expected one index a file and at least one file"
            % (split, len(recs), len(idxs))
        )


def _check_optimizer(optimizer: Optimizer) -> None:
    where = "job.optimizer."
    _one_of(where + "name", optimizer.name, ("sgd", "lars"))
    _at_least(where + "gradient_accumulation_steps", optimizer.gradient_accumulation_steps, 1)
    _at_least(where + "warmup_steps", optimizer.warmup_steps, 0)
    _at_least(where + "decay_steps", optimizer.decay_steps, optimizer.warmup_steps)
    _between(where + "momentum", optimizer.momentum, 0.0, 1.0)
    _between(where + "label_smoothing", optimizer.label_smoothing, 0.0, 1.0)
    for name in ("base_learning_rate", "end_learning_rate", "weight_decay", "decay_power"):
        _at_least(where + name, getattr(optimizer, name), 0.0)


def _check_schedule(job: TrainingJob) -> None:
    schedule = job.schedule
    where = "job.schedule."
    _at_least(where + "batch_per_rank", schedule.batch_per_rank, 1)
    if job.kind == "throughput":
        _at_least(where + "num_batches", schedule.num_batches, 1)
        _at_least(where + "num_warmup_batches", schedule.num_warmup_batches, 0)
        return
    _at_least(where + "max_epochs", schedule.max_epochs, 1)
    _at_least(where + "eval_period", schedule.eval_period, 1)
    _at_least(where + "eval_offset", schedule.eval_offset, 0)
    _at_least(where + "eval_batch_per_rank", schedule.eval_batch_per_rank, 1)
    _between(where + "target_accuracy", schedule.target_accuracy, 0.0, 1.0)
