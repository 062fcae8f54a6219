"""Training to the target: the one loop of the time-to-train benchmark.

Order of a run: everything that touches no data; barrier; `run_start`; barrier; only then the data; epochs and
evaluations; `run_stop`. Accuracy is the sum of right answers over the sum of images, over all ranks.
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, Iterator, Tuple

from .log import RunLog, log_pipeline, log_settings, log_submission
from .pipelines.base import Training, Validation, global_batch_size, micro_batches, open_training, open_validation
from .pipelines.used import settle
from .ranks import Alone
from .schedule import block_of, is_evaluated
from .step import Learner, Pace, check_model
from .validate import TrainingJob

PROGRESS_INTERVAL_S = 1.0
"""Least time between two `tracked_stats` records inside an epoch."""


class CountError(Exception):
    """Validation saw another number of images than the job says, so its accuracy is that of something else."""


def run(job: TrainingJob, ranks: Alone, log: RunLog) -> None:
    """Train until the target or the last epoch. On return `run_stop` is in the log."""
    log_submission(log, job)
    log.start("init_start")
    learner = Learner(job, ranks)
    check_model(job, learner)
    log_settings(log, job, global_batch_size(job), [parameter.name for parameter in learner.parameters])
    ranks.barrier()
    log.stop("init_stop")
    log.start("run_start")
    ranks.barrier()
    training = TrainingRun(job, ranks, log, learner)
    try:
        reached = training.to_target()
        ranks.barrier()
    except BaseException:
        log.stop("run_stop", status="aborted", epoch_num=training.epoch)
        raise
    log.stop("run_stop", status="success" if reached else "aborted", epoch_num=training.epoch)


class TrainingRun:
    """From `run_start` to `run_stop`. `epoch` is the one that was last begun."""

    def __init__(self, job: TrainingJob, ranks: Alone, log: RunLog, learner: Learner) -> None:
        self._job = job
        self._schedule = job.schedule
        self._data = job.data
        self._accumulation = job.optimizer.gradient_accumulation_steps
        self._ranks = ranks
        self._log = log
        self._learner = learner
        self.epoch = 0

    def to_target(self) -> bool:
        """Train epoch by epoch. Returns whether the target was reached."""
        training = open_training(self._job, self._ranks.rank)
        try:
            log_pipeline(self._log, settle(self._data.pipeline, training.instead, self._ranks))
            validation = open_validation(self._job, self._ranks.rank)
            try:
                self._log.event("train_samples", self._data.num_train)
                self._log.event("eval_samples", self._data.num_val)
                return any(
                    accuracy >= self._schedule.target_accuracy for accuracy in self._epochs(training, validation)
                )
            finally:
                validation.close()
        finally:
            training.close()

    def _epochs(self, training: Training, validation: Validation) -> Iterator[float]:
        """Trains all epochs; yields the accuracy after each one that is evaluated."""
        first_of_block = 0
        for epoch in range(1, self._schedule.max_epochs + 1):
            self.epoch = epoch
            if not first_of_block:
                first_of_block = epoch
                count = block_of(self._schedule, epoch)
                self._log.start("block_start", first_epoch_num=epoch, epoch_count=count)
            self._log.start("epoch_start", epoch_num=epoch)
            statistics = self._train_epoch(training, epoch)
            self._log.stop("epoch_stop", epoch_num=epoch)
            self._log.event("tracked_stats", statistics, epoch_num=epoch, of="epoch")
            if is_evaluated(self._schedule, epoch):
                accuracy = self._evaluate(validation, epoch)
                self._log.stop("block_stop", first_epoch_num=first_of_block)
                first_of_block = 0
                yield accuracy

    def _train_epoch(self, training: Training, epoch: int) -> Dict[str, Any]:
        """Train one epoch to the end of its last step. Returns what is known of it, for the log."""
        batches = training.epoch(epoch)
        num_steps = micro_batches(self._job, epoch) // self._accumulation
        progress = Progress(self._log, global_batch_size(self._job), epoch, num_steps)
        pace = Pace()
        loss: Any = None
        waited_s = 0.0
        for step in range(1, num_steps + 1):
            asked = time.monotonic()
            taken = [next(batches) for _ in range(self._accumulation)]
            waited_s += time.monotonic() - asked
            loss = self._learner.train(taken)
            pace.after(loss)
            progress.show(step - pace.num_pending)
        self._learner.wait()
        statistics = progress.whole(waited_s)
        if loss is not None:
            mean = float(loss.asnumpy().mean())
            statistics["train_loss"] = mean if math.isfinite(mean) else None
        return statistics

    def _evaluate(self, validation: Validation, epoch: int) -> float:
        """Top-1 accuracy over all ranks. Raises CountError when not every image was counted exactly once."""
        self._log.start("eval_start", epoch_num=epoch)
        correct, seen = count(self._learner, validation)
        all_correct, all_seen = self._ranks.sum([correct, seen])
        if all_seen != self._data.num_val:
            raise CountError("evaluation counted %d images, job.data.num_val is %d" % (all_seen, self._data.num_val))
        accuracy = all_correct / all_seen
        self._log.event("eval_accuracy", accuracy, epoch_num=epoch)
        self._log.stop("eval_stop", epoch_num=epoch)
        return accuracy


def count(learner: Learner, validation: Validation) -> Tuple[int, int]:
    """(right answers, images) of this rank's share."""
    correct = seen = 0
    for batch in validation.batches():
        correct += learner.count_correct(batch)
        seen += batch.num_valid
    return correct, seen


class Progress:
    """Throughput inside an epoch, in samples of all ranks; costs one look at the clock a step."""

    def __init__(self, log: RunLog, samples_per_step: int, epoch: int, num_steps: int) -> None:
        self._log = log
        self._samples_per_step = samples_per_step
        self._epoch = epoch
        self._num_steps = num_steps
        self._start = self._shown_at = time.monotonic()
        self._shown_step = 0

    def show(self, step: int) -> None:
        """Called after each step with the steps done so far; writes a record when the last one is old enough."""
        now = time.monotonic()
        elapsed = now - self._shown_at
        if elapsed < PROGRESS_INTERVAL_S:
            return
        rate = (step - self._shown_step) * self._samples_per_step / elapsed
        self._log.event(
            "tracked_stats",
            {"throughput": round(rate, 3)},
            epoch_num=self._epoch,
            of="interval",
            step=step,
            num_steps=self._num_steps,
        )
        self._shown_at, self._shown_step = now, step

    def whole(self, data_wait_s: float) -> Dict[str, Any]:
        """Throughput of the whole epoch and how long its loop waited for data, seconds."""
        elapsed = time.monotonic() - self._start
        samples = self._num_steps * self._samples_per_step
        rate = round(samples / elapsed, 3) if samples and elapsed > 0 else None
        return {"throughput": rate, "samples": samples, "data_wait_s": round(data_wait_s, 4)}
