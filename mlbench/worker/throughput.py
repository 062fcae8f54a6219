"""Throughput of training: a fixed number of batches after a warm-up, no evaluation.

The distortions are off because the job says so. A batch is one optimizer step of all ranks. The clock runs from the
moment when every rank has finished the warm-up batches to the moment when every rank has finished the last one. Beside
the MLLOG records, rank 0 writes the numbers as one JSON object to `files.result`.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .files import write_json
from .log import RunLog, log_pipeline, log_settings, log_submission
from .pipelines.base import Batch, Training, global_batch_size, open_training
from .pipelines.used import Used, settle
from .ranks import Alone
from .step import Learner, Pace, check_model
from .train import Progress
from .validate import TrainingJob

SCHEMA_VERSION = 1


def run(job: TrainingJob, ranks: Alone, log: RunLog) -> None:
    """Measure. On return `files.result` is written and `run_stop` is in the log."""
    log_submission(log, job)
    log.start("init_start")
    learner = Learner(job, ranks)
    check_model(job, learner)
    log_settings(log, job, global_batch_size(job), [])
    ranks.barrier()
    log.stop("init_stop")
    log.start("run_start")
    ranks.barrier()
    try:
        training = open_training(job, ranks.rank)
        try:
            result = Measurement(job, ranks, log, learner).take(training)
        finally:
            training.close()
        if ranks.rank.rank == 0:
            write_json(job.files.result, result)
    except BaseException:
        log.stop("run_stop", status="aborted")
        raise
    log.stop("run_stop", status="success")


class Measurement:
    """Warm-up and measured batches of one rank."""

    def __init__(self, job: TrainingJob, ranks: Alone, log: RunLog, learner: Learner) -> None:
        self._job = job
        self._schedule = job.schedule
        self._accumulation = job.optimizer.gradient_accumulation_steps
        self._ranks = ranks
        self._log = log
        self._learner = learner

    def take(self, training: Training) -> Dict[str, Any]:
        """Run all batches. Returns the result of all ranks."""
        used = settle(self._job.data.pipeline, training.instead, self._ranks)
        log_pipeline(self._log, used)
        batches = endless(training)
        self._run(batches, self._schedule.num_warmup_batches, None)
        # Of the one epoch that is logged: readers divide it by the epoch's time.
        self._log.event("train_samples", self._schedule.num_batches * global_batch_size(self._job))
        self._ranks.barrier()
        self._log.start("epoch_start", epoch_num=1)
        start = time.monotonic()
        progress = Progress(self._log, global_batch_size(self._job), 1, self._schedule.num_batches)
        step_times_s, data_wait_s = self._run(batches, self._schedule.num_batches, progress)
        self._ranks.barrier()
        elapsed_s = time.monotonic() - start
        self._log.stop("epoch_stop", epoch_num=1)
        self._log.event("tracked_stats", progress.whole(data_wait_s), epoch_num=1, of="epoch")
        mean_wait_s = self._ranks.sum([data_wait_s])[0] / self._job.num_ranks
        return summary(self._job, used, elapsed_s, mean_wait_s, step_times_s)

    def _run(
        self, batches: Iterator[Batch], num_batches: int, progress: Optional[Progress]
    ) -> Tuple[List[float], float]:
        """Train `num_batches` steps to their end. Returns seconds: of each turn of the loop, of waiting for data."""
        pace = Pace()
        waited_s = 0.0
        times_s: List[float] = []
        begun = time.monotonic()
        for step in range(1, num_batches + 1):
            taken = [next(batches) for _ in range(self._accumulation)]
            waited_s += time.monotonic() - begun
            pace.after(self._learner.train(taken))
            now = time.monotonic()
            times_s.append(now - begun)
            begun = now
            if progress is not None:
                progress.show(step - pace.num_pending)
        self._learner.wait()
        return times_s, waited_s


def endless(training: Training) -> Iterator[Batch]:
    """Batches of epoch after epoch."""
    epoch = 0
    while True:
        epoch += 1
        yield from training.epoch(epoch)


def summary(
    job: TrainingJob, used: Used, elapsed_s: float, data_wait_s: float, step_times_s: Sequence[float]
) -> Dict[str, Any]:
    """The JSON object of `files.result`: `samples_per_s` over all ranks; step times are rank 0's, seconds; `pipeline`
    is the one that was asked for, `pipeline_used` the one that gave the images."""
    global_batch = global_batch_size(job)
    ordered = sorted(step_times_s)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": job.kind,
        "job_id": job.job_id,
        "model": job.model.name,
        "dtype": job.model.dtype,
        "layout": job.model.layout,
        "image_px": job.data.image_px,
        "pipeline": job.data.pipeline,
        "pipeline_used": used.name,
        "pipeline_reason": used.reason or None,
        "num_ranks": job.num_ranks,
        "batch_per_rank": job.schedule.batch_per_rank,
        "global_batch_size": global_batch,
        "num_batches": job.schedule.num_batches,
        "num_warmup_batches": job.schedule.num_warmup_batches,
        "elapsed_s": elapsed_s,
        "samples_per_s": job.schedule.num_batches * global_batch / elapsed_s,
        "data_wait_share": data_wait_s / elapsed_s,
        "step_time_median_s": ordered[len(ordered) // 2],
        "step_time_p95_s": ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
        "step_time_max_s": ordered[-1],
    }
