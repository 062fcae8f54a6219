"""MLLOG records of one run, on a stream that nobody else writes to.

Rank 0 writes; on every other rank the same calls do nothing. Each record is one write of one whole line to the file, so
it is there when the call returns, and a full disk ends the run instead of being passed over. Records are made by
mlperf_logging's own `mllog` (standard library only; the launcher puts it on PYTHONPATH).
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any, Optional, Sequence

from .job import JobError, Optimizer
from .pipelines.used import Used
from .validate import TrainingJob


class _LineFile(logging.Handler):
    """Writes each message by one system call and lets its errors out; logging's own handlers print and go on."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._cause: Optional[Exception] = None

    def emit(self, record: logging.LogRecord) -> None:
        # mllog catches what is raised here and complains through this very handler; so the cause is raised again.
        if self._cause is None:
            self._cause = self._write(record)
        if self._cause is not None:
            raise self._cause

    def _write(self, record: logging.LogRecord) -> Optional[Exception]:
        """Write one line. Returns what kept it from being written."""
        if record.levelno > logging.INFO:
            return ValueError(record.getMessage().strip())
        line = (record.getMessage() + "\n").encode("utf-8")
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            return error
        if written != len(line):
            return OSError("the MLLOG file took %d of %d bytes of a record" % (written, len(line)))
        return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()


class RunLog:
    """The log of one rank. Metadata names the file inside this folder and the line that logged."""

    def __init__(self, path: Optional[str]) -> None:
        """`path` None: log nothing. Raises JobError when mllog is missing or the file cannot be opened."""
        self._mllog: Any = None
        self._handler: Optional[_LineFile] = None
        if path is None:
            return
        try:
            from mlperf_logging.mllog import mllog
        except ImportError as error:
            raise JobError("mlperf_logging cannot be imported (%s); put its folder on PYTHONPATH" % error)
        try:
            self._handler = _LineFile(path)
        except OSError as error:
            raise JobError("job.files.mllog: %s cannot be written (%s)" % (path, error.strerror))
        logger = logging.Logger("mlbench.mllog", logging.INFO)  # not getLogger: no one else may add to it
        logger.addHandler(self._handler)
        here = re.escape(os.path.dirname(os.path.abspath(__file__)))
        self._mllog = mllog.MLLogger(logger, default_stack_offset=2, root_dir=here)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._mllog is not None:
            self._mllog.event(key, value, metadata=metadata)

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._mllog is not None:
            self._mllog.start(key, value, metadata=metadata)

    def stop(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._mllog is not None:
            self._mllog.end(key, value, metadata=metadata)

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()


def log_submission(log: RunLog, job: TrainingJob) -> None:
    """The records ahead of `init_start`. `cache_clear` is what the cache helper proved, never more."""
    submission = job.submission
    if submission is not None:
        log.event("submission_benchmark", submission.benchmark)
        log.event("submission_org", submission.org)
        log.event("submission_division", submission.division)
        log.event("submission_status", submission.status)
        log.event("submission_platform", submission.platform)
    log.event("cache_clear", job.cache_clear)


def log_settings(log: RunLog, job: TrainingJob, global_batch_size: int, tensors: Sequence[str]) -> None:
    """Seed, sizes, hyperparameters and initialised tensors: the records between `init_start` and `init_stop`.

    Every key of the rule files of rulesets 0.7.0 to 4.0.0 is here; `quality_target` tells readers which target an open
    run had."""
    log.event("seed", job.seed)
    log.event("global_batch_size", global_batch_size)
    log.event("gradient_accumulation_steps", job.optimizer.gradient_accumulation_steps)
    log.event("quality_target", job.schedule.target_accuracy)
    log.event("model_bn_span", job.schedule.batch_per_rank)
    log_optimizer(log, job.optimizer)
    for tensor in tensors:
        log.event("weights_initialization", tensor=tensor)


def log_pipeline(log: RunLog, used: Used) -> None:
    """The input pipeline that the run really has, and why when it is not the one the job names."""
    if used.reason:
        log.event("input_pipeline", used.name, reason=used.reason)
    else:
        log.event("input_pipeline", used.name)


def log_optimizer(log: RunLog, optimizer: Optimizer) -> None:
    """Hyperparameters under the names of the optimizer in use, as the rule files want them."""
    name = optimizer.name
    prefix = name + "_opt_"
    log.event("opt_name", name)
    log.event(prefix + "base_learning_rate", optimizer.base_learning_rate)
    log.event(prefix + "end_learning_rate", optimizer.end_learning_rate)
    log.event(prefix + "learning_rate_decay_poly_power", optimizer.decay_power)
    log.event(prefix + "learning_rate_decay_steps", optimizer.decay_steps)
    log.event(prefix + "momentum", optimizer.momentum)
    log.event(prefix + "weight_decay", optimizer.weight_decay)
    log.event("label_smoothing", optimizer.label_smoothing)
    if name == "lars":
        log.event("lars_epsilon", optimizer.lars_epsilon)
        log.event("lars_opt_learning_rate_warmup_epochs", optimizer.warmup_epochs)
    else:
        log.event("opt_learning_rate_warmup_epochs", optimizer.warmup_epochs)
