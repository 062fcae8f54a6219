"""Jobs, small data sets and the worker as a process, for the tests of the worker."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker import job as schema
from mlbench.worker.native import build
from mlbench.worker.native import library as native
from mlbench.worker.recordio import RecordWriter, pack_image

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SmallSet:
    """RecordIO files of `num_train` and `num_val` images."""

    folder: Path
    num_train: int
    num_val: int


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The native decoder: the one that is built, where it is of these sources, else built anew."""
    if build.is_current(build.library_path()):
        return native.load()
    try:
        return native.load(build.build(str(tmp_path_factory.mktemp("native"))))
    except build.BuildError as error:
        pytest.skip(f"the native decoder cannot be built here: {error}")


@pytest.fixture(scope="session")
def mx() -> Any:
    """MXNet; its own import warns."""
    from mlbench.worker.runtime import import_mxnet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_mxnet()


def jpeg(grey: int, px: int, seed: int) -> bytes:
    """A grey square with a little noise, never quite the same twice."""
    import random

    from PIL import Image

    chance = random.Random(seed)
    pixels = bytes(max(0, min(255, grey + chance.randint(-25, 25))) for _ in range(px * px))
    stream = io.BytesIO()
    Image.frombytes("L", (px, px), pixels).convert("RGB").save(stream, "JPEG", quality=95, subsampling=0)
    return stream.getvalue()


def write_split(folder: Path, split: str, labels: list[tuple[int, int]], px: int) -> None:
    """`labels` holds (shown class, written label) of each image; class 0 is dark, class 1 bright."""
    with RecordWriter(str(folder / f"{split}.rec"), str(folder / f"{split}.idx")) as writer:
        for key, (shown, written) in enumerate(labels):
            picture = jpeg(60 + 130 * shown, px, seed=key + (0 if split == "train" else 10_000))
            writer.write(key, pack_image(float(written), key, picture))


@pytest.fixture(scope="session")
def easy_set(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    """Dark and bright squares: learnt in seconds. Four of 25 validation labels are wrong on purpose, so that the best
    accuracy is 0.84: an accuracy of exactly 1.0 fails every ruleset."""
    folder = tmp_path_factory.mktemp("easy")
    write_split(folder, "train", [(at % 2, at % 2) for at in range(64)], 32)
    write_split(folder, "val", [(at % 2, at % 2 if at % 6 else 1 - at % 2) for at in range(1, 26)], 32)
    return SmallSet(folder, 64, 25)


def job_for(out: Path, data: SmallSet, **changes: Any) -> dict[str, Any]:
    """A complete job for a small set. A change is `section__key=value` or `key=value`."""
    value: dict[str, Any] = {
        "schema_version": schema.SCHEMA_VERSION,
        "kind": "train",
        "job_id": "test",
        "num_ranks": 1,
        "device": "cpu",
        "seed": 7,
        "cache_clear": False,
        "threads_per_rank": 1,
        "environment": {"OMP_NUM_THREADS": "1"},
        "files": {"mllog": str(out / "result.txt"), "rank_log_dir": str(out), "result": str(out / "result.json")},
        "submission": {
            "benchmark": "resnet",
            "org": "LabX",
            "division": "open",
            "status": "research",
            "platform": "test machine",
        },
        "model": {
            "name": "resnet50",
            "num_classes": 2,
            "layout": "NCHW",
            "dtype": "float32",
            "batch_norm_momentum": 0.5,
            "batch_norm_epsilon": 1e-5,
            "zero_init_last_gamma": True,
        },
        "data": {
            "name": "easy",
            "train_rec": [str(data.folder / "train.rec")],
            "train_idx": [str(data.folder / "train.idx")],
            "val_rec": [str(data.folder / "val.rec")],
            "val_idx": [str(data.folder / "val.idx")],
            "num_train": data.num_train,
            "num_val": data.num_val,
            "image_px": 32,
            "mean_rgb": [127.5, 127.5, 127.5],
            "std_rgb": [127.5, 127.5, 127.5],
            "augmentation": {
                "random_resized_crop": False,
                "area": [0.05, 1.0],
                "aspect": [0.75, 1.3333],
                "max_shift_px": 2,
                "mirror": False,
                "resize_val_px": 32,
            },
            "pipeline": "mxnet",
            "num_threads": 1,
            "prefetch_batches": 2,
            "s3_endpoints": [],
        },
        "optimizer": {
            "name": "sgd",
            "base_learning_rate": 0.02,
            "end_learning_rate": 0.0001,
            "decay_power": 2,
            "decay_steps": 64,
            "warmup_steps": 4,
            "warmup_epochs": 0.5,
            "momentum": 0.9,
            "weight_decay": 0.000025,
            "label_smoothing": 0.1,
            "lars_eta": 0.001,
            "lars_epsilon": 0.0,
            "gradient_accumulation_steps": 1,
        },
        "schedule": {
            "max_epochs": 6,
            "eval_period": 1,
            "eval_offset": 1,
            "target_accuracy": 0.759,
            "batch_per_rank": 8,
            "eval_batch_per_rank": 8,
            "num_batches": 0,
            "num_warmup_batches": 0,
        },
        "allreduce": None,
    }
    for name, new in changes.items():
        section, _, key = name.partition("__")
        if key:
            value[section] = {**value[section], key: new}
        else:
            value[section] = new
    return value


@pytest.fixture
def make_job(tmp_path: Path, easy_set: SmallSet) -> Callable[..., schema.Job]:
    """`make_job(schedule__max_epochs=1)`: a job over the easy set, writing into tmp_path."""

    def make(**changes: Any) -> schema.Job:
        return schema.from_dict(job_for(tmp_path, easy_set, **changes))

    return make


@dataclass(frozen=True)
class Ended:
    """A worker that has ended. `records` is its MLLOG file, parsed."""

    status: int
    stdout: str
    stderr: str
    log: Path
    records: list[dict[str, Any]]

    def values(self, key: str) -> list[Any]:
        return [record["value"] for record in self.records if record["key"] == key]

    @property
    def keys(self) -> list[str]:
        return [record["key"] for record in self.records]


def read_log(path: Path) -> list[dict[str, Any]]:
    """Every line must be a record; anything else would be a stray writer."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line[len(":::MLLOG ") :]) for line in lines]


def run_worker(
    job: dict[str, Any], *, python: str = sys.executable, prefix: tuple[str, ...] = (), island: Path | None = None
) -> Ended:
    """Start the worker as the launcher does, with nothing of this process's environment but the paths; that of the
    folder `island`, mounted alone, when there is one."""
    log = Path(job["files"]["mllog"])
    path = log.with_name("job.json")
    path.write_text(json.dumps(job), encoding="utf-8")
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT if island is None else island.parent),
    }
    module = "mlbench.worker" if island is None else island.name
    command = [*prefix, python, "-m", module, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)
    return Ended(done.returncode, done.stdout, done.stderr, log, read_log(log))
