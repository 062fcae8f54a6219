"""Model, loss and optimizer of one rank, put together: a training step, and counting right answers.

MXNet works behind Python's back: calls return at once and its engine runs what is ready. Nothing here waits, except
`count_correct` and `wait`. A loop that never waits would queue its whole epoch in memory, so the loops wait for the
loss of an earlier step (`Pace`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, List, Tuple

from .job import Schedule
from .model import build, initialise, trainable
from .optimizer import OPTIMIZERS, SGD
from .pipelines.base import Batch
from .ranks import Alone
from .runtime import context, import_mxnet
from .schedule import learning_rate
from .validate import TrainingJob

_STEPS_AHEAD = 2
"""Steps that may be queued behind the one that computes: enough that the engine never runs dry, and no more memory."""


def smoothed_loss(mx: Any, smoothing: float, num_classes: int) -> Any:
    """A block (scores, labels) -> loss (batch,): cross entropy against (1 - smoothing) * one-hot + smoothing / classes.

    Computed in float32 whatever the scores are. Source: Szegedy et al., Rethinking the Inception Architecture (2015),
    section 7; MLPerf's reference gives the true class its share of the smoothing too."""

    class Loss(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, scores: Any, labels: Any) -> Any:
            log_p = F.log_softmax(F.cast(scores, dtype="float32"), axis=-1)
            loss = -F.pick(log_p, labels, axis=-1) * (1.0 - smoothing)
            if smoothing:
                loss = loss - F.sum(log_p, axis=-1) * (smoothing / num_classes)
            return loss

    return Loss()


class ModelError(Exception):
    """The model is not the one that its name promises."""


class Pace:
    """Keeps the loop at most a few steps ahead of the engine."""

    def __init__(self) -> None:
        self._pending: Deque[Any] = deque()

    def after(self, loss: Any) -> None:
        """Call after each step: waits for the step `_STEPS_AHEAD` before this one."""
        self._pending.append(loss)
        if len(self._pending) > _STEPS_AHEAD:
            self._pending.popleft().wait_to_read()

    @property
    def num_pending(self) -> int:
        """Steps that may still be computing."""
        return len(self._pending)


class Learner:
    """Built before `run_start`; touches no data."""

    def __init__(self, job: TrainingJob, ranks: Alone) -> None:
        mx = import_mxnet()
        self._mx = mx
        self._job = job
        self._ranks = ranks
        self._context = context(mx, job.device, ranks.rank.local_rank)
        self._dtype = job.model.dtype
        self._accumulation = job.optimizer.gradient_accumulation_steps
        # All ranks draw the same weights; distortions have their own seeds, see the pipelines.
        mx.random.seed(job.seed % 2**31)
        self.net = build(mx, job.model, job.device)
        initialise(mx, self.net, job.model, self._context)
        self.net.hybridize(static_alloc=True, static_shape=True)
        self._loss = smoothed_loss(mx, job.optimizer.label_smoothing, job.model.num_classes)
        self._loss.hybridize()
        self._step = 0
        self._warm_up(job.schedule)
        self.parameters = trainable(self.net)
        if self._accumulation > 1:
            for parameter in self.parameters:
                parameter.grad_req = "add"
        self._gradients = [parameter.grad(self._context) for parameter in self.parameters]
        weights = [parameter.data(self._context) for parameter in self.parameters]
        num_samples = job.schedule.batch_per_rank * ranks.rank.size * self._accumulation
        names = [parameter.name for parameter in self.parameters]
        self._optimizer: SGD = OPTIMIZERS[job.optimizer.name](
            mx, names, weights, self._gradients, job.optimizer, num_samples
        )

    def _warm_up(self, schedule: Schedule) -> None:
        """One step on random numbers with each batch shape, so that memory is planned and kernels are chosen before
        the clock runs, and ranks agree on the weights. Batch-norm statistics are put back; no weight changes."""
        nd = self._mx.nd
        images = nd.random.uniform(shape=self._image_shape(schedule.batch_per_rank), ctx=self._context)
        labels = nd.zeros((schedule.batch_per_rank,), ctx=self._context)
        with self._mx.autograd.pause():
            self.net(images.astype(self._dtype))  # models of the zoo learn their shapes from the first batch
        arrays = [parameter.data(self._context) for parameter in self.net.collect_params().values()]
        self._ranks.broadcast(arrays)
        kept = [array.copy() for array in arrays]
        self._backward(images, labels)
        if schedule.eval_batch_per_rank:
            self._scores(nd.zeros(self._image_shape(schedule.eval_batch_per_rank), ctx=self._context))
        for array, before in zip(arrays, kept):
            before.copyto(array)
        nd.waitall()

    def _image_shape(self, batch: int) -> Tuple[int, ...]:
        px = self._job.data.image_px
        return (batch, px, px, 3) if self._job.model.layout == "NHWC" else (batch, 3, px, px)

    def _here(self, array: Any) -> Any:
        return array.as_in_context(self._context)

    def _images(self, images: Any) -> Any:
        return self._here(images).astype(self._dtype, copy=False)

    def _scores(self, images: Any) -> Any:
        return self.net(self._images(images))

    def _backward(self, images: Any, labels: Any) -> Any:
        with self._mx.autograd.record():
            loss = self._loss(self._scores(images), self._here(labels))
        # The gradient of the sum over the batch: in float16 it also keeps small gradients above the smallest number.
        loss.backward()
        return loss

    def train(self, micro_batches: List[Batch]) -> Any:
        """One optimizer step over `gradient_accumulation_steps` batches. Returns the last batch's loss, unwaited."""
        for batch in micro_batches:
            loss = self._backward(batch.images, batch.labels)
        for index, gradient in enumerate(self._gradients):
            self._ranks.sum_gradient(gradient, index)
        self._optimizer.step(learning_rate(self._job.optimizer, self._step))
        if self._accumulation > 1:
            for gradient in self._gradients:
                gradient[:] = 0
        self._step += 1
        return loss

    def count_correct(self, batch: Batch) -> int:
        """How many of the batch's valid images get their own label as the best score."""
        best = self._scores(batch.images).astype("float32", copy=False).argmax(axis=1).asnumpy()[: batch.num_valid]
        return int((best == batch.labels.asnumpy()[: batch.num_valid]).sum())

    def wait(self) -> None:
        """Return when the engine has done everything."""
        self._mx.nd.waitall()

    @property
    def num_parameters(self) -> int:
        total = 0
        for parameter in self.parameters:
            size = 1
            for length in parameter.shape:
                size *= length
            total += size
        return total


def check_model(job: TrainingJob, learner: Learner) -> None:
    """ResNet-50 with 1,000 classes must have the size that the benchmark is known by. Raises ModelError."""
    if job.model.name == "resnet50" and job.model.num_classes == 1000 and learner.num_parameters != 25557032:
        raise ModelError("the model has %d trainable parameters, expected 25557032" % learner.num_parameters)
