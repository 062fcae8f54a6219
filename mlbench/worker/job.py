"""The job: everything a worker is told, in one JSON file with every value explicit.

Standard library only and valid under Python 3.8: the orchestrator writes this file with the very classes that the
worker reads it with, so the schema exists once. `load` refuses an unknown or a missing key.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

SCHEMA_VERSION = 1


class JobError(Exception):
    """The job file is not what this worker expects; the worker ends with status 2 before `init_start`."""


@dataclass(frozen=True)
class Submission:
    """What the first MLLOG records say; every field is logged as it stands."""

    benchmark: str
    org: str
    division: str
    status: str
    platform: str


@dataclass(frozen=True)
class Files:
    """Where the worker writes. `mllog` is written by rank 0 alone; each rank's other output goes to
    `rank_log_dir`/rank_<r>.log. `result` is the JSON of benchmarks that log no MLLOG (allreduce)."""

    mllog: str
    rank_log_dir: str
    result: str


@dataclass(frozen=True)
class Model:
    """`name` is `resnet50` (ours, v1.5) or one of MXNet's zoo. `layout` NCHW or NHWC, `dtype` float32 or float16."""

    name: str
    num_classes: int
    layout: str
    dtype: str
    batch_norm_momentum: float
    batch_norm_epsilon: float
    zero_init_last_gamma: bool


@dataclass(frozen=True)
class Augmentation:
    """Training distortions; all off in the throughput benchmark.

    `random_resized_crop` uses `area` (min, max share of the image) and `aspect` (min, max); without it the image is
    shifted by up to `max_shift_px` pixels in each direction. `resize_val_px` is the shorter side before the centre
    crop of validation images."""

    random_resized_crop: bool
    area: Tuple[float, float]
    aspect: Tuple[float, float]
    max_shift_px: int
    mirror: bool
    resize_val_px: int


@dataclass(frozen=True)
class Data:
    """RecordIO files and how they are read. Paths are absolute, or `s3://bucket/key`.

    `pipeline` is `mxnet`, `native` or `dali`, already chosen by the plan. `num_threads` is per rank.
    `s3_endpoints`: rank r talks to endpoint r mod n, empty when the data are files."""

    name: str
    train_rec: List[str]
    train_idx: List[str]
    val_rec: List[str]
    val_idx: List[str]
    num_train: int
    num_val: int
    image_px: int
    mean_rgb: Tuple[float, float, float]
    std_rgb: Tuple[float, float, float]
    augmentation: Augmentation
    pipeline: str
    num_threads: int
    prefetch_batches: int
    s3_endpoints: List[str]


@dataclass(frozen=True)
class Optimizer:
    """`name` is `sgd` or `lars`. `warmup_steps` and `decay_steps` count optimizer steps. The learning rate rises
    linearly to `base_learning_rate` and then decays polynomially to `end_learning_rate`."""

    name: str
    base_learning_rate: float
    end_learning_rate: float
    decay_power: float
    decay_steps: int
    warmup_steps: int
    warmup_epochs: float
    momentum: float
    weight_decay: float
    label_smoothing: float
    lars_eta: float
    lars_epsilon: float
    gradient_accumulation_steps: int


@dataclass(frozen=True)
class Schedule:
    """When to evaluate and when to stop. Epochs count from 1; evaluation after epoch e when
    (e - eval_offset) is a multiple of `eval_period`, and after the last. Stops at accuracy >= target.

    Throughput runs use `num_batches` after `num_warmup_batches` and no evaluation (both 0 in training runs)."""

    max_epochs: int
    eval_period: int
    eval_offset: int
    target_accuracy: float
    batch_per_rank: int
    eval_batch_per_rank: int
    num_batches: int
    num_warmup_batches: int


@dataclass(frozen=True)
class AllReduce:
    """Sizes from `min_bytes` to `max_bytes` by factor 2 in float32; `backend` horovod or mpi."""

    backend: str
    min_bytes: int
    max_bytes: int
    num_warmup: int
    num_iterations: int


@dataclass(frozen=True)
class Job:
    """One worker invocation. `kind` is `train`, `throughput` or `allreduce`; sections a kind does not need are null.

    `num_ranks` must equal what the launcher started. `device` is `cpu` or `gpu`. `environment` is a record of the
    variables that the launcher set (NCCL_*, HOROVOD_*, OMP_*); the worker does not apply it. `cache_clear` is what the
    cache helper proved on every host, logged as it stands."""

    schema_version: int
    kind: str
    job_id: str
    num_ranks: int
    device: str
    seed: int
    cache_clear: bool
    threads_per_rank: int
    environment: Dict[str, str]
    files: Files
    submission: Optional[Submission]
    model: Optional[Model]
    data: Optional[Data]
    optimizer: Optional[Optimizer]
    schedule: Optional[Schedule]
    allreduce: Optional[AllReduce]


_SECTIONS: Dict[str, Type[Any]] = {
    "files": Files,
    "submission": Submission,
    "model": Model,
    "data": Data,
    "optimizer": Optimizer,
    "schedule": Schedule,
    "allreduce": AllReduce,
}
_T = TypeVar("_T")


def _build(cls: Type[_T], value: Any, where: str) -> _T:
    if not isinstance(value, dict):
        raise JobError("%s: found %s, expected an object" % (where, type(value).__name__))
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(value) - set(names))
    missing = sorted(set(names) - set(value))
    if unknown or missing:
        raise JobError("%s: unknown keys %s, missing keys %s" % (where, unknown, missing))
    return cls(**value)


def from_dict(value: Any) -> Job:
    """Build a Job from parsed JSON. Raises JobError naming the section and the key."""
    if not isinstance(value, dict):
        raise JobError("job: found %s, expected an object" % type(value).__name__)
    found = value.get("schema_version")
    if found != SCHEMA_VERSION:
        raise JobError("job: schema_version %r, expected %r" % (found, SCHEMA_VERSION))
    filled = dict(value)
    for key, cls in _SECTIONS.items():
        if filled.get(key) is not None:
            filled[key] = _build(cls, filled[key], "job.%s" % key)
    if filled.get("data") is not None:
        data = filled["data"]
        filled["data"] = dataclasses.replace(
            data,
            mean_rgb=_tuple(data.mean_rgb),
            std_rgb=_tuple(data.std_rgb),
            augmentation=_augmentation(data.augmentation),
        )
    return _build(Job, filled, "job")


def _augmentation(value: Any) -> Augmentation:
    built = _build(Augmentation, value, "job.data.augmentation")
    return dataclasses.replace(built, area=_tuple(built.area), aspect=_tuple(built.aspect))


def _tuple(value: Any) -> Any:
    """JSON has no tuples. What is no list stays as it is, for the worker's checks to name."""
    return tuple(value) if isinstance(value, list) else value


def load(path: str) -> Job:
    """Read a job file. Raises JobError, also for unreadable files and broken JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError) as error:
        raise JobError("%s: %s" % (path, error))
    return from_dict(value)


def dump(job: Job) -> str:
    """The job as JSON text, keys in schema order, ending with a newline."""
    return json.dumps(dataclasses.asdict(job), indent=1) + "\n"
