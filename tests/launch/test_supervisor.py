"""The supervisor, with real processes: what ends, why, and that nothing is left."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlbench.launch.supervisor import EndedBy, Limits, Outcome, supervise
from mlbench.worker import processes

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PATH": os.defpath}
# A rank stand-in as bad as they come: a session of its own, forked twice, and TERM ignored by all three.
STUBBORN = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 300 & sleep 300\" &); touch {ready}; sleep 300; sleep 300"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A mark of this test alone; whatever still carries it at the end is ended, so that a failure stays one."""
    name = f"test-{os.getpid()}-{tmp_path.name}"
    yield name
    processes.end(lambda: processes.find(name), 0.0)


def run(tmp_path: Path, mark: str, command: str, limits: Limits | None = None, **more: object) -> Outcome:
    return supervise(
        ["sh", "-c", command],
        environment=ENVIRONMENT,
        mark=mark,
        cwd=tmp_path,
        log=tmp_path / "launcher.log",
        limits=limits or Limits(time_s=20, term_grace_s=0.4),
        poll_s=0.05,
        **more,  # type: ignore[arg-type]
    )


def test_supervise_command_ends_well_outcome_is_exited_zero(tmp_path: Path, mark: str) -> None:
    outcome = run(tmp_path, mark, "echo out; echo err >&2; echo job=$MLBENCH_JOB; env | wc -l")
    assert outcome.succeeded
    assert (outcome.strays, outcome.left) == ((), ())
    assert (tmp_path / "launcher.log").read_text().startswith(f"out\nerr\njob={mark}\n")


def test_supervise_environment_is_only_what_is_given(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not show")
    outcome = supervise(
        ["env"],
        environment=ENVIRONMENT,
        mark=mark,
        cwd=tmp_path,
        log=tmp_path / "log",
        limits=Limits(time_s=20),
    )
    assert outcome.succeeded
    assert sorted((tmp_path / "log").read_text().split()) == sorted([f"PATH={os.defpath}", f"MLBENCH_JOB={mark}"])


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -KILL $$", 137)])
def test_supervise_command_fails_outcome_has_the_status(tmp_path: Path, mark: str, command: str, status: int) -> None:
    outcome = run(tmp_path, mark, command)
    assert (outcome.ended_by, outcome.exit_status) == (EndedBy.exited, status)
    assert not outcome.succeeded


def test_supervise_program_missing_is_not_started(tmp_path: Path, mark: str) -> None:
    outcome = supervise(
        ["/no/such/horovodrun"],
        environment=ENVIRONMENT,
        mark=mark,
        cwd=tmp_path,
        log=tmp_path / "log",
        limits=Limits(time_s=20),
    )
    assert outcome.ended_by is EndedBy.not_started
    assert outcome.note == "/no/such/horovodrun: No such file or directory"


def test_supervise_log_cannot_be_opened_is_not_started(tmp_path: Path, mark: str) -> None:
    (tmp_path / "launcher.log").mkdir()
    outcome = run(tmp_path, mark, "true")
    assert outcome.ended_by is EndedBy.not_started
    assert "launcher.log: Is a directory" in str(outcome.note)


@pytest.mark.slow
def test_supervise_launcher_leaves_a_child_it_is_ended_and_named(tmp_path: Path, mark: str) -> None:
    outcome = run(tmp_path, mark, "setsid sleep 300 & exit 0")
    assert outcome.ended_by is EndedBy.exited
    assert [stray.partition(" ")[2] for stray in outcome.strays] == ["sleep 300"]
    assert processes.find(mark) == []


@pytest.mark.slow
def test_supervise_marked_process_elsewhere_is_ended_too(tmp_path: Path, mark: str) -> None:
    """Not a descendant of the supervisor: started here, as a rank that another daemon starts would be."""
    with subprocess.Popen(["sleep", "300"], env={**ENVIRONMENT, "MLBENCH_JOB": mark}) as elsewhere:
        outcome = run(tmp_path, mark, "exit 0")
        assert elsewhere.wait(timeout=5) == -signal.SIGTERM
    assert outcome.strays == (f"{elsewhere.pid} sleep 300",)


@pytest.mark.slow
def test_supervise_time_limit_ends_the_stubborn_tree(tmp_path: Path, mark: str) -> None:
    began = time.monotonic()
    outcome = run(tmp_path, mark, STUBBORN.format(ready="ready"), Limits(time_s=1, term_grace_s=0.6))
    assert outcome.ended_by is EndedBy.timeout
    assert (tmp_path / "ready").exists()
    assert len(outcome.strays) >= 3, "launcher, session leader and its children needed KILL"
    assert outcome.left == ()
    assert processes.find(mark) == []
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_supervise_launcher_obeys_term_its_status_is_known(tmp_path: Path, mark: str) -> None:
    outcome = run(tmp_path, mark, "trap 'exit 9' TERM; sleep 300 & wait", Limits(time_s=0.5, term_grace_s=5))
    assert (outcome.ended_by, outcome.exit_status) == (EndedBy.timeout, 9)


@pytest.mark.slow
def test_supervise_no_new_record_tells_the_last_whole_one(tmp_path: Path, mark: str) -> None:
    record = tmp_path / "result.txt"
    limits = Limits(time_s=20, no_record_s=1.0, term_grace_s=0.4, watch=record)
    outcome = run(
        tmp_path,
        mark,
        f"for i in 1 2 3; do echo record $i >> {record}; sleep 0.6; done; printf torn >> {record}; sleep 9",
        limits,
    )
    assert outcome.ended_by is EndedBy.no_record
    assert outcome.last_record == "record 3"
    assert 1.8 < outcome.seconds < 9


@pytest.mark.slow
def test_supervise_records_keep_coming_no_limit_is_hit(tmp_path: Path, mark: str) -> None:
    record = tmp_path / "result.txt"
    limits = Limits(time_s=20, no_record_s=1.0, watch=record)
    assert run(tmp_path, mark, f"for i in 1 2 3 4; do echo $i >> {record}; sleep 0.5; done", limits).succeeded


@pytest.mark.slow
def test_supervise_clock_limits_count_from_when_the_file_appears(tmp_path: Path, mark: str) -> None:
    limits = Limits(time_s=1.5, term_grace_s=0.4)
    outcome = run(tmp_path, mark, "sleep 2; touch started; sleep 300", limits, clock=tmp_path / "started")
    assert outcome.ended_by is EndedBy.timeout
    assert outcome.seconds > 3.0


@pytest.mark.slow
def test_supervise_interrupt_stops_the_tree_and_returns(tmp_path: Path, mark: str) -> None:
    def interrupt() -> None:
        if (tmp_path / "ready").exists():
            raise KeyboardInterrupt

    outcome = run(tmp_path, mark, STUBBORN.format(ready="ready"), on_poll=interrupt)
    assert outcome.ended_by is EndedBy.interrupted
    assert processes.find(mark) == []


@pytest.mark.slow
def test_supervise_second_interrupt_skips_the_grace(tmp_path: Path, mark: str) -> None:
    program = (
        "import sys; from pathlib import Path; from mlbench.launch.supervisor import *\n"
        f"supervise(['sh', '-c', '''{STUBBORN.format(ready='ready')}'''], environment={ENVIRONMENT!r}, mark={mark!r},\n"
        f"  cwd=Path({str(tmp_path)!r}), log=Path('{tmp_path}/log'), limits=Limits(time_s=60, term_grace_s=50))\n"
        "print('over')"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    wait_for(tmp_path / "ready")
    process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert process.poll() is None, "the grace is 50 s"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=15)
    assert output == b"over\n"
    assert processes.find(mark) == []


@pytest.mark.slow
def test_supervise_poll_raises_the_tree_ends_before_the_exception_leaves(tmp_path: Path, mark: str) -> None:
    def fail() -> None:
        if (tmp_path / "ready").exists():
            raise ValueError("progress went wrong")

    with pytest.raises(ValueError, match="progress went wrong"):
        run(tmp_path, mark, STUBBORN.format(ready="ready"), on_poll=fail)
    assert processes.find(mark) == []


@pytest.mark.slow
def test_supervise_supervisor_killed_tree_is_ended_from_here(tmp_path: Path, mark: str) -> None:
    killed = []

    def kill_supervisor() -> None:
        if (tmp_path / "ready").exists() and not killed:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for pid in map(int, children):
                if b"supervisor_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    outcome = run(tmp_path, mark, STUBBORN.format(ready="ready"), on_poll=kill_supervisor)
    assert outcome.ended_by is EndedBy.supervisor_lost
    assert outcome.left == ()
    assert processes.find(mark) == []


@pytest.mark.parametrize(
    ("afterwards", "left"),
    [
        ('{"found": ["9 rank"], "killed": [], "left": []}', ()),
        ('{"found": [], "killed": [], "left": ["9 rank"]}', ("9 rank",)),
        ("no JSON", ("not proven: echo no JSON: exit status 0",)),
        ("", ("not proven: echo : exit status 0",)),
    ],
)
def test_supervise_afterwards_silence_is_not_proof(
    tmp_path: Path, mark: str, afterwards: str, left: tuple[str, ...]
) -> None:
    outcome = run(tmp_path, mark, "true", afterwards=[["echo", afterwards]])
    assert outcome.left == left


def test_supervise_afterwards_program_missing_is_not_proof(tmp_path: Path, mark: str) -> None:
    outcome = run(tmp_path, mark, "true", afterwards=[["/no/such/ssh", "host"]])
    assert outcome.left == ("not proven: /no/such/ssh host: No such file or directory",)


def wait_for(path: Path, limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def fake_mlbench(tmp_path: Path, mark: str) -> subprocess.Popen[bytes]:
    """A series of launches without end, as mlbench makes them, from a process that can be killed."""
    program = f"""
import itertools
from pathlib import Path
from mlbench.launch.supervisor import Limits, supervise
folder = Path({str(tmp_path)!r})
for number in itertools.count():
    supervise(["sh", "-c", {STUBBORN.format(ready="ready_$N")!r}], environment={{**{ENVIRONMENT!r}, "N": str(number)}},
              mark={mark!r}, cwd=folder, log=folder / "log", limits=Limits(time_s=0.4, term_grace_s=0.1))
"""
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, start_new_session=True)


@pytest.mark.slow
def test_sigkill_of_mlbench_at_random_moments_no_process_left(tmp_path: Path, mark: str) -> None:
    """30 kills, spread over starting, running, and ending of repetitions; the seed makes a failure repeatable."""
    moments = random.Random(20201101)
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        this_mark = f"{mark}-{number}"
        mlbench = fake_mlbench(folder, this_mark)
        time.sleep(moments.uniform(0.05, 1.6))
        mlbench.kill()
        mlbench.wait()
        deadline = time.monotonic() + 10
        while processes.find(this_mark) or supervisors_of(mlbench.pid):
            assert time.monotonic() < deadline, f"kill {number}: {processes.find(this_mark)}"
            time.sleep(0.05)


def supervisors_of(pid: int) -> list[int]:
    """Supervisors that were started by this (dead) process: its pid is their argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"mlbench.launch.supervisor_main" in words and str(pid).encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_supervise_waiting_costs_next_to_nothing(tmp_path: Path, mark: str) -> None:
    """Processor time of supervisor and waiting, for a launch of 5 s: less than 4 % of one core, start included."""
    before = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(tmp_path, mark, "sleep 5").succeeded
    after = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
    assert used_s < 0.2
