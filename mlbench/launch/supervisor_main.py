"""The supervisor's own process: starts one launcher, watches it, ends its whole tree; standard library only.

It outlives mlbench on purpose. Its standard input is a socket whose other end only mlbench holds: when mlbench is gone,
however it went, the socket closes and the tree is ended. It is a child subreaper, so a rank that makes a session of its
own, or forks twice, is still below it; processes elsewhere are found by MLBENCH_JOB in their environment.

On the socket, one JSON object a line. In: the `Order`, later `{"stop": true}` or `{"kill": true}`. Out: one
report, `{"ended_by", "exit_status", "seconds", "strays", "left", "last_record", "note"}`.

It sleeps until something happens, and looks at the watched file's size once a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from mlbench.worker import processes

_LOOK_INTERVAL_S = 1.0
_LAUNCHER_SHARE = 0.5
"""Of the grace, the part the launcher gets to end its ranks itself: mpirun tells the other hosts, sbatch cancels."""
_SETTLE_S = 1.0
"""What ends by itself this soon after the launcher (its helpers) is no stray."""
_TAIL_BYTES = 65536
_AFTERWARDS_LIMIT_S = 90.0
_SELECTOR_SIGNAL, _SELECTOR_SOCKET = "signal", "socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to start and when to stop it. The limits count from the start, or from when the file `clock` appears (a job
    waits in a queue). `afterwards` are commands run side by side once the tree is gone: they end and prove the rest on
    other hosts; each prints the JSON of worker/processes.py, a line for each host."""

    argv: list[str]
    environment: dict[str, str]
    mark: str
    cwd: str
    log: str
    time_limit_s: float
    no_record_s: float | None
    term_grace_s: float
    watch: str | None
    clock: str | None
    afterwards: list[list[str]]


class Stop(Exception):
    """Why the tree is ended before the launcher ended by itself."""

    def __init__(self, ended_by: str, note: str | None = None) -> None:
        super().__init__(ended_by)
        self.ended_by = ended_by
        self.note = note


class Watched:
    """Growth of one file: `silent_s` is the time since it last grew (or since the start)."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._size = self._stat()
        self._grew_at = time.monotonic()

    def _stat(self) -> int:
        if self._path is None:
            return 0
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - pathlib is not worth its start-up time here
        except OSError:
            return 0

    def silent_s(self) -> float:
        size = self._stat()
        if size != self._size:
            self._size = size
            self._grew_at = time.monotonic()
        return time.monotonic() - self._grew_at

    def restart(self) -> None:
        """Silence counts from now."""
        self._grew_at = time.monotonic()

    def last_line(self) -> str | None:
        """The last whole line with text in it, from the end of the file."""
        if self._path is None:
            return None
        try:
            with open(self._path, "rb") as stream:  # noqa: PTH123 - as above
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - _TAIL_BYTES))
                tail = stream.read(_TAIL_BYTES)
        except OSError:
            return None
        lines = [line for line in tail.split(b"\n")[:-1] if line.strip()]
        return lines[-1].decode("utf-8", "replace").rstrip("\r") if lines else None


class Supervisor:
    """One launch from start to proof. `parent` is the pid of mlbench, `heard` what it said after the order."""

    def __init__(self, order: Order, control: socket.socket, parent: int, heard: bytes) -> None:
        self._order = order
        self._control = control
        self._parent = parent
        self._buffer = heard
        self._impatient = False
        self._orphaned = False
        self._selector = selectors.DefaultSelector()
        self._watched = Watched(order.watch)
        self._child: subprocess.Popen[bytes] | None = None
        self._exit_status: int | None = None

    def run(self) -> dict[str, Any]:
        """Start, wait, end the tree; the report."""
        began = time.monotonic()
        self._listen()
        ended_by, note = "exited", None
        try:
            self._obey()
            self._start()
            self._wait(began)
        except Stop as stop:
            ended_by, note = stop.ended_by, stop.note
        seconds = time.monotonic() - began
        last_record = self._watched.last_line()
        ended = self._end_tree(asked=ended_by != "exited")
        strays = list(ended.found if ended_by == "exited" else ended.killed)
        left = list(ended.left)
        for report in self._run_afterwards() if ended_by != "not_started" else ():
            strays += report["found"]
            left += report["left"]
        return {
            "ended_by": ended_by,
            "exit_status": self._exit_status,
            "seconds": seconds,
            "strays": strays,
            "left": left,
            "last_record": last_record,
            "note": note,
        }

    def _listen(self) -> None:
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        # Asked to end from outside: end the tree first, as if mlbench were gone.
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._wakeup = reader
        self._selector.register(reader, selectors.EVENT_READ, _SELECTOR_SIGNAL)
        self._selector.register(self._control, selectors.EVENT_READ, _SELECTOR_SOCKET)

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        self._orphaned = True

    def _start(self) -> None:
        order = self._order
        try:
            log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Stop("not_started", f"{order.log}: {error.strerror}") from error
        try:
            self._child = subprocess.Popen(
                order.argv,
                env=order.environment,
                cwd=order.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_supervisor,
            )
        except OSError as error:
            raise Stop("not_started", f"{order.argv[0]}: {error.strerror}") from error
        finally:
            os.close(log)

    def _wait(self, began: float) -> None:
        """Returns when the launcher has ended; raises Stop for every other end."""
        counting_from = None if self._order.clock is not None else began
        while True:
            self._collect()
            if self._exit_status is not None:
                return
            if self._orphaned or os.getppid() != self._parent:
                raise Stop("orphaned")
            if counting_from is None and _exists(self._order.clock):
                counting_from = time.monotonic()
                self._watched.restart()
            remaining = _LOOK_INTERVAL_S
            if counting_from is not None:
                remaining = min(remaining, self._remaining_s(counting_from))
            self._sleep(remaining)

    def _remaining_s(self, counting_from: float) -> float:
        """Time until the next limit. Raises Stop at it."""
        remaining = counting_from + self._order.time_limit_s - time.monotonic()
        if remaining <= 0:
            raise Stop("timeout")
        if self._order.no_record_s is not None:
            until_record = self._order.no_record_s - self._watched.silent_s()
            if until_record <= 0:
                raise Stop("no_record")
            remaining = min(remaining, until_record)
        return remaining

    def _sleep(self, timeout_s: float) -> None:
        """Until a child ends, mlbench says something, or time is over. Raises Stop when mlbench says so or is gone."""
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.data == _SELECTOR_SIGNAL:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
            else:
                self._hear()

    def _hear(self) -> None:
        try:
            chunk = self._control.recv(65536)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self._selector.unregister(self._control)
            self._orphaned = True
            raise Stop("orphaned")
        self._buffer += chunk
        self._obey()

    def _obey(self) -> None:
        """Raises Stop when a whole line says so."""
        *lines, self._buffer = self._buffer.split(b"\n")
        said = [json.loads(line) for line in lines]
        if any("kill" in message for message in said):
            self._impatient = True
        if said:
            raise Stop("interrupted")

    def _collect(self) -> None:
        """Reap all children; note how the launcher ended."""
        for pid, status in processes.reap().items():
            if self._child is not None and pid == self._child.pid:
                code = os.waitstatus_to_exitcode(status)
                self._exit_status = code if code >= 0 else 128 - code
                self._child.returncode = code  # reaped here: Popen must not wait for it again

    def _look(self) -> list[processes.Process]:
        self._collect()
        return processes.find(self._order.mark, root=os.getpid(), spare=[self._parent])

    def _end_tree(self, *, asked: bool) -> processes.Ended:
        """The launcher first, if it still lives, then whatever is left of the tree."""
        if not asked:
            self._wait_empty(_SETTLE_S)
            return processes.end(self._look, self._order.term_grace_s, self._hurry)
        grace_s = self._order.term_grace_s
        if self._child is not None and self._exit_status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)
            self._wait_empty(grace_s * _LAUNCHER_SHARE, launcher_alone=True)
            grace_s *= 1 - _LAUNCHER_SHARE
        ended = processes.end(self._look, grace_s, self._hurry)
        self._collect()
        return ended

    def _hurry(self) -> bool:
        self._pause(0.0)
        return self._impatient

    def _wait_empty(self, limit_s: float, *, launcher_alone: bool = False) -> None:
        """Until nothing is left, or, with `launcher_alone`, until the launcher has ended."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not self._impatient and self._look():
            if launcher_alone and self._exit_status is not None:
                return
            self._pause(0.05)

    def _pause(self, timeout_s: float) -> None:
        try:
            self._sleep(timeout_s)
        except Stop:
            if self._orphaned:
                time.sleep(timeout_s)

    def _run_afterwards(self) -> list[dict[str, list[str]]]:
        """Run the commands side by side; one that fails or says nothing readable counts as something left."""
        running = []
        reports: list[dict[str, list[str]]] = []
        environment = {**self._order.environment}
        environment.pop(processes.MARK_VARIABLE, None)
        for argv in self._order.afterwards:
            try:
                running.append(
                    subprocess.Popen(
                        argv,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
            except OSError as error:
                reports.append(_unproven(argv, str(error.strerror)))
        deadline = time.monotonic() + _AFTERWARDS_LIMIT_S
        for process in running:
            argv = [str(word) for word in process.args] if isinstance(process.args, list) else []
            try:
                output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
                values = [json.loads(line) for line in output.splitlines()]
                reports += [
                    {key: [str(item) for item in value[key]] for key in ("found", "killed", "left")} for value in values
                ]
                if not values:
                    reports.append(_unproven(argv, f"exit status {process.returncode}"))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                reports.append(_unproven(argv, "no answer in time"))
            except (ValueError, KeyError, TypeError):
                reports.append(_unproven(argv, f"exit status {process.returncode}"))
        return reports


def _exists(path: str | None) -> bool:
    return path is not None and os.path.exists(path)  # noqa: PTH110 - as above


def _unproven(argv: list[str], reason: str) -> dict[str, list[str]]:
    return {"found": [], "killed": [], "left": [f"not proven: {' '.join(argv)[:200]}: {reason}"]}


def _ignore(signum: int, frame: FrameType | None) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _die_with_supervisor() -> None:
    """In the launcher, before it is executed: if the supervisor itself is killed, the launcher goes too."""
    processes.die_with_parent(signal.SIGKILL)


def _read_order(control: socket.socket) -> tuple[Order, bytes]:
    """The first line, and what was already read of the next."""
    buffer = b""
    while b"\n" not in buffer:
        chunk = control.recv(65536)
        if not chunk:
            raise SystemExit(0)  # mlbench was killed before it said what to start
        buffer += chunk
    line, _, rest = buffer.partition(b"\n")
    return Order(**json.loads(line)), rest


def main() -> None:
    """Socket on descriptor 0, the parent's pid as the only argument."""
    parent = int(sys.argv[1])
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    processes.become_subreaper()
    order, heard = _read_order(control)
    report = Supervisor(order, control, parent, heard).run()
    with contextlib.suppress(OSError):  # mlbench may be gone: then nobody is left to tell
        control.sendall(json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main()
