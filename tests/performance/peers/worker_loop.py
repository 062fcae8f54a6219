"""The worker's own throughput measurement, with processor time taken at the same two moments as its wall time.

    python worker_loop.py job.json        one rank of a job of kind `throughput`; rank 0 prints one JSON object

Everything between is the worker's code: its learner, its input pipeline, its loop. Its clock starts and stops at the
barriers around the measured batches, and so do ours.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from mlbench.worker import ranks as ranks_module
from mlbench.worker.job import load
from mlbench.worker.log import RunLog
from mlbench.worker.pipelines.base import open_training
from mlbench.worker.step import Learner
from mlbench.worker.throughput import Measurement
from mlbench.worker.validate import check


class Marked:
    """The ranks, but each barrier notes the clock when it is passed."""

    def __init__(self, inner: ranks_module.Alone) -> None:
        self._inner = inner
        self.cpu_s: list[float] = []

    def barrier(self) -> None:
        self._inner.barrier()
        self.cpu_s.append(time.process_time())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def main() -> None:
    """Run the job as the rank that the environment says."""
    job = check(load(sys.argv[1]))
    rank = ranks_module.current(job.num_ranks)
    ranks = ranks_module.connect(rank)
    log = RunLog(job.files.mllog if rank.rank == 0 else None)
    learner = Learner(job, ranks)
    training = open_training(job, rank)
    marked: Any = Marked(ranks)
    try:
        result = Measurement(job, marked, log, learner).take(training)
    finally:
        training.close()
    begun, ended = marked.cpu_s
    if rank.rank == 0:
        amount = result["num_batches"] * result["global_batch_size"]
        cpu_s = (ended - begun) * rank.size
        value = {"wall_s": result["elapsed_s"], "cpu_s": cpu_s, "amount": amount}
        value["data_wait_share"] = result["data_wait_share"]
        print(json.dumps(value), flush=True)
    ranks.close()
    log.close()


if __name__ == "__main__":
    main()
