"""Input through NVIDIA DALI: decoding on the CPU, or partly on the GPU (nvJPEG) when the job's device is gpu.

The order of images is ours (base.TrainingOrder), so records are handed to DALI and its own reader is not used; they may
lie in a bucket as well. Crops and mirrors come from DALI's generators, seeded by the job's seed and the rank: other
ones than those of `native`, of the same distribution. Needs a DALI that still has its MXNet plugin (up to 1.30).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Sequence, Tuple

from ..job import Data
from ..ranks import Rank
from ..runtime import context, import_mxnet
from ..validate import TrainingJob
from .base import Batch, Prefetcher, StreamTraining, Training, TrainingOrder, Validation, validation_share
from .records import DataFault, FileSource, check_labels, image_of, open_source

QUEUE_DEPTH = 2
"""Batches that DALI prepares ahead of the one that is taken."""
CROP_ATTEMPTS = 10


class Settings(NamedTuple):
    """What a DALI pipeline is built from; also for a bare pipeline to compare with. `device_id` None is the CPU."""

    data: Data
    layout: str
    batch: int
    num_threads: int
    device_id: Any
    seed: int
    training: bool


def build_pipeline(settings: Settings, encoded: Callable[[Any], Any]) -> Any:
    """A built nvidia.dali Pipeline that gives normalised images. `encoded(fn)` makes the node of encoded images.

    Raises ImportError when DALI is not installed."""
    from nvidia.dali import fn, pipeline, types

    data, how = settings.data, settings.data.augmentation
    on_gpu = settings.device_id is not None
    decode_on, compute_on = ("mixed", "gpu") if on_gpu else ("cpu", "cpu")
    pipe = pipeline.Pipeline(
        batch_size=settings.batch,
        num_threads=settings.num_threads,
        device_id=settings.device_id,
        seed=settings.seed,
        prefetch_queue_depth=QUEUE_DEPTH,
    )
    with pipe:
        images = encoded(fn)
        if settings.training and how.random_resized_crop:
            images = fn.decoders.image_random_crop(
                images,
                device=decode_on,
                output_type=types.RGB,
                random_area=list(how.area),
                random_aspect_ratio=list(how.aspect),
                num_attempts=CROP_ATTEMPTS,
            )
            images = fn.resize(images, device=compute_on, resize_x=data.image_px, resize_y=data.image_px)
        else:
            images = fn.decoders.image(images, device=decode_on, output_type=types.RGB)
            images = fn.resize(images, device=compute_on, resize_shorter=max(how.resize_val_px, data.image_px))
        if settings.training and not how.random_resized_crop and how.max_shift_px:
            reach = how.max_shift_px
            shift = fn.random.uniform(range=(-reach - 0.5, reach + 0.49), shape=(2,))
            move = fn.transforms.translation(offset=_whole(shift))
            images = fn.warp_affine(images, matrix=move, interp_type=types.INTERP_NN)
        mirrored = fn.random.coin_flip() if settings.training and how.mirror else 0
        images = fn.crop_mirror_normalize(
            images,
            device=compute_on,
            dtype=types.FLOAT,
            output_layout="HWC" if settings.layout == "NHWC" else "CHW",
            crop=(data.image_px, data.image_px),
            mean=list(data.mean_rgb),
            std=list(data.std_rgb),
            mirror=mirrored,
        )
        pipe.set_outputs(images)
    pipe.build()
    return pipe


def _whole(value: Any) -> Any:
    """Rounded to whole numbers."""
    from nvidia.dali import math

    return math.floor(value + 0.5)


class Filler:
    """Batches of a DALI pipeline over records of ours."""

    def __init__(self, job: TrainingJob, rank: Rank, validation: bool) -> None:
        import numpy
        from nvidia.dali.plugin import mxnet as plugin

        data = job.data
        self._numpy = numpy
        self._mx = import_mxnet()
        self._feed = plugin.feed_ndarray
        self._context = context(self._mx, job.device, rank.local_rank)
        recs, idxs = (data.val_rec, data.val_idx) if validation else (data.train_rec, data.train_idx)
        self._source = open_source(data, rank, recs, idxs, data.num_val if validation else data.num_train)
        self._num_classes = job.model.num_classes
        self._settings = Settings(
            data=data,
            layout=job.model.layout,
            batch=job.schedule.eval_batch_per_rank if validation else job.schedule.batch_per_rank,
            num_threads=data.num_threads,
            device_id=rank.local_rank if job.device == "gpu" else None,
            seed=(job.seed * 1000003 + rank.rank) % 2**31,
            training=not validation,
        )
        px = data.image_px
        self._shape = (px, px, 3) if job.model.layout == "NHWC" else (3, px, px)

    def run(self, numbers: Iterator[Any]) -> Iterator[Batch]:
        """A batch for each array of image numbers, in order. Raises DataFault, RecordFault, OSError."""
        labels: Deque[Sequence[float]] = deque()
        records = self._records(numbers)
        faults: List[Exception] = []

        def encoded() -> List[Any]:
            try:
                images, own = next(records)
            except StopIteration:
                raise
            except Exception as error:  # DALI would turn it into a RuntimeError without its type
                faults.append(error)
                raise StopIteration from error
            labels.append(own)
            return images

        pipe = build_pipeline(self._settings, lambda fn: fn.external_source(encoded, batch=True))
        while True:
            try:
                (images,) = pipe.run()
            except StopIteration:
                if faults:
                    raise faults[0]
                return
            except RuntimeError as error:
                raise DataFault(
                    "%s: DALI cannot decode an image (%s); 'mlbench data verify' finds the record"
                    % (", ".join(self._source.records.paths), _first_line(error))
                )
            yield self._batch(images, labels.popleft())

    def _records(self, numbers: Iterator[Any]) -> Iterator[Tuple[List[Any], List[float]]]:
        """(encoded images, labels) of each batch."""
        if isinstance(self._source, FileSource):
            raw: Iterator[Tuple[Any, Any]] = ((own, [None] * len(own)) for own in numbers)
        else:
            raw = self._source.read_ahead((own, own) for own in numbers)
        for own, records in raw:
            images, labels = [], []
            for number, record in zip(own, records):
                label, image = image_of(self._source, int(number), record)
                images.append(self._numpy.frombuffer(image, dtype="uint8"))
                labels.append(label)
            check_labels(self._source.records, own, labels, self._num_classes)
            yield images, labels

    def _batch(self, images: Any, labels: Sequence[float]) -> Batch:
        count, size = len(labels), self._settings.batch
        nd = self._mx.nd
        filled = nd.empty((count,) + self._shape, ctx=self._context, dtype="float32")
        self._feed(images.as_tensor(), filled)
        if count < size:
            padding = nd.zeros((size - count,) + self._shape, ctx=self._context, dtype="float32")
            filled = nd.concat(filled, padding, dim=0)
        padded = list(labels) + [0.0] * (size - count)
        return Batch(filled, nd.array(padded, ctx=self._context, dtype="float32"), count)

    def close(self) -> None:
        self._source.close()


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class DaliTraining(StreamTraining):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        self._filler = Filler(job, rank, validation=False)
        order = TrainingOrder(job, rank)
        super().__init__(job, lambda: self._filler.run(numbers for _, numbers in order.stream()))

    def close(self) -> None:
        super().close()
        self._filler.close()


class DaliValidation(Validation):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        self._filler = Filler(job, rank, validation=True)
        self._share = validation_share(job.data.num_val, rank)
        self._size = job.schedule.eval_batch_per_rank
        self._depth = job.data.prefetch_batches

    def _numbers(self) -> Iterator[Any]:
        for at in range(0, len(self._share), self._size):
            yield self._share[at : at + self._size]

    def batches(self) -> Iterator[Batch]:
        ahead = Prefetcher(lambda: self._filler.run(self._numbers()), self._depth)
        try:
            yield from ahead
        finally:
            ahead.close()

    def close(self) -> None:
        self._filler.close()


def _need_dali() -> None:
    """Raises DataFault in one sentence when DALI or its MXNet plugin is not there."""
    try:
        from nvidia.dali.plugin import mxnet  # noqa: F401
    except ImportError as error:
        raise DataFault(
            "job.data.pipeline is dali, which cannot be imported (%s); install 'mlbench[dali]' or use native" % error
        )


def open_training(job: TrainingJob, rank: Rank) -> Training:
    """Raises RecordFault, DataFault, OSError."""
    _need_dali()
    return DaliTraining(job, rank)


def open_validation(job: TrainingJob, rank: Rank) -> Validation:
    """Raises RecordFault, DataFault, OSError."""
    _need_dali()
    return DaliValidation(job, rank)
