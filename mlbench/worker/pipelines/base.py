"""The interface of the input pipelines, and what they share: the order of images and pre-fetching.

A pipeline module `pipelines/<name>.py` has two functions, called after `run_start` because they touch the data:

    open_training(job, rank) -> Training
    open_validation(job, rank) -> Validation

`job.data.pipeline` names the module. Its heavy imports happen inside these functions.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import queue
import threading
from abc import ABC, abstractmethod
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from ..job import JobError
from ..ranks import Rank
from ..schedule import first_step, num_steps
from ..validate import TrainingJob
from .used import Used

_MODULES = {"mxnet": "mxnet_iter", "native": "native", "dali": "dali"}


class Batch(NamedTuple):
    """`images`: MXNet NDArray float32, (batch, 3, px, px) or (batch, px, px, 3) as `job.model.layout` says, RGB,
    (value 0..255 - mean) / std. `labels`: NDArray float32, (batch,). Both have the full batch size always; only the
    first `num_valid` images count, the rest is padding (validation's last batch)."""

    images: Any
    labels: Any
    num_valid: int


class Training(ABC):
    """Training batches of one rank. `instead` is the pipeline they come from where it is not the one the job names."""

    instead: Optional[Used] = None

    @abstractmethod
    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, counted from 1: exactly `micro_batches(job, epoch)` of them, on every rank.

        Called once for each epoch, in rising order. A pipeline may prepare the next epoch while this one runs."""

    @abstractmethod
    def close(self) -> None:
        """End threads and free what is held; also called in the middle of an epoch."""


class Validation(ABC):
    """This rank's share of the validation images; over all ranks each image comes exactly once."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """One pass; called again for each evaluation. Ranks may have different numbers of batches."""

    @abstractmethod
    def close(self) -> None:
        """End threads and free what is held."""


def open_training(job: TrainingJob, rank: Rank) -> Training:
    """The training pipeline that the job names. Raises JobError when its module cannot be imported."""
    return module_of(job).open_training(job, rank)  # type: ignore[no-any-return]


def open_validation(job: TrainingJob, rank: Rank) -> Validation:
    """The validation pipeline that the job names. Raises JobError when its module cannot be imported."""
    return module_of(job).open_validation(job, rank)  # type: ignore[no-any-return]


def module_of(job: TrainingJob) -> Any:
    """The pipeline's module; touches no data. Raises JobError when it cannot be imported."""
    name = job.data.pipeline
    try:
        return importlib.import_module("." + _MODULES[name], __package__)
    except ImportError as error:
        raise JobError("job.data.pipeline: %r cannot be imported (%s)" % (name, error))


def global_batch_size(job: TrainingJob) -> int:
    """Images of one optimizer step: per-rank batch x ranks x accumulation."""
    accumulation = job.optimizer.gradient_accumulation_steps
    return job.schedule.batch_per_rank * job.num_ranks * accumulation


def micro_batches(job: TrainingJob, epoch: int) -> int:
    """Batches that every rank takes in an epoch: optimizer steps x accumulation."""
    accumulation = job.optimizer.gradient_accumulation_steps
    return num_steps(job.data.num_train, global_batch_size(job), epoch) * accumulation


class TrainingOrder:
    """Which image each rank takes when: a permutation per epoch from the seed, dealt to the ranks batch by batch.

    The permutations of all epochs form one stream (schedule.first_step): over all ranks each image comes exactly once
    an epoch, whatever the batch size, and a batch that begins in one epoch may end in the next."""

    def __init__(self, job: TrainingJob, rank: Rank) -> None:
        self._num_train = job.data.num_train
        self._batch = job.schedule.batch_per_rank
        self._global_batch = global_batch_size(job)
        self._seed = job.seed
        self._rank = rank
        self._cached_epoch = 0
        self._cached: Any = None

    def permutation(self, epoch: int) -> Any:
        """Image numbers of an epoch in order, numpy int64 (num_train,); the same on every rank."""
        import numpy

        if epoch != self._cached_epoch:
            generator = numpy.random.RandomState([self._seed % 2**32, self._seed // 2**32 % 2**32, epoch])
            self._cached = generator.permutation(self._num_train)
            self._cached_epoch = epoch
        return self._cached

    def batches(self, epoch: int) -> Iterator[Any]:
        """This rank's image numbers of each batch of an epoch, numpy int64 (batch_per_rank,)."""
        import numpy

        width = self._batch * self._rank.size  # what all ranks take at once
        start = first_step(self._num_train, self._global_batch, epoch) * self._global_batch
        stop = first_step(self._num_train, self._global_batch, epoch + 1) * self._global_batch
        for at in range(start + self._rank.rank * self._batch, stop, width):
            pieces: List[Any] = []
            position, left = at, self._batch
            while left:
                source, offset = divmod(position, self._num_train)
                piece = self.permutation(source + 1)[offset : offset + left]
                pieces.append(piece)
                position, left = position + len(piece), left - len(piece)
            yield numpy.concatenate(pieces)

    def stream(self) -> Iterator[Tuple[int, Any]]:
        """(epoch, image numbers) of each batch from epoch 1 on, without end."""
        for epoch in itertools.count(1):
            for numbers in self.batches(epoch):
                yield epoch, numbers


def validation_share(num_val: int, rank: Rank) -> "range":
    """Image numbers that this rank evaluates: a contiguous share, sizes differ by at most one."""
    return range(num_val * rank.rank // rank.size, num_val * (rank.rank + 1) // rank.size)


class StreamTraining(Training):
    """Training batches from one endless iterator that runs ahead in a thread, across the ends of epochs too.

    `make()` gives this rank's batches from epoch 1 on, for example over `TrainingOrder.stream()`."""

    def __init__(self, job: TrainingJob, make: Callable[[], Iterator[Batch]]) -> None:
        self._job = job
        self._ahead = Prefetcher(make, job.data.prefetch_batches)
        self._batches = iter(self._ahead)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return itertools.islice(self._batches, micro_batches(self._job, epoch))

    def close(self) -> None:
        self._ahead.close()


class Prefetcher:
    """Runs an iterator in a thread of its own, up to `depth` items ahead. An exception there is raised here."""

    _END = object()

    def __init__(self, make: Callable[[], Iterator[Any]], depth: int) -> None:
        self._items: "queue.Queue[Any]" = queue.Queue(max(1, depth))
        self._closed = threading.Event()
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._fill, args=(make,), daemon=True)
        self._thread.start()

    def _put(self, item: Any) -> None:
        while not self._closed.is_set():
            try:
                self._items.put(item, timeout=0.2)
                return
            except queue.Full:
                continue

    def _fill(self, make: Callable[[], Iterator[Any]]) -> None:
        try:
            for item in make():
                self._put(item)
                if self._closed.is_set():
                    return
        except Exception as error:  # noqa: BLE001  # handed to the reader, who raises it
            self._error = error
        self._put(self._END)

    def __iter__(self) -> Iterator[Any]:
        while True:
            item = self._items.get()
            if item is self._END:
                if self._error is not None:
                    raise self._error
                return
            yield item

    def close(self) -> None:
        """End the thread; items not taken are dropped."""
        self._closed.set()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._items.get_nowait()
            self._thread.join(0.05)
