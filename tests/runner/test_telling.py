"""Which log is shown after a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlbench.collect.runfolder import AttemptFolder
from mlbench.runner.telling import FirstFailure, first_failure, telling_log

# The ends of launcher logs as horovodrun 0.28.1 and Open MPI 4.1.4 wrote them here.
HOROVODRUN = """    raise RuntimeError('Horovod detected that one or more processes exited with non-zero '
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: 1
Exit code: 137

"""
OPEN_MPI = """--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[5471,1],1]
  Exit code:    3
--------------------------------------------------------------------------
"""
OPEN_MPI_SIGNAL = "mpirun noticed that process rank 1 with PID 0 on node node-a exited on signal 9 (Killed).\n"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path, False, 0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HOROVODRUN, FirstFailure(1, 137)),
        (OPEN_MPI, FirstFailure(1, 3)),
        (OPEN_MPI_SIGNAL, FirstFailure(1, 137)),
        ("srun: something else\n", None),
        ("", None),
    ],
    ids=["horovodrun", "mpirun", "mpirun signal", "unknown", "empty"],
)
def test_first_failure_is_read_from_the_launcher(
    folder: AttemptFolder, text: str, expected: FirstFailure | None
) -> None:
    folder.launcher_log.write_text(text)
    assert first_failure(folder.launcher_log) == expected


def test_first_failure_says_rank_and_signal() -> None:
    assert str(FirstFailure(1, 137)) == "rank 1 was the first to fail, with status 137 (SIGKILL)"


def test_telling_log_is_that_of_the_rank_that_failed_first(folder: AttemptFolder) -> None:
    folder.launcher_log.write_text(HOROVODRUN)
    folder.rank_log(0).write_text("horovod.common.exceptions.HorovodInternalError: connection reset by peer\n")
    folder.rank_log(1).write_text("Traceback (most recent call last):\nMemoryError\n")
    assert telling_log(folder) == folder.rank_log(1)


def test_telling_log_without_a_fault_in_the_ranks_is_the_launchers(folder: AttemptFolder) -> None:
    folder.launcher_log.write_text(OPEN_MPI_SIGNAL)
    folder.rank_log(0).write_text("decoding with 1 thread\n")
    assert telling_log(folder) == folder.launcher_log


def test_telling_log_of_silent_launcher_is_the_last_written(folder: AttemptFolder) -> None:
    folder.launcher_log.write_text("")
    for rank, when in ((0, 2000), (1, 1000)):
        folder.rank_log(rank).write_text("waiting\n")
        os.utime(folder.rank_log(rank), (when, when))
    assert telling_log(folder) == folder.rank_log(0)


def test_telling_log_of_nothing_is_none(folder: AttemptFolder) -> None:
    assert telling_log(folder) is None
