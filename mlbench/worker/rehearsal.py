"""The rehearsal worker: a training log of the true form without any training, for trying a whole run set in seconds.

    python -I -S start.py rehearsal job.json --seconds 0.2 --epochs 35 [--fault NAME]

Settings come from the job, times from the real clock, the accuracy curve from nowhere: so the first record says
`rehearsal: true`, and nothing that reads the log may score or package it. One process plays every rank; each rank's
log is written all the same. `--fault` plays one of the accidents that a series must survive (see FAULTS).

Standard library only, valid under Python 3.8.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from typing import Any, List, Optional, Sequence

from .job import Job, JobError, Optimizer, Schedule, load

FAULTS = {
    "none": "ends well",
    "crash": "status 1 after epoch 3",
    "no_run_stop": "status 0 without run_stop",
    "hang": "writes nothing more after epoch 3 and never ends",
    "slow_init": "never gets as far as a record",
    "stubborn_child": "ends well, leaving behind a child in a session of its own that ignores TERM",
    "stubborn_hang": "hangs, ignores TERM, and has a child that does so too",
    "many_writers": "every rank writes its first records into the log at once",
    "aborted": "run_stop says aborted",
    "low_accuracy": "run_stop says success, the target was not reached",
    "disk_full": "the disk is full after epoch 3",
    "torn_line": "killed in the middle of writing a record",
}
FAULT_EPOCH = 3
_SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


class Log:
    """MLLOG records, each written by one system call. The key set is the one of the training worker."""

    def __init__(self, path: str) -> None:
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._line = 0

    def record(self, key: str, value: Any = None, kind: str = "POINT_IN_TIME", **metadata: Any) -> None:
        os.write(self._stream, self.text(key, value, kind, **metadata).encode())

    def text(self, key: str, value: Any = None, kind: str = "POINT_IN_TIME", **metadata: Any) -> str:
        self._line += 1
        place = {"file": "rehearsal.py", "lineno": self._line}
        place.update(metadata)
        fields = {
            "namespace": "",
            "time_ms": int(time.time() * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": place,
        }
        return ":::MLLOG " + json.dumps(fields) + "\n"

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        self.record(key, value, "INTERVAL_START", **metadata)

    def stop(self, key: str, value: Any = None, **metadata: Any) -> None:
        self.record(key, value, "INTERVAL_END", **metadata)

    def torn(self) -> None:
        """Half a record, without the line's end."""
        os.write(self._stream, self.text("eval_accuracy", 0.5)[:57].encode())

    def fill_disk(self) -> None:
        """From now on every write fails as on a full disk. Raises OSError with the first record."""
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, self._stream)


def log_settings(log: Log, job: Job) -> None:
    """Everything up to `init_stop`."""
    log.record("rehearsal", True)
    if job.submission is not None:
        log.record("submission_benchmark", job.submission.benchmark)
        log.record("submission_org", job.submission.org)
        log.record("submission_division", job.submission.division)
        log.record("submission_status", job.submission.status)
        log.record("submission_platform", job.submission.platform)
    log.record("cache_clear", job.cache_clear)
    log.start("init_start")
    log.record("seed", job.seed)
    if job.schedule is not None and job.optimizer is not None:
        log.record("global_batch_size", global_batch_size(job, job.schedule, job.optimizer))
        log.record("gradient_accumulation_steps", job.optimizer.gradient_accumulation_steps)
        log_optimizer(log, job.optimizer)
        log.record("quality_target", job.schedule.target_accuracy)
    log.stop("init_stop")


def global_batch_size(job: Job, schedule: Schedule, optimizer: Optimizer) -> int:
    return schedule.batch_per_rank * job.num_ranks * optimizer.gradient_accumulation_steps


def log_optimizer(log: Log, optimizer: Optimizer) -> None:
    name = optimizer.name
    prefix = "%s_opt_" % name
    log.record("opt_name", name)
    log.record(prefix + "base_learning_rate", optimizer.base_learning_rate)
    log.record(prefix + "end_learning_rate", optimizer.end_learning_rate)
    log.record(prefix + "learning_rate_decay_poly_power", optimizer.decay_power)
    log.record(prefix + "learning_rate_decay_steps", optimizer.decay_steps)
    log.record(prefix + "momentum", optimizer.momentum)
    log.record(prefix + "weight_decay", optimizer.weight_decay)
    if name == "lars":
        log.record("lars_epsilon", optimizer.lars_epsilon)
        log.record("lars_opt_learning_rate_warmup_epochs", optimizer.warmup_epochs)
    else:
        log.record("opt_learning_rate_warmup_epochs", optimizer.warmup_epochs)


def evaluates(schedule: Schedule, epoch: int, last: int) -> bool:
    due = epoch >= schedule.eval_offset and (epoch - schedule.eval_offset) % max(schedule.eval_period, 1) == 0
    return epoch == last or due


def accuracy_after(epoch: int, last: int, target: float, reaches: bool, rng: random.Random) -> float:
    """A curve that rises, and meets the target at the last epoch and not before."""
    if epoch == last and reaches:
        return round(min(target + rng.uniform(0.0005, 0.004), 0.9999), 6)
    return round(target * (0.98 - 0.9 * 0.8**epoch) - rng.uniform(0.0, 0.005), 6)


def play_fault(fault: str, log: Log) -> Optional[int]:
    """What happens after epoch 3: an exit status when the process is to end, None when it goes on."""
    if fault == "crash":
        print("RehearsalError: this is the crash that was asked for", file=sys.stderr, flush=True)
        return 1
    if fault == "torn_line":
        log.torn()
        return 137
    if fault == "disk_full":
        log.fill_disk()
    if fault == "stubborn_hang":
        subprocess.Popen([sys.executable, "-c", _SLEEPER], start_new_session=True)
        os.execv(sys.executable, [sys.executable, "-c", _SLEEPER])
    if fault == "hang":
        time.sleep(3600)
    return None


def train(log: Log, job: Job, seconds: float, num_epochs: int, fault: str) -> int:
    schedule, data = job.schedule, job.data
    if schedule is None or data is None:
        raise JobError("job: a rehearsal needs the sections schedule and data")
    rng = random.Random(job.seed)
    last = max(1, min(num_epochs, schedule.max_epochs))
    pause = seconds * rng.uniform(0.97, 1.03) / last
    reaches = fault not in ("aborted", "low_accuracy")
    log.start("run_start")
    log.record("train_samples", data.num_train)
    log.record("eval_samples", data.num_val)
    for epoch in range(1, last + 1):
        log.start("epoch_start", epoch_num=epoch)
        time.sleep(pause)
        log.stop("epoch_stop", epoch_num=epoch)
        if evaluates(schedule, epoch, last):
            log.start("eval_start", epoch_num=epoch)
            accuracy = accuracy_after(epoch, last, schedule.target_accuracy, reaches, rng)
            log.record("eval_accuracy", accuracy, epoch_num=epoch)
            log.stop("eval_stop", epoch_num=epoch)
        if epoch == min(FAULT_EPOCH, last):
            status = play_fault(fault, log)
            if status is not None:
                return status
    if fault == "no_run_stop":
        return 0
    log.stop("run_stop", status="aborted" if fault == "aborted" else "success", epoch_num=last)
    return 0


def throughput(log: Log, job: Job, seconds: float, fault: str) -> int:
    """A fixed number of batches as one block, without evaluation."""
    if job.schedule is None or job.optimizer is None:
        raise JobError("job: a rehearsal needs the sections schedule and optimizer")
    log.start("run_start")
    log.record("train_samples", job.schedule.num_batches * global_batch_size(job, job.schedule, job.optimizer))
    log.start("epoch_start", epoch_num=1)
    time.sleep(seconds)
    status = play_fault(fault, log)
    if status is not None:
        return status
    log.stop("epoch_stop", epoch_num=1)
    if fault == "no_run_stop":
        return 0
    log.stop("run_stop", status="aborted" if fault == "aborted" else "success", epoch_num=1)
    return 0


def write_at_once(job: Job) -> None:
    """Every other rank as a process of its own, all writing into rank 0's log, as 61 % of published logs were."""
    children = []
    for rank in range(1, max(job.num_ranks, 4)):
        pid = os.fork()
        if pid == 0:
            log = Log(job.files.mllog)
            for _ in range(50):
                log.start("init_start", rank=rank)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def write_rank_logs(job: Job) -> None:
    """One log a rank, as the ranks' parents write them; what is said from here on goes to that of rank 0."""
    for rank in reversed(range(job.num_ranks)):
        path = os.path.join(job.files.rank_log_dir, "rank_%d.log" % rank)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(log, b"rehearsal: rank %d of %d, no training\n" % (rank, job.num_ranks))
        if rank == 0:
            os.dup2(log, 1)
            os.dup2(log, 2)
        os.close(log)


def run(job: Job, seconds: float, num_epochs: int, fault: str) -> int:
    """Play one run. Returns the exit status."""
    write_rank_logs(job)
    if fault == "slow_init":
        time.sleep(3600)
    log = Log(job.files.mllog)
    log_settings(log, job)
    if fault == "many_writers":
        write_at_once(job)
    if fault == "stubborn_child":
        subprocess.Popen([sys.executable, "-c", _SLEEPER], start_new_session=True)
    if job.kind == "throughput":
        return throughput(log, job, seconds, fault)
    return train(log, job, seconds, num_epochs, fault)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="rehearsal")
    parser.add_argument("job")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--fault", choices=sorted(FAULTS), default="none")
    given = parser.parse_args(list(argv))
    try:
        return run(load(given.job), given.seconds, given.epochs, given.fault)
    except JobError as error:
        print("rehearsal: %s" % error, file=sys.stderr)
        return 2
    except OSError as error:
        print("OSError: cannot write the log (%s)" % error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    arguments: List[str] = sys.argv[1:]
    sys.exit(main(arguments))
