"""The data set as the worker reads it: absolute files or s3:// keys, and what reading will need."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from mlbench.choices import Device, Pipeline
from mlbench.config import AugmentationConfig, Config, DataConfig
from mlbench.plan.estimate import Rate
from mlbench.plan.types import DataPlan
from mlbench.worker.job import Augmentation, Data

_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")


def plan_data(config: Config, path_given: str, device: Device, threads_per_rank: int, rate: Rate | None) -> DataPlan:
    """Args: config: with absolute paths. path_given: the folder as the user wrote it."""
    data = config.data
    train_rec = _files(data.path, data.train_rec)
    val_rec = _files(data.path, data.val_rec)
    distorted = config.benchmark.distortions
    storage = config.hardware.storage
    worker = Data(
        name=data.name,
        train_rec=train_rec,
        train_idx=[_index(rec) for rec in train_rec],
        val_rec=val_rec,
        val_idx=[_index(rec) for rec in val_rec],
        num_train=data.num_train,
        num_val=data.num_val,
        image_px=data.image_px,
        mean_rgb=_three(data.mean_rgb),
        std_rgb=_three(data.std_rgb),
        augmentation=_augmentation(data.augmentation, distorted),
        pipeline=_pipeline(data.pipeline, device).value,
        num_threads=threads_per_rank if data.num_threads is None else data.num_threads,
        prefetch_batches=data.prefetch_batches,
        s3_endpoints=list(storage.s3_endpoints) if storage is not None and data.path.startswith("s3://") else [],
    )
    mean_bytes = mean_image_bytes(data)
    known = rate is not None and mean_bytes is not None
    return DataPlan(
        worker=worker,
        path_given=path_given,
        path=data.path,
        mean_image_bytes=mean_bytes,
        storage_need_bytes_per_s=rate.samples_per_s * mean_bytes if rate and mean_bytes else None,
        storage_need_basis=f"{rate.basis} x {mean_bytes:,.0f} bytes a mean image" if known and rate else None,
    )


def _files(folder: str, names: list[str]) -> list[str]:
    """Each name in the folder; a pattern (`train-*.rec`) stands for the files that match, in order of their names, and
    the name of a file that is not there for its shards, when they are all there."""
    found: list[str] = []
    for name in names:
        whole = f"{folder.rstrip('/')}/{name}"
        if folder.startswith("s3://"):
            found.append(whole)
        elif "*" in name:
            found += sorted(str(path) for path in Path(folder).glob(name)) or [whole]
        else:
            found += [whole] if Path(whole).exists() else _shards(Path(whole)) or [whole]
    return found


def _shards(whole: Path) -> list[str]:
    """`train-00000-of-00008.rec` and so on for `train.rec`; none unless they are one whole set."""
    numbered: dict[int, dict[int, str]] = {}
    for path in whole.parent.glob(f"{glob.escape(whole.stem)}-*{glob.escape(whole.suffix)}"):
        match = _SHARD.fullmatch(path.stem.removeprefix(whole.stem))
        if match:
            numbered.setdefault(int(match[2]), {})[int(match[1])] = str(path)
    if len(numbered) != 1:
        return []
    ((num_shards, shards),) = numbered.items()
    return [shards[number] for number in range(num_shards)] if sorted(shards) == list(range(num_shards)) else []


def _index(rec: str) -> str:
    return f"{rec.removesuffix('.rec')}.idx"


def _three(values: list[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return (red, green, blue)


def _augmentation(value: AugmentationConfig, distorted: bool) -> Augmentation:
    return Augmentation(
        random_resized_crop=value.random_resized_crop and distorted,
        area=(value.area[0], value.area[1]),
        aspect=(value.aspect[0], value.aspect[1]),
        max_shift_px=value.max_shift_px if distorted else 0,
        mirror=value.mirror and distorted,
        resize_val_px=value.resize_val_px,
    )


def _pipeline(asked: Pipeline, device: Device) -> Pipeline:
    """`auto`: DALI beside a GPU, where the containers have it; the native pipeline on a CPU."""
    if asked is not Pipeline.auto:
        return asked
    return Pipeline.dali if device is Device.gpu else Pipeline.native


def mean_image_bytes(data: DataConfig) -> float | None:
    """Mean bytes that a training image takes of its storage: as the data set states it, else of its record files, when
    they are all here; records in S3 are not. The path is absolute."""
    if data.mean_image_bytes is not None:
        return data.mean_image_bytes
    return mean_record_bytes(data.path, data.train_rec, data.num_train)


def mean_record_bytes(folder: str, names: list[str], num_records: int) -> float | None:
    """Bytes of the record files over their records, when they are all here."""
    paths = [Path(rec) for rec in _files(folder, names)]
    if not paths or not num_records or not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths) / num_records
