"""Running a command line so that nothing of it survives: the API for whoever launches.

    outcome = supervise(
        launcher.argv(launch),
        environment=launcher.environment(launch),
        mark=launch.mark, cwd=launch.cwd, log=launch.log,
        limits=Limits(time_s=600, no_record_s=120, term_grace_s=10, watch=attempt.mllog),
        on_poll=progress.update,          # called about every `poll_s` in this process; may raise to stop
    )
    outcome.ended_by is EndedBy.exited and outcome.exit_status == 0
    outcome.left                           # must be empty before the next repetition starts

`run_launch(launcher, launch, ...)` does the same for a Launcher and adds what it wants done on other hosts afterwards.

Ctrl-C (KeyboardInterrupt) while waiting stops the tree with TERM, and after `term_grace_s` with KILL, and returns
`EndedBy.interrupted`; a second Ctrl-C skips the grace. An exception raised by `on_poll` stops the tree in the same way
and is raised again once nothing is left. If this process is killed, with KILL too, a separate small process (see
supervisor_main.py) ends the tree. How the launcher ended is all this module tells; whether the *run* was good is read
from its own records.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlbench.launch.base import Launch, Launcher
from mlbench.launch.command import PACKAGE_ROOT
from mlbench.launch.supervisor_main import Order
from mlbench.worker import processes


@runtime_checkable
class Queued(Protocol):
    """A launcher that hands a script to a scheduler."""

    def files(self, launch: Launch) -> dict[Path, str]:
        """Path -> text, to be written before `argv` is run; pure."""
        ...

    def clock(self, launch: Launch) -> Path:
        """Appears when the job starts: time in the queue counts for no limit."""
        ...


class EndedBy(Enum):
    """Why the launch is over."""

    exited = "exited"
    """By itself, with `exit_status`."""
    timeout = "timeout"
    """The time limit."""
    no_record = "no_record"
    """The watched file did not grow for too long."""
    interrupted = "interrupted"
    """Ctrl-C, or the caller's wish."""
    not_started = "not_started"
    """The command could not be executed or the log not be opened; `note` says why."""
    supervisor_lost = "supervisor_lost"
    """The supervisor itself was killed; the tree was ended from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a launch is stopped. `no_record_s` needs `watch`, the file that must keep growing; null: no such limit."""

    time_s: float
    no_record_s: float | None = None
    term_grace_s: float = 10.0
    watch: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended. Process lists hold `pid command line`.

    `exit_status` is the launcher's, as a shell shows it (128 + signal number when a signal ended it), None when it had
    to be stopped and KILL was needed before it could be read, or was never started. `seconds` runs from start to the
    launcher's end or the decision to stop it. `strays` were alive after the launcher had ended by itself, or needed
    KILL; all of them were ended. `left` could not be ended or not be proven gone. `last_record` is the last whole line
    of the watched file, unchecked and unescaped."""

    ended_by: EndedBy
    exit_status: int | None
    seconds: float
    strays: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    last_record: str | None = None
    note: str | None = None

    @property
    def succeeded(self) -> bool:
        """The launcher ended by itself with status 0. Says nothing yet about the run."""
        return self.ended_by is EndedBy.exited and self.exit_status == 0


def supervise(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    mark: str,
    cwd: Path,
    log: Path,
    limits: Limits,
    on_poll: Callable[[], None] | None = None,
    poll_s: float = 0.2,
    clock: Path | None = None,
    afterwards: Sequence[Sequence[str]] = (),
) -> Outcome:
    """Run `argv` to its end; nothing of it is alive when this returns, or `Outcome.left` names it.

    `environment` is the whole environment; MLBENCH_JOB=`mark` is added. Output goes to `log` (appended). `afterwards`
    are commands run when the tree is gone, `clock` a file from whose appearance the limits count; see
    supervisor_main.Order.
    """
    order = Order(
        argv=[str(word) for word in argv],
        environment={**environment, processes.MARK_VARIABLE: mark},
        mark=mark,
        cwd=str(cwd),
        log=str(log),
        time_limit_s=limits.time_s,
        no_record_s=limits.no_record_s if limits.watch is not None else None,
        term_grace_s=limits.term_grace_s,
        watch=str(limits.watch) if limits.watch is not None else None,
        clock=str(clock) if clock is not None else None,
        afterwards=[[str(word) for word in command] for command in afterwards],
    )
    ours, theirs = socket.socketpair()
    with theirs:
        process = _start(theirs)
    try:
        # Closed before the wait: a supervisor that lost us ends the tree and then itself.
        with ours:
            return _follow(ours, process, order, on_poll, poll_s)
    finally:
        process.wait()


def run_launch(
    launcher: Launcher,
    launch: Launch,
    *,
    watch: Path | None = None,
    no_record_s: float | None = None,
    term_grace_s: float = 10.0,
    on_poll: Callable[[], None] | None = None,
    poll_s: float = 0.2,
) -> Outcome:
    """`supervise` for a launcher: its argv, its environment, its script, and its proof that other hosts are clean."""
    queued = launcher if isinstance(launcher, Queued) else None
    for path, text in (queued.files(launch) if queued is not None else {}).items():
        path.write_text(text, encoding="utf-8")
    return supervise(
        launcher.argv(launch),
        environment=launcher.environment(launch),
        mark=launch.mark,
        cwd=launch.cwd,
        log=launch.log,
        limits=Limits(time_s=launch.time_limit_s, no_record_s=no_record_s, term_grace_s=term_grace_s, watch=watch),
        on_poll=on_poll,
        poll_s=poll_s,
        clock=queued.clock(launch) if queued is not None else None,
        afterwards=launcher.afterwards(launch),
    )


def _start(control: socket.socket) -> subprocess.Popen[bytes]:
    """The supervisor in a session of its own: Ctrl-C on the terminal reaches mlbench alone."""
    return subprocess.Popen(
        # -S: no site-packages, so that it starts in a few hundredths of a second.
        [sys.executable, "-S", "-m", "mlbench.launch.supervisor_main", str(os.getpid())],
        env={"PYTHONPATH": str(PACKAGE_ROOT), "PYTHONSAFEPATH": "1", "PATH": os.defpath},
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _follow(
    control: socket.socket,
    process: subprocess.Popen[bytes],
    order: Order,
    on_poll: Callable[[], None] | None,
    poll_s: float,
) -> Outcome:
    """Wait for the report; b"" stands for a supervisor that is gone. Nothing leaves before the tree has ended."""
    report: bytes | None = None
    try:
        _say(control, asdict(order))
        report = _receive(control, on_poll, poll_s)
    except KeyboardInterrupt:
        report = _stop(control)
    finally:
        if report is None:  # on_poll raised: its exception goes on once nothing is left
            _stop(control)
    return _read_report(json.loads(report)) if report else _clean_up_alone(process, order)


def _receive(control: socket.socket, on_poll: Callable[[], None] | None = None, poll_s: float = 1.0) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        if on_poll is not None:
            on_poll()
        ready, _, _ = select.select([control], [], [], poll_s)
        if not ready:
            continue
        try:
            chunk = control.recv(65536)
        except ConnectionError:
            return b""
        if not chunk:
            return b""
        received += chunk
    return received


def _stop(control: socket.socket) -> bytes:
    """Have the tree ended; interrupted once more, without grace."""
    _say(control, {"stop": True})
    while True:
        try:
            return _receive(control)
        except KeyboardInterrupt:
            _say(control, {"kill": True})


def _say(control: socket.socket, message: object) -> None:
    with contextlib.suppress(OSError):  # a supervisor that is gone is noticed when reading
        control.sendall(json.dumps(message).encode() + b"\n")


def _read_report(report: dict[str, object]) -> Outcome:
    status, seconds = report["exit_status"], report["seconds"]
    record, note = report["last_record"], report["note"]
    assert status is None or isinstance(status, int)
    assert isinstance(seconds, float)
    ended_by = str(report["ended_by"])
    return Outcome(
        # Told to end by a signal, not by us: for the caller that is an interruption too.
        ended_by=EndedBy.interrupted if ended_by == "orphaned" else EndedBy(ended_by),
        exit_status=status,
        seconds=seconds,
        strays=_texts(report["strays"]),
        left=_texts(report["left"]),
        last_record=None if record is None else str(record),
        note=None if note is None else str(note),
    )


def _texts(value: object) -> tuple[str, ...]:
    assert isinstance(value, list)
    return tuple(str(item) for item in value)


def _clean_up_alone(process: subprocess.Popen[bytes], order: Order) -> Outcome:
    """The supervisor was killed: its launcher died with it; the rest is found by the mark."""
    process.wait()
    ended = processes.end(lambda: processes.find(order.mark), order.term_grace_s)
    return Outcome(
        ended_by=EndedBy.supervisor_lost,
        exit_status=None,
        seconds=0.0,
        strays=tuple(ended.found),
        left=tuple(ended.left),
        note=f"the supervising process ended with status {process.returncode}",
    )
