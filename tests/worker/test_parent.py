"""The rank's small parent, as a real process under real signals."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlbench.launch.command import ISLAND, parent_command
from mlbench.worker import parent, processes

STUBBORN = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 300 & sleep 300\" &); touch ready; sleep 300; sleep 300"


def python38() -> str | None:
    return os.environ.get("MLBENCH_PYTHON38") or next(
        (str(path) for path in Path.home().glob(".pyenv/versions/3.8*/bin/python3.8")), None
    )


@pytest.fixture(params=["this", pytest.param("3.8", marks=pytest.mark.python38)])
def python(request: pytest.FixtureRequest) -> str:
    found = sys.executable if request.param == "this" else python38()
    assert found is not None
    return found


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    name = f"parent-{os.getpid()}-{tmp_path.name}"
    yield name
    processes.end(lambda: processes.find(name), 0.0)


def start(python: str, folder: Path, mark: str, command: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        parent_command(python, ISLAND, folder, ("sh", "-c", command)),
        env={"PATH": os.defpath, "MLBENCH_JOB": mark, **variables},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


def status_of(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=20)
    return process.returncode


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def wait_gone(mark: str) -> None:
    deadline = time.monotonic() + 10
    while processes.find(mark):
        assert time.monotonic() < deadline, processes.find(mark)
        time.sleep(0.05)


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_parent_rank_ends_status_is_the_rank_s(
    python: str, tmp_path: Path, mark: str, command: str, status: int
) -> None:
    assert status_of(start(python, tmp_path, mark, command)) == status


def test_parent_output_goes_to_the_rank_s_own_file(python: str, tmp_path: Path, mark: str) -> None:
    process = start(python, tmp_path, mark, "echo out; echo err >&2", HOROVOD_RANK="3", OMPI_COMM_WORLD_RANK="9")
    _, errors = process.communicate(timeout=20)
    assert (tmp_path / "rank_3.log").read_text() == "out\nerr\n"
    assert errors == ""


def test_parent_program_missing_says_so_with_status_127(tmp_path: Path, mark: str) -> None:
    command = parent_command(sys.executable, ISLAND, tmp_path, ("/no/such/python",))
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (127, "/no/such/python: No such file or directory\n")


def test_parent_without_a_command_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(parent_command(sys.executable, ISLAND, tmp_path, ()), capture_output=True, text=True)
    assert done.returncode == 2
    assert "a command is needed after --" in done.stderr


@pytest.mark.slow
def test_parent_told_to_end_takes_the_stubborn_tree_along(python: str, tmp_path: Path, mark: str) -> None:
    process = start(python, tmp_path, mark, STUBBORN)
    wait_for(tmp_path / "ready")
    process.terminate()
    assert status_of(process) == 137, "the status is the rank's own: KILL ended it"
    assert processes.find(mark) == []


@pytest.mark.slow
def test_parent_launcher_killed_takes_the_stubborn_tree_along(python: str, tmp_path: Path, mark: str) -> None:
    """The launcher is a shell here; it is killed with KILL and can tell nobody."""
    command = shlex.join(parent_command(python, ISLAND, tmp_path, ("sh", "-c", STUBBORN)))
    launcher = subprocess.Popen(
        ["sh", "-c", f"{command} & wait"], env={"PATH": os.defpath, "MLBENCH_JOB": mark}, cwd=tmp_path
    )
    wait_for(tmp_path / "ready")
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_gone(mark)


@pytest.mark.slow
def test_parent_itself_killed_takes_the_rank_along(python: str, tmp_path: Path, mark: str) -> None:
    process = start(python, tmp_path, mark, "touch ready; exec sleep 300")
    wait_for(tmp_path / "ready")
    process.kill()
    status_of(process)
    wait_gone(mark)


@pytest.mark.slow
def test_parent_rank_leaves_a_daemon_it_is_ended_before_the_status_is_given(
    python: str, tmp_path: Path, mark: str
) -> None:
    assert status_of(start(python, tmp_path, mark, "(setsid sleep 300 &); exit 5")) == 5
    assert processes.find(mark) == []


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"HOROVOD_RANK": "2", "OMPI_COMM_WORLD_RANK": "5"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "5", "SLURM_PROCID": "0"}, 5),
        ({"SLURM_PROCID": "4"}, 4),
    ],
)
def test_rank_of_the_launcher_s_variable_counts(environment: dict[str, str], rank: int) -> None:
    assert parent.rank_of(environment) == rank


def test_processes_program_ends_what_carries_the_mark_and_prints_it(python: str, tmp_path: Path, mark: str) -> None:
    with subprocess.Popen(["sleep", "300"], env={"PATH": os.defpath, "MLBENCH_JOB": mark}) as stray:
        done = subprocess.run(
            [python, "-I", "-S", str(ISLAND / "processes.py"), mark], capture_output=True, text=True, timeout=20
        )
    assert done.returncode == 0
    assert done.stdout == f'{{"found": ["{stray.pid} sleep 300"], "killed": [], "left": []}}\n'


def test_processes_find_spares_this_process_and_its_ancestors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process as /proc shows it is that of its start, so the check is made in a child."""
    program = "from mlbench.worker import processes; print([p.pid for p in processes.find('spare-me')])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "MLBENCH_JOB": "spare-me"}, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_processes_send_to_a_number_taken_by_another_does_nothing() -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        seen = processes.read_process(other.pid)
        assert seen is not None
        earlier = processes.Process(other.pid, seen.parent, seen.start_ticks - 1, "sleep")
        processes.send(earlier, signal.SIGKILL)
        assert other.poll() is None
        processes.send(seen, signal.SIGKILL)
        assert other.wait(timeout=5) == -signal.SIGKILL
