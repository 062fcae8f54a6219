"""Training jobs for tests of the input pipelines, and images with known faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlbench.worker.job import Augmentation, Data, Files, Job, Model, Optimizer, Schedule, Submission
from mlbench.worker.recordio import RecordWriter, pack_image
from mlbench.worker.validate import TrainingJob, check

PLAIN = Augmentation(
    random_resized_crop=False, area=(0.05, 1.0), aspect=(0.75, 4 / 3), max_shift_px=0, mirror=False, resize_val_px=32
)
DISTORTED = Augmentation(
    random_resized_crop=True, area=(0.05, 1.0), aspect=(0.75, 4 / 3), max_shift_px=0, mirror=True, resize_val_px=32
)


def write_images(folder: Path, split: str, images: Sequence[bytes]) -> tuple[str, str]:
    """(rec, idx) of a file whose record i has label i."""
    folder.mkdir(parents=True, exist_ok=True)
    rec, idx = str(folder / f"{split}.rec"), str(folder / f"{split}.idx")
    with RecordWriter(rec, idx) as writer:
        for number, image in enumerate(images):
            writer.write(number, pack_image(float(number), number, image))
    return rec, idx


def pipeline_job(
    *,
    train: Sequence[tuple[str, str]],
    val: Sequence[tuple[str, str]],
    num_train: int,
    num_val: int,
    pipeline: str = "native",
    px: int = 32,
    augmentation: Augmentation = PLAIN,
    batch: int = 16,
    num_ranks: int = 1,
    seed: int = 7,
    num_threads: int = 2,
    s3_endpoints: Sequence[str] = (),
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0),
    std: tuple[float, float, float] = (1.0, 1.0, 1.0),
    num_classes: int = 1000,
) -> TrainingJob:
    """A checked job over these files; only what the pipelines read matters."""
    return check(
        Job(
            schema_version=1,
            kind="train",
            job_id="test",
            num_ranks=num_ranks,
            device="cpu",
            seed=seed,
            cache_clear=False,
            threads_per_rank=1,
            environment={},
            files=Files(mllog="unused", rank_log_dir="unused", result="unused"),
            submission=Submission(benchmark="resnet", org="x", division="open", status="onprem", platform="x"),
            model=Model(
                name="resnet50",
                num_classes=num_classes,
                layout="NCHW",
                dtype="float32",
                batch_norm_momentum=0.9,
                batch_norm_epsilon=1e-5,
                zero_init_last_gamma=True,
            ),
            data=Data(
                name="test",
                train_rec=[rec for rec, _ in train],
                train_idx=[idx for _, idx in train],
                val_rec=[rec for rec, _ in val],
                val_idx=[idx for _, idx in val],
                num_train=num_train,
                num_val=num_val,
                image_px=px,
                mean_rgb=mean,
                std_rgb=std,
                augmentation=augmentation,
                pipeline=pipeline,
                num_threads=num_threads,
                prefetch_batches=2,
                s3_endpoints=list(s3_endpoints),
            ),
            optimizer=Optimizer(
                name="sgd",
                base_learning_rate=0.1,
                end_learning_rate=0.0,
                decay_power=2.0,
                decay_steps=10,
                warmup_steps=0,
                warmup_epochs=0.0,
                momentum=0.9,
                weight_decay=0.0,
                label_smoothing=0.0,
                lars_eta=0.001,
                lars_epsilon=0.0,
                gradient_accumulation_steps=1,
            ),
            schedule=Schedule(
                max_epochs=4,
                eval_period=1,
                eval_offset=0,
                target_accuracy=0.9,
                batch_per_rank=batch,
                eval_batch_per_rank=batch,
                num_batches=0,
                num_warmup_batches=0,
            ),
            allreduce=None,
        )
    )
