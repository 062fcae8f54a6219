"""Which rank this process is, and what ranks do together.

The rank comes from the environment of whoever started the process, and from nowhere else. One rank needs no Horovod;
more than one talk through it. Standard library only at import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

from .job import JobError

LAUNCHER_VARIABLES: Tuple[Tuple[str, str, str], ...] = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""(rank, size, local rank) of horovodrun, Open MPI, MPICH and Intel MPI, srun; the first that is set counts. srun comes
last because mpirun inside an allocation leaves its variables behind, and only a step has SLURM_STEP_NUM_TASKS."""


@dataclass(frozen=True)
class Rank:
    """`rank` of `size`, counted from 0; `local_rank` counts on this host."""

    rank: int
    size: int
    local_rank: int


def from_environment(environment: Mapping[str, str], num_ranks: int) -> Rank:
    """The rank that the launcher gave this process. Raises JobError when it does not fit `num_ranks` of the job."""
    for rank_name, size_name, local_name in LAUNCHER_VARIABLES:
        if rank_name not in environment or size_name not in environment:
            continue
        try:
            found = Rank(
                int(environment[rank_name]), int(environment[size_name]), int(environment.get(local_name) or "0")
            )
        except ValueError:
            raise JobError("environment: %s, %s or %s is not a number" % (rank_name, size_name, local_name))
        if found.size != num_ranks or not 0 <= found.rank < found.size:
            raise JobError(
                "environment: %s=%d and %s=%d, but job.num_ranks is %d; start as many ranks as the job says"
                % (rank_name, found.rank, size_name, found.size, num_ranks)
            )
        return found
    if num_ranks != 1:
        raise JobError(
            "environment: no launcher says which rank this is, but job.num_ranks is %d; start it with horovodrun, "
            "mpirun or srun" % num_ranks
        )
    return Rank(0, 1, 0)


class Alone:
    """One rank: nobody to talk to."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def barrier(self) -> None:
        """Return when every rank is here."""

    def sum(self, values: Sequence[float]) -> List[float]:
        """Sum over all ranks, element by element, exact for whole numbers up to 2**53."""
        return list(values)

    def broadcast(self, arrays: Iterable[Any]) -> None:
        """Give every rank the arrays of rank 0."""

    def sum_gradient(self, gradient: Any, index: int) -> None:
        """Replace a gradient by its sum over all ranks; returns at once, MXNet's engine keeps the order."""

    def close(self) -> None:
        """No more talk."""


class Together(Alone):
    """Ranks that talk through Horovod."""

    def __init__(self, rank: Rank) -> None:
        super().__init__(rank)
        import horovod.mxnet as hvd
        import numpy
        from mxnet import nd

        self._hvd = hvd
        self._nd = nd
        self._numpy = numpy
        hvd.init()
        if (hvd.rank(), hvd.size()) != (rank.rank, rank.size):
            raise JobError(
                "environment: rank %d of %d, but Horovod says %d of %d" % (rank.rank, rank.size, hvd.rank(), hvd.size())
            )

    def barrier(self) -> None:
        # A sum that everybody waits for: Horovod's own barrier is not in every version that containers carry.
        self.sum([0.0])

    def sum(self, values: Sequence[float]) -> List[float]:
        mine = self._nd.array(self._numpy.asarray(values, dtype="float64"), dtype="float64")
        total = self._hvd.allreduce(mine, average=False, name="mlbench.sum.%d" % len(values))
        return [float(value) for value in total.asnumpy()]

    def broadcast(self, arrays: Iterable[Any]) -> None:
        for index, array in enumerate(arrays):
            self._hvd.broadcast_(array, root_rank=0, name="mlbench.broadcast.%d" % index)

    def sum_gradient(self, gradient: Any, index: int) -> None:
        # Backward makes the last layers' gradients first, so that is also the order of their priority.
        self._hvd.allreduce_(gradient, average=False, name="mlbench.gradient.%d" % index, priority=-index)

    def close(self) -> None:
        self._hvd.shutdown()


def connect(rank: Rank) -> Alone:
    """The way to the other ranks. Raises JobError when Horovod is needed and not there."""
    if rank.size == 1:
        return Alone(rank)
    try:
        return Together(rank)
    except ImportError as error:
        raise JobError("horovod.mxnet cannot be imported (%s), but the job has %d ranks" % (error, rank.size))


def current(num_ranks: int, environment: Optional[Mapping[str, str]] = None) -> Rank:
    """The rank of this process; reads os.environ unless told otherwise."""
    return from_environment(os.environ if environment is None else environment, num_ranks)
