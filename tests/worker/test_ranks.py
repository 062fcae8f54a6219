"""The rank comes from the launcher's environment and must fit the job."""

from __future__ import annotations

import pytest

from mlbench.worker.job import JobError
from mlbench.worker.ranks import Alone, Rank, connect, from_environment


@pytest.mark.parametrize(
    "environment",
    [
        {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"},
    ],
    ids=["horovodrun", "openmpi", "mpich", "srun"],
)
def test_from_environment_each_launcher_is_understood(environment: dict[str, str]) -> None:
    assert from_environment(environment, 2) == Rank(1, 2, 1)


def test_from_environment_mpirun_in_an_allocation_is_not_taken_for_srun() -> None:
    environment = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "1",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    }
    assert from_environment(environment, 4) == Rank(3, 4, 1)


def test_from_environment_nothing_set_is_the_only_rank() -> None:
    assert from_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, 1) == Rank(0, 1, 0)


@pytest.mark.parametrize(
    ("environment", "num_ranks", "message"),
    [
        ({}, 2, "no launcher says which rank this is, but job.num_ranks is 2"),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "4"}, 2, "HOROVOD_SIZE=4, but job.num_ranks is 2"),
        ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "2"}, 2, "HOROVOD_RANK=2"),
        ({"HOROVOD_RANK": "one", "HOROVOD_SIZE": "2"}, 2, "is not a number"),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, 1, "job.num_ranks is 1"),
    ],
)
def test_from_environment_not_fitting_the_job_is_refused(
    environment: dict[str, str], num_ranks: int, message: str
) -> None:
    with pytest.raises(JobError, match=message):
        from_environment(environment, num_ranks)


def test_connect_one_rank_needs_nobody() -> None:
    alone = connect(Rank(0, 1, 0))
    assert type(alone) is Alone
    alone.barrier()
    assert alone.sum([3.0, 4.0]) == [3.0, 4.0]
