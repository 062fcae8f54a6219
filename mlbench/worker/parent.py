"""The small parent that every rank has on its host; standard library only.

    python -I -S start.py parent --log-dir DIR [--telemetry] [--grace S] -- COMMAND...

It writes the rank's output to DIR/rank_<r>.log, so that ranks never write into each other's lines; ends the rank and
all that descends from it when its launcher goes away or says so; and ends with the rank's own status (128 + signal
number when a signal ended it), after nothing of the rank is left.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from typing import List, Mapping, Optional, Sequence

from . import processes

RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Set by horovodrun, Open MPI, PMIx and PMI launchers and srun; the first that is there counts."""
LOCAL_RANK_VARIABLES = ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
GRACE_S = 0.5
"""Between TERM and KILL: mpirun waits one second before it kills this parent itself."""
_STATUS_CANNOT_START = 127
_LOOK_INTERVAL_S = 1.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def rank_of(environment: Mapping[str, str]) -> int:
    """The rank that the launcher gave, 0 when there is none (a single process). ValueError when it is no number."""
    for name in RANK_VARIABLES:
        if name in environment:
            return int(environment[name])
    return 0


def is_first_of_host(environment: Mapping[str, str]) -> bool:
    """One rank a host has local rank 0; a single process is alone there."""
    return next((environment[name] == "0" for name in LOCAL_RANK_VARIABLES if name in environment), True)


def telemetry_command(log_dir: str, mark: str) -> List[str]:
    """The sampler of this host. Without -S: pynvml lies in site-packages."""
    start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")
    folder = os.path.join(log_dir, "telemetry")
    return [sys.executable, "-I", start, "telemetry", "--folder", folder, "--mark", mark, "--parent", str(os.getpid())]


class Parent:
    """One rank from start to end, and beside it `beside`, which ends with the rank and whose status does not count."""

    def __init__(self, command: Sequence[str], log: str, grace_s: float, beside: Sequence[str] = ()) -> None:
        self._command = list(command)
        self._beside = list(beside)
        self._log = log
        self._grace_s = grace_s
        self._launcher = os.getppid()
        self._status: Optional[int] = None
        self._child: Optional[subprocess.Popen] = None  # type: ignore[type-arg]  # Python 3.8 cannot subscript it

    def run(self) -> int:
        """Start the rank and wait; the status to end with."""
        processes.become_subreaper()
        processes.die_with_parent(signal.SIGTERM)
        waited = {signal.SIGCHLD, *_ENDING}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        try:
            self._start()
        except OSError as error:
            sys.stderr.write("%s: %s\n" % (error.filename or self._command[0], error.strerror))
            return _STATUS_CANNOT_START
        ended_by = None
        while self._status is None and ended_by is None:
            received = signal.sigtimedwait(waited, _LOOK_INTERVAL_S)
            self._collect()
            if received is not None and received.si_signo in _ENDING:
                ended_by = received.si_signo
            elif os.getppid() != self._launcher:
                ended_by = int(signal.SIGTERM)
        self._end_rest()
        return self._status if self._status is not None else 128 + (ended_by or int(signal.SIGKILL))

    def _start(self) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._child = subprocess.Popen(self._command, stdout=log, stderr=log, preexec_fn=self._in_child)
            if self._beside:
                subprocess.Popen(
                    self._beside, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self._in_child
                )
        finally:
            os.close(log)

    def _in_child(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        processes.die_with_parent(signal.SIGKILL)  # if this parent itself is killed, the rank goes with it

    def _collect(self) -> None:
        for pid, status in processes.reap().items():
            if self._child is not None and pid == self._child.pid:
                signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                self._status = 128 + signum if signum else os.WEXITSTATUS(status)
                self._child.returncode = -signum if signum else self._status

    def _end_rest(self) -> None:
        def look() -> List[processes.Process]:
            self._collect()
            return processes.find(None, root=os.getpid())

        ended = processes.end(look, self._grace_s)
        if ended.left:
            sys.stderr.write("left alive: %s\n" % "; ".join(ended.left))


def main(arguments: Sequence[str]) -> int:
    """Status 127 when the rank cannot be started."""
    parser = argparse.ArgumentParser(prog="parent", description="Start one rank and end it with its launcher.")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--grace", type=float, default=GRACE_S, help="seconds between TERM and KILL")
    parser.add_argument("--telemetry", action="store_true", help="record what this host does, in DIR/telemetry")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("a command is needed after --")
    log = os.path.join(options.log_dir, "rank_%d.log" % rank_of(os.environ))
    beside: List[str] = []
    if options.telemetry and is_first_of_host(os.environ):
        beside = telemetry_command(options.log_dir, os.environ.get(processes.MARK_VARIABLE, ""))
    return Parent(command, log, options.grace, beside).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
