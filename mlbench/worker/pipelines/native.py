"""Input through the C decoder (../native): region decoding in threads, straight into the batch's memory.

A batch is handed to the decoding threads two batches before it is needed, so they go on without a pause; a Python
thread waits for them, and the training thread takes finished batches. Images that are no JPEG go through Pillow.
Where the library is not built, `open_training` and `open_validation` are those of `fallback`, which says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections import deque
from typing import Any, Deque, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..job import Data
from ..native import library as native
from ..ranks import Rank
from ..runtime import import_mxnet
from ..validate import TrainingJob
from .base import Batch, Prefetcher, StreamTraining, Training, TrainingOrder, Validation, validation_share
from .records import DataFault, FileSource, check_labels, image_of, open_source

BATCHES_AHEAD = 2
"""Batches with the decoding threads at once: one in work and one waiting, so that no thread idles between them."""


def key_of(seed: int, epoch: int) -> int:
    """Of the distortions of an epoch: with an image's number it decides crop and mirror, on whatever rank."""
    return int.from_bytes(hashlib.sha256(("%d %d" % (seed, epoch)).encode()).digest()[:8], "little")


def spec_of(data: Data, layout: str, key: Optional[int]) -> native.Spec:
    """The decoder's settings: for training under `key`, or for validation (None)."""
    how = data.augmentation
    distorted = key is not None
    return native.make_spec(
        px=data.image_px,
        resize_px=how.resize_val_px,
        mean_rgb=data.mean_rgb,
        std_rgb=data.std_rgb,
        channels_last=layout == "NHWC",
        key=key or 0,
        random_resized_crop=distorted and how.random_resized_crop,
        area=how.area,
        aspect=how.aspect,
        max_shift=how.max_shift_px if distorted else 0,
        mirror=distorted and how.mirror,
    )


class Task(NamedTuple):
    """Images to put into one batch, under these settings."""

    spec: native.Spec
    numbers: Any
    """numpy int64, at most the batch size"""


class _Pending(NamedTuple):
    """A batch with the decoding threads; what they use is kept alive here."""

    ticket: int
    task: Task
    items: Any
    images: Any
    address: int
    kept: Sequence[Any]


class Filler:
    """Fills batches of a fixed size; `run` is the one way in. One thread may use it at a time."""

    def __init__(
        self, source: Any, library: Any, num_threads: int, size: int, shape: Tuple[int, ...], num_classes: int
    ) -> None:
        """`source` as records.open_source gives it; `shape` of one image in the batch."""
        import numpy

        self._numpy = numpy
        self._mx = import_mxnet()
        self._source = source
        self._library = library
        self._pool = native.Pool(library, num_threads)
        self._size = size
        self._num_classes = num_classes
        self._shape = (size,) + shape
        self._image_bytes = 4 * shape[0] * shape[1] * shape[2]
        self._fds = numpy.asarray(source.fds, dtype="int32") if isinstance(source, FileSource) else None
        self.num_mended = 0
        """Images with damage that libjpeg mended."""
        self.first_mended = ""

    def run(self, tasks: Iterator[Task]) -> Iterator[Batch]:
        """A batch for each task, in order. Raises DataFault, RecordFault, OSError, naming file, record and offset."""
        pending: Deque[_Pending] = deque()
        try:
            for task in self._with_bytes(tasks):
                pending.append(self._submit(*task))
                if len(pending) > BATCHES_AHEAD:
                    yield self._finish(pending.popleft())
            while pending:
                yield self._finish(pending.popleft())
        finally:
            for left in pending:
                self._pool.wait(left.ticket)

    def _with_bytes(self, tasks: Iterator[Task]) -> Iterator[Tuple[Task, Optional[Sequence[bytes]]]]:
        """Tasks with the bytes of their records where the decoder cannot read them itself."""
        if self._fds is not None:
            for task in tasks:
                yield task, None
            return
        for task, raw in self._source.read_ahead((task, task.numbers) for task in tasks):
            yield task, raw

    def _empty(self) -> Tuple[Any, int]:
        """A new NDArray in CPU memory and its address; nobody else knows it yet, so C may write to it."""
        images = self._mx.nd.empty(self._shape, ctx=self._mx.cpu(), dtype="float32")
        address = ctypes.c_void_p()
        self._mx.base.check_call(self._mx.base._LIB.MXNDArrayGetData(images.handle, ctypes.byref(address)))
        assert address.value is not None
        return images, address.value

    def _submit(self, task: Task, raw: Optional[Sequence[bytes]]) -> _Pending:
        numbers = task.numbers
        items = (native.Item * len(numbers))()
        table = self._table(items)
        table["number"] = numbers
        kept: List[Any] = []
        if raw is None:
            records = self._source.records
            table["offset"], table["size"] = records.offsets[numbers], records.extents[numbers]
            assert self._fds is not None
            table["fd"] = self._fds[records.files[numbers]]
        else:
            for item, number, record in zip(items, numbers, raw):
                item.label, image = image_of(self._source, int(number), record)
                memory = ctypes.create_string_buffer(bytes(image), len(image))
                item.data, item.size = ctypes.addressof(memory), len(image)
                kept.append(memory)
        images, address = self._empty()
        if len(numbers) < self._size:
            ctypes.memset(
                address + len(numbers) * self._image_bytes, 0, (self._size - len(numbers)) * self._image_bytes
            )
        ticket = self._pool.submit(task.spec, items, len(numbers), address)
        return _Pending(ticket, task, items, images, address, kept)

    def _finish(self, pending: _Pending) -> Batch:
        count = len(pending.task.numbers)
        if self._pool.wait(pending.ticket):
            for place, status, message in native.messages(pending.items, count):
                self._mend(pending, place, status, message)
        table = self._table(pending.items)
        self._note_mended(pending.task.numbers[table["num_warnings"] > 0])
        check_labels(self._source.records, pending.task.numbers, table["label"], self._num_classes)
        labels = self._numpy.zeros((self._size,), dtype="float32")
        labels[:count] = table["label"]
        return Batch(pending.images, self._mx.nd.array(labels, dtype="float32"), count)

    def _table(self, items: Any) -> Any:
        """The items as a numpy record array on the same memory."""
        return self._numpy.frombuffer(items, dtype=self._numpy.dtype(native.Item))

    def _note_mended(self, numbers: Any) -> None:
        if len(numbers) and not self.num_mended:
            self.first_mended = self._source.records.where(int(numbers[0]))
        self.num_mended += len(numbers)

    def _mend(self, pending: _Pending, place: int, status: int, message: str) -> None:
        """Decode an image of another format with Pillow; any other fault ends the run."""
        number = int(pending.task.numbers[place])
        where = self._source.records.where(number)
        if status != native.OTHER_FORMAT:
            raise DataFault("%s: %s" % (where, message))
        _, encoded = image_of(self._source, number)
        rgb, width, height = decode_with_pillow(bytes(encoded), where, pending.task.spec.max_pixels)
        address = pending.address + place * self._image_bytes
        native.place_pixels(self._library, pending.task.spec, number, rgb, width, height, address)

    def close(self) -> None:
        self._pool.close()
        self._source.close()
        if self.num_mended:
            print("%d damaged JPEGs were mended, the first: %s" % (self.num_mended, self.first_mended), file=sys.stderr)


def decode_with_pillow(encoded: bytes, where: str, max_pixels: int) -> Tuple[bytes, int, int]:
    """(RGB bytes, width, height) of an image that is no JPEG. Raises DataFault."""
    try:
        import io

        from PIL import Image
    except ImportError:
        raise DataFault(
            "%s: no JPEG (begins %s); install Pillow to read it" % (where, encoded[:4].hex() or "with nothing")
        )
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            if image.width * image.height > max_pixels:
                raise DataFault("%s: %d x %d pixels, more than %d" % (where, image.width, image.height, max_pixels))
            return image.convert("RGB").tobytes(), image.width, image.height
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataFault("%s: image cannot be decoded (%s)" % (where, error))


def _open_filler(job: TrainingJob, rank: Rank, validation: bool) -> Filler:
    data, px = job.data, job.data.image_px
    library = native.load()
    recs, idxs = (data.val_rec, data.val_idx) if validation else (data.train_rec, data.train_idx)
    source = open_source(data, rank, recs, idxs, data.num_val if validation else data.num_train)
    size = job.schedule.eval_batch_per_rank if validation else job.schedule.batch_per_rank
    shape = (px, px, 3) if job.model.layout == "NHWC" else (3, px, px)
    return Filler(source, library, max(1, data.num_threads), size, shape, job.model.num_classes)


class NativeTraining(StreamTraining):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        self._order = TrainingOrder(job, rank)
        self._filler = _open_filler(job, rank, validation=False)
        self._data, self._layout, self._seed = job.data, job.model.layout, job.seed
        super().__init__(job, lambda: self._filler.run(self._tasks()))

    def _tasks(self) -> Iterator[Task]:
        for epoch, numbers in self._order.stream():
            yield Task(spec_of(self._data, self._layout, key_of(self._seed, epoch)), numbers)

    def close(self) -> None:
        super().close()
        self._filler.close()


class NativeValidation(Validation):
    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        self._spec = spec_of(job.data, job.model.layout, None)
        self._share = validation_share(job.data.num_val, rank)
        self._size = job.schedule.eval_batch_per_rank
        self._depth = job.data.prefetch_batches
        self._filler = _open_filler(job, rank, validation=True)

    def _tasks(self) -> Iterator[Task]:
        import numpy

        for at in range(0, len(self._share), self._size):
            yield Task(self._spec, numpy.asarray(self._share[at : at + self._size], dtype="int64"))

    def batches(self) -> Iterator[Batch]:
        ahead = Prefetcher(lambda: self._filler.run(self._tasks()), self._depth)
        try:
            yield from ahead
        finally:
            ahead.close()

    def close(self) -> None:
        self._filler.close()


def open_training(job: TrainingJob, rank: Rank) -> Training:
    """Raises DataFault, RecordFault, OSError; falls back, and says so, where the decoder is not built."""
    try:
        return NativeTraining(job, rank)
    except native.NativeError as error:
        from . import fallback

        return fallback.open_training(job, rank, str(error))


def open_validation(job: TrainingJob, rank: Rank) -> Validation:
    """Raises DataFault, RecordFault, OSError; falls back, and says so, where the decoder is not built."""
    try:
        return NativeValidation(job, rank)
    except native.NativeError as error:
        from . import fallback

        return fallback.open_validation(job, rank, str(error))
