"""One rank of a job: `python -m mlbench.worker job.json`, or `python -m mlbench_worker job.json` when mounted alone.

Status 0: the job ended and `run_stop` is in the log (with its own status: `success` or `aborted`). Status 2: the job
cannot be run as it stands, one sentence on stderr, no `init_start` in the log. Status 1: anything else, with a
traceback on stderr.
"""

from __future__ import annotations

import sys
from typing import List

from . import ranks as ranks_module
from .job import Job, JobError, load
from .log import RunLog
from .validate import check, check_types


def run(job: Job) -> None:
    """Run a job as the rank that the environment says. Raises JobError before anything has begun."""
    if job.kind == "allreduce":
        run_allreduce(job)
        return
    checked = check(job)
    rank = ranks_module.current(job.num_ranks)
    from .runtime import import_mxnet

    import_mxnet()
    log = RunLog(job.files.mllog if rank.rank == 0 else None)
    ranks = ranks_module.connect(rank)
    if job.kind == "train":
        from .train import run as run_kind
    else:
        from .throughput import run as run_kind
    run_kind(checked, ranks, log)
    ranks.close()
    log.close()


def run_allreduce(job: Job) -> None:
    """The all-reduce benchmark; plain MPI needs no MXNet. Raises JobError."""
    check_types(job, "job")
    rank = ranks_module.current(job.num_ranks)
    from . import allreduce

    allreduce.run(job, rank)


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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
