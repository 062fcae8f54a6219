"""Input through MXNet's own image operators: needs nothing that a container with MXNet has not.

Records are read by offset, so the order of images is ours (base.TrainingOrder) and any number of `.rec` files works.
JPEGs are decoded, cropped and scaled by MXNet (OpenCV) on the engine's CPU threads (MXNET_CPU_WORKER_NTHREADS, not
`num_threads`), shifted, mirrored and normalised by numpy. It is the pipeline of last resort: `native` is faster.
"""

from __future__ import annotations

import math
import random
from typing import Any, Iterator, Optional, Sequence, Tuple, Type

from ..job import Augmentation, Data
from ..ranks import Rank
from ..runtime import import_mxnet
from ..validate import TrainingJob
from .base import Batch, Prefetcher, StreamTraining, Training, TrainingOrder, Validation, validation_share
from .records import DataFault, check_labels, image_of, open_source


class Decoder:
    """Encoded images in, normalised float32 arrays out.

    MXNet's engine decodes in the order in which it is asked, between the operators of the training step. So the images
    of a batch are all asked for (`start_*`, which returns at once) before the first is waited for (`finish`)."""

    def __init__(self, mx: Any, data: Data, layout: str) -> None:
        import numpy

        self._mx = mx
        self._numpy = numpy
        self._px = data.image_px
        self._augmentation = data.augmentation
        self._channels_last = layout == "NHWC"
        self._mean = numpy.asarray(data.mean_rgb, dtype="float32")
        self._scale = 1.0 / numpy.asarray(data.std_rgb, dtype="float32")

    def start_training(self, encoded: memoryview, where: str, chance: random.Random) -> Any:
        """A distorted image on its way; `chance` alone decides how it is distorted."""
        image = self._decode(encoded, where)
        how = self._augmentation
        if not how.random_resized_crop:
            return self._centre(image)
        top, left, height, width = random_crop(chance, how, image.shape[0], image.shape[1])
        return self._resize(image[top : top + height, left : left + width], self._px, self._px)

    def start_validation(self, encoded: memoryview, where: str) -> Any:
        """Shorter side to `resize_val_px`, then the centre; on its way."""
        return self._centre(self._decode(encoded, where))

    def finish(self, image: Any, where: str, chance: Optional[random.Random]) -> Any:
        """Wait for an image; shift and mirror it if `chance` is given; float32 in the model's layout."""
        try:
            pixels = image.asnumpy()
        except self._mx.base.MXNetError as error:
            raise self._fault(where, error)
        how = self._augmentation
        if chance is not None and how.max_shift_px and not how.random_resized_crop:
            pixels = self._shifted(pixels, chance)
        if chance is not None and how.mirror and chance.random() < 0.5:
            pixels = pixels[:, ::-1]
        normalised = (pixels.astype("float32") - self._mean) * self._scale
        return normalised if self._channels_last else normalised.transpose(2, 0, 1)

    def _decode(self, encoded: memoryview, where: str) -> Any:
        try:
            return self._mx.image.imdecode(bytes(encoded), flag=1, to_rgb=True)
        except self._mx.base.MXNetError as error:
            raise self._fault(where, error)

    @staticmethod
    def _fault(where: str, error: Exception) -> DataFault:
        return DataFault("%s: image cannot be decoded (%s)" % (where, str(error).strip().splitlines()[-1]))

    def _resize(self, image: Any, height: int, width: int) -> Any:
        if image.shape[:2] == (height, width):
            return image
        smaller = height * width < image.shape[0] * image.shape[1]
        return self._mx.image.imresize(image, width, height, interp=2 if smaller else 1)  # 2 area, 1 bilinear

    def _centre(self, image: Any) -> Any:
        height, width = image.shape[:2]
        scale = max(self._augmentation.resize_val_px, self._px) / min(height, width)
        image = self._resize(image, max(self._px, round(height * scale)), max(self._px, round(width * scale)))
        top, left = (image.shape[0] - self._px) // 2, (image.shape[1] - self._px) // 2
        return image[top : top + self._px, left : left + self._px]

    def _shifted(self, pixels: Any, chance: random.Random) -> Any:
        """The image moved by whole pixels; the border is repeated into the gap."""
        reach = self._augmentation.max_shift_px
        padded = self._numpy.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
        down, right = chance.randint(0, 2 * reach), chance.randint(0, 2 * reach)
        return padded[down : down + self._px, right : right + self._px]


def random_crop(chance: random.Random, how: Augmentation, height: int, width: int) -> Tuple[int, int, int, int]:
    """(top, left, height, width) of a crop of random area and aspect, tried ten times, else the whole image's centre.

    Source: the crop of Szegedy et al., Going Deeper with Convolutions (2014), section 6."""
    for _ in range(10):
        area = height * width * chance.uniform(*how.area)
        aspect = math.exp(chance.uniform(math.log(how.aspect[0]), math.log(how.aspect[1])))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            return (
                chance.randint(0, height - crop_height),
                chance.randint(0, width - crop_width),
                crop_height,
                crop_width,
            )
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


class _Source:
    """Records and decoder of one split."""

    def __init__(
        self,
        job: TrainingJob,
        rank: Rank,
        decoder: Type[Decoder],
        recs: Sequence[str],
        idxs: Sequence[str],
        expected: int,
    ) -> None:
        import numpy

        self._numpy = numpy
        self._mx = import_mxnet()
        self._seed = job.seed
        self._num_classes = job.model.num_classes
        self.records = open_source(job.data, rank, recs, idxs, expected)
        self._decoder = decoder(self._mx, job.data, job.model.layout)
        px = job.data.image_px
        self._shape = (px, px, 3) if job.model.layout == "NHWC" else (3, px, px)

    def training(self, numbers: Sequence[int], epoch: int) -> Batch:
        """Distorted images; how depends on seed, epoch and image number only."""
        started = []
        for number in numbers:
            label, encoded = image_of(self.records, int(number))
            where = self.records.records.where(int(number))
            chance = random.Random(hash((self._seed, epoch, int(number))))
            started.append((label, self._decoder.start_training(encoded, where, chance), where, chance))
        return self._batch(numbers, started, len(started))

    def validation(self, numbers: Sequence[int], size: int) -> Batch:
        """Images as they are, padded with zeros to `size`."""
        started = []
        for number in numbers:
            label, encoded = image_of(self.records, number)
            where = self.records.records.where(number)
            started.append((label, self._decoder.start_validation(encoded, where), where, None))
        return self._batch(numbers, started, size)

    def _batch(
        self, numbers: Sequence[int], started: Sequence[Tuple[float, Any, str, Optional[random.Random]]], size: int
    ) -> Batch:
        check_labels(self.records.records, numbers, [label for label, *_ in started], self._num_classes)
        images = self._numpy.zeros((size,) + self._shape, dtype="float32")
        labels = self._numpy.zeros((size,), dtype="float32")
        for place, (label, image, where, chance) in enumerate(started):
            images[place] = self._decoder.finish(image, where, chance)
            labels[place] = label
        nd = self._mx.nd
        return Batch(nd.array(images, dtype="float32"), nd.array(labels, dtype="float32"), len(started))


class MxnetTraining(StreamTraining):
    def __init__(self, job: TrainingJob, rank: Rank, decoder: Type[Decoder] = Decoder) -> None:
        self._source = _Source(job, rank, decoder, job.data.train_rec, job.data.train_idx, job.data.num_train)
        self._order = TrainingOrder(job, rank)
        super().__init__(job, self._make)

    def _make(self) -> Iterator[Batch]:
        return (self._source.training(numbers, epoch) for epoch, numbers in self._order.stream())

    def close(self) -> None:
        super().close()
        self._source.records.close()


class MxnetValidation(Validation):
    def __init__(self, job: TrainingJob, rank: Rank, decoder: Type[Decoder] = Decoder) -> None:
        self._source = _Source(job, rank, decoder, job.data.val_rec, job.data.val_idx, job.data.num_val)
        self._share = validation_share(job.data.num_val, rank)
        self._batch = job.schedule.eval_batch_per_rank
        self._depth = job.data.prefetch_batches

    def _make(self) -> Iterator[Batch]:
        for at in range(0, len(self._share), self._batch):
            yield self._source.validation(self._share[at : at + self._batch], self._batch)

    def batches(self) -> Iterator[Batch]:
        ahead = Prefetcher(self._make, self._depth)
        try:
            yield from ahead
        finally:
            ahead.close()

    def close(self) -> None:
        self._source.records.close()


def open_training(job: TrainingJob, rank: Rank) -> Training:
    """Raises RecordFault, DataFault, OSError."""
    return MxnetTraining(job, rank)


def open_validation(job: TrainingJob, rank: Rank) -> Validation:
    """Raises RecordFault, DataFault, OSError."""
    return MxnetValidation(job, rank)
