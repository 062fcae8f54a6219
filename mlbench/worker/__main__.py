"""One rank of a job: `python -m mlbench.worker job.json`, or `python -m mlbench_worker job.json` when mounted alone.

Status 0: the job ended and `run_stop` is in the log (with its own status: `success` or `aborted`). Status 2: the job
cannot be run as it stands, one sentence on stderr, no `init_start` in the log. Status 1: anything else; data that are
not what the job says, or a full disk, are one sentence, the rest is a traceback on stderr.
"""

from __future__ import annotations

import sys
from typing import List

from . import ranks as ranks_module
from .allreduce import run as run_allreduce
from .job import Job, JobError, load
from .log import RunLog
from .pipelines.base import module_of
from .pipelines.records import DataFault
from .recordio import RecordFault
from .runtime import context, import_mxnet
from .throughput import run as run_throughput
from .train import CountError
from .train import run as run_training
from .validate import check, check_types


def run(job: Job) -> None:
    """Run a job as the rank that the environment says. Raises JobError before anything has begun."""
    if job.kind == "allreduce":
        check_types(job, "job")
        run_allreduce(job, ranks_module.current(job.num_ranks))
        return
    checked = check(job)
    rank = ranks_module.current(job.num_ranks)
    module_of(checked)
    context(import_mxnet(), job.device, rank.local_rank)
    log = RunLog(job.files.mllog if rank.rank == 0 else None)
    ranks = ranks_module.connect(rank)
    (run_training if job.kind == "train" else run_throughput)(checked, ranks, log)
    ranks.close()
    log.close()


def main(arguments: List[str]) -> int:
    """Returns the status of the process."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m mlbench.worker job.json\n")
        return 2
    try:
        run(load(arguments[0]))
    except JobError as error:
        sys.stderr.write("%s\n" % error)
        return 2
    except (RecordFault, DataFault, CountError, OSError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
