"""Workers of `data` verbs when somebody presses Ctrl-C: a terminal sends it to all of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench.dataset.parallel import GivenUp, Progress, _interrupts_held, count, no_report, run_all, run_threads

CODE = """
import sys, time
from mlbench.cli.main import run_command
import mlbench.cli.main as frame
from mlbench.dataset.parallel import count, no_report, run_all, run_threads

def work(number):
    time.sleep(0.2)
    count(1, 1)
    return number

if __name__ == "__main__":
    def dispatch(arguments):
        print("starting", flush=True)
        list(run_{kind}(work, range(500), 4, no_report))
        return 0
    frame.dispatch = dispatch
    sys.exit(run_command([]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all", "threads"])
@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3, 0.6, 2.0])
def test_run_interrupted_at_any_moment_ends_soon_with_one_line(tmp_path: Path, delay_s: float, kind: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(CODE.replace("{kind}", kind))
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background job ignores SIGINT, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, err = process.communicate(timeout=30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    assert (process.returncode, err) == (130, "mlbench: interrupted\n")


def test_interrupt_while_workers_start_comes_afterwards() -> None:
    reached = []

    def start() -> None:
        with _interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["the end of the block"]


@pytest.mark.parametrize("num_workers", [1, 3])
def test_run_threads_gives_every_result_and_progress(num_workers: int) -> None:
    seen: list[Progress] = []

    def work(number: int) -> int:
        count(1, number)
        return number * number

    results = run_threads(work, range(100), num_workers, seen.append)
    assert sorted(results) == [number * number for number in range(100)]
    assert seen[-1] == Progress(items=100, bytes=sum(range(100)))


def test_run_threads_left_early_ends_work_that_has_begun() -> None:
    gave_up = []

    def work(number: int) -> int:
        if number == 0:
            return number
        try:
            for _ in range(3000):
                time.sleep(0.01)
                count(1, 1)
        except GivenUp:
            gave_up.append(number)
            raise
        return number

    begun = time.monotonic()
    results = run_threads(work, range(50), 2, no_report)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]  # a generator
    assert time.monotonic() - begun < 10
    assert gave_up


def test_run_threads_error_of_a_worker_comes_to_the_caller() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise OSError("gone")
        return number

    with pytest.raises(OSError, match="gone"):
        list(run_threads(work, range(20), 2, no_report))


@pytest.mark.slow
def test_run_all_more_tasks_than_wait_at_once_gives_every_result() -> None:
    assert sorted(run_all(abs, range(-40, 0), 2, no_report)) == list(range(1, 41))
