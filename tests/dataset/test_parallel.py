"""Workers of `data` verbs when somebody presses Ctrl-C: a terminal sends it to all of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench.dataset.parallel import _interrupts_held

CODE = """
import sys, time
from mlbench.cli.main import run_command
import mlbench.cli.main as frame
from mlbench.dataset.parallel import no_report, run_all

def work(number):
    time.sleep(0.2)
    return number

if __name__ == "__main__":
    def dispatch(arguments):
        print("starting", flush=True)
        list(run_all(work, range(500), 4, no_report))
        return 0
    frame.dispatch = dispatch
    sys.exit(run_command([]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3, 0.6, 2.0])
def test_run_all_interrupted_at_any_moment_ends_soon_with_one_line(tmp_path: Path, delay_s: float) -> None:
    program = tmp_path / "program.py"
    program.write_text(CODE)
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
