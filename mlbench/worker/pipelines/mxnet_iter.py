"""Input through MXNet's own image operators: needs nothing that a container with MXNet has not.

Records are read by offset, so the order of images is ours (base.TrainingOrder) and any number of `.rec` files works.
JPEGs are decoded by MXNet (OpenCV) on `num_threads` threads; cropping and scaling go through numpy and MXNet. It is the
pipeline of last resort: `native` is faster.
"""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, List, Sequence, Tuple

from ..job import Augmentation, Data
from ..ranks import Rank
from ..recordio import RecordReader, read_index, unpack_image
from ..runtime import import_mxnet
from ..validate import TrainingJob
from .base import Batch, Prefetcher, Training, TrainingOrder, Validation, validation_share


class DataFault(Exception):
    """The data are not what the job says: an image that cannot be decoded, another number of records."""


class Records:
    """All records of a split, numbered through its files in the order of the job and of their indexes."""

    def __init__(self, recs: Sequence[str], idxs: Sequence[str], expected: int) -> None:
        self._readers = [RecordReader(path) for path in recs]
        self._places: List[Tuple[int, int]] = []
        for number, path in enumerate(idxs):
            self._places += [(number, offset) for offset in read_index(path).offsets]
        if len(self._places) != expected:
            raise DataFault("%s: %d records, expected %d" % (", ".join(idxs), len(self._places), expected))

    def read(self, number: int) -> Tuple[float, memoryview, str]:
        """(label, encoded image, where it stands) of an image. Raises RecordFault."""
        which, offset = self._places[number]
        reader = self._readers[which]
        header, image = unpack_image(reader.read(offset))
        return header.label, image, "%s: offset %d" % (reader.path, offset)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


class Decoder:
    """Encoded images in, normalised float32 arrays out."""

    def __init__(self, mx: Any, data: Data, layout: str) -> None:
        import numpy

        self._mx = mx
        self._numpy = numpy
        self._px = data.image_px
        self._augmentation = data.augmentation
        self._channels_last = layout == "NHWC"
        self._mean = numpy.asarray(data.mean_rgb, dtype="float32")
        self._scale = 1.0 / numpy.asarray(data.std_rgb, dtype="float32")

    def _decode(self, encoded: memoryview, where: str) -> Any:
        try:
            return self._mx.image.imdecode(bytes(encoded), flag=1, to_rgb=True)
        except self._mx.base.MXNetError as error:
            raise DataFault("%s: image cannot be decoded (%s)" % (where, str(error).strip().splitlines()[-1]))

    def _finish(self, pixels: Any) -> Any:
        """uint8 (px, px, 3) to float32 in the model's layout."""
        image = (pixels.astype("float32") - self._mean) * self._scale
        return image if self._channels_last else image.transpose(2, 0, 1)

    def _resize(self, image: Any, height: int, width: int) -> Any:
        if image.shape[:2] == (height, width):
            return image
        area_when_smaller = 2 if height * width < image.shape[0] * image.shape[1] else 1
        return self._mx.image.imresize(image, width, height, interp=area_when_smaller)

    def training(self, encoded: memoryview, where: str, seed: int) -> Any:
        """A distorted image; `seed` alone decides how."""
        chance = random.Random(seed)
        image = self._decode(encoded, where)
        how = self._augmentation
        if how.random_resized_crop:
            top, left, height, width = random_crop(chance, how, image.shape[0], image.shape[1])
            pixels = self._resize(image[top : top + height, left : left + width], self._px, self._px).asnumpy()
        else:
            pixels = self._centre(image)
            if how.max_shift_px:
                pixels = self._shifted(pixels, chance)
        if how.mirror and chance.random() < 0.5:
            pixels = pixels[:, ::-1]
        return self._finish(pixels)

    def validation(self, encoded: memoryview, where: str) -> Any:
        """Shorter side to `resize_val_px`, then the centre."""
        image = self._decode(encoded, where)
        return self._finish(self._centre(image))

    def _centre(self, image: Any) -> Any:
        height, width = image.shape[:2]
        scale = max(self._augmentation.resize_val_px, self._px) / min(height, width)
        image = self._resize(image, max(self._px, round(height * scale)), max(self._px, round(width * scale)))
        top, left = (image.shape[0] - self._px) // 2, (image.shape[1] - self._px) // 2
        return image.asnumpy()[top : top + self._px, left : left + self._px]

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
    """Records, decoder and threads of one split."""

    def __init__(self, job: TrainingJob, recs: Sequence[str], idxs: Sequence[str], expected: int) -> None:
        import numpy

        self._numpy = numpy
        self._mx = import_mxnet()
        self.records = Records(recs, idxs, expected)
        self.decoder = Decoder(self._mx, job.data, job.model.layout)
        # Below about 64 px an image costs less than handing it to another thread.
        pooled = job.data.num_threads > 1 and job.data.image_px >= 64
        self._pool = ThreadPoolExecutor(job.data.num_threads) if pooled else None
        self._shape = (job.data.image_px,) * 2 + (3,) if job.model.layout == "NHWC" else (3,) + (job.data.image_px,) * 2

    def batch(self, load: Any, items: Sequence[Any], size: int) -> Batch:
        """`load(item)` gives (image, label); the batch is padded with zeros to `size`."""
        images = self._numpy.zeros((size,) + self._shape, dtype="float32")
        labels = self._numpy.zeros((size,), dtype="float32")
        loaded = self._pool.map(load, items) if self._pool is not None else map(load, items)
        for place, (image, label) in enumerate(loaded):
            images[place], labels[place] = image, label
        nd = self._mx.nd
        return Batch(nd.array(images, dtype="float32"), nd.array(labels, dtype="float32"), len(items))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self.records.close()


class MxnetTraining(Training):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        data = job.data
        self._source = _Source(job, data.train_rec, data.train_idx, data.num_train)
        self._order = TrainingOrder(job, rank)
        self._batch = job.schedule.batch_per_rank
        self._seed = job.seed
        self._depth = data.prefetch_batches
        self._running: List[Prefetcher] = []

    def _load(self, item: Tuple[int, int]) -> Tuple[Any, float]:
        number, seed = item
        label, encoded, where = self._source.records.read(number)
        return self._source.decoder.training(encoded, where, seed), label

    def _make(self, epoch: int) -> Iterator[Batch]:
        for numbers in self._order.batches(epoch):
            items = [(int(number), hash((self._seed, epoch, int(number)))) for number in numbers]
            yield self._source.batch(self._load, items, self._batch)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        running = Prefetcher(lambda: self._make(epoch), self._depth)
        self._running = [running]
        return iter(running)

    def close(self) -> None:
        for running in self._running:
            running.close()
        self._source.close()


class MxnetValidation(Validation):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        data = job.data
        self._source = _Source(job, data.val_rec, data.val_idx, data.num_val)
        self._share = validation_share(data.num_val, rank)
        self._batch = job.schedule.eval_batch_per_rank
        self._depth = data.prefetch_batches
        self._running: List[Prefetcher] = []

    def _load(self, number: int) -> Tuple[Any, float]:
        label, encoded, where = self._source.records.read(number)
        return self._source.decoder.validation(encoded, where), label

    def _make(self) -> Iterator[Batch]:
        for at in range(0, len(self._share), self._batch):
            yield self._source.batch(self._load, self._share[at : at + self._batch], self._batch)

    def batches(self) -> Iterator[Batch]:
        running = Prefetcher(self._make, self._depth)
        self._running = [running]
        return iter(running)

    def close(self) -> None:
        for running in self._running:
            running.close()
        self._source.close()


def open_training(job: TrainingJob, rank: Rank) -> Training:
    """Raises RecordFault, DataFault, OSError."""
    return MxnetTraining(job, rank)


def open_validation(job: TrainingJob, rank: Rank) -> Validation:
    """Raises RecordFault, DataFault, OSError."""
    return MxnetValidation(job, rank)
