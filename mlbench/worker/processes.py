"""Finding and ending processes by more than their process group; standard library only, Linux.

A launcher scatters its ranks: horovodrun gives each a session of its own, daemons fork twice, a shell ignores TERM. Two
marks hold anyway. A process stays a descendant of its nearest *child subreaper*, whatever it forks, and it keeps the
variable MLBENCH_JOB in the environment it was started with. `find` looks for either; `end` sends TERM, then KILL, and
looks again until nothing is left.

Run as a program it ends what a job left on this host and prints what it found as JSON:

    python processes.py MARK [--grace SECONDS] [--spare PID ...]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Sequence, Set

MARK_VARIABLE = "MLBENCH_JOB"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SCAN_INTERVAL_S = 0.02
_KILL_PATIENCE_S = 10.0
"""A process that KILL does not end within this time sits in the kernel (a dead NFS mount); it is reported as left."""


@dataclass(frozen=True)
class Process:
    """A process as seen once. `start_ticks` tells it from a later process of the same number."""

    pid: int
    parent: int
    start_ticks: int
    command: str


def become_subreaper() -> bool:
    """Orphans among our descendants become our children. False where the kernel refuses."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """The kernel sends us `signum` when the thread that started us ends. False where the kernel refuses."""
    return _prctl(_PR_SET_PDEATHSIG, signum)


def _prctl(option: int, value: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(option, value, 0, 0, 0)) == 0


def read_process(pid: int) -> Optional[Process]:
    """The process, or None when it is gone or a zombie (dead, only its entry is left)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            head, _, tail = stream.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    command = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), int(fields[19]), command)


def _all_processes() -> Dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                found[process.pid] = process
    return found


def _carries(pid: int, entry: bytes) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            return entry in stream.read().split(b"\0")
    except OSError:
        return False  # gone, a kernel thread, or another user's: then it is none of ours


def command_line(process: Process) -> str:
    """The arguments with spaces between, at most 200 characters; the short name when they cannot be read."""
    try:
        with open("/proc/%d/cmdline" % process.pid, "rb") as stream:
            text = stream.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return (text or process.command)[:200]


def _own_line(processes: Dict[int, Process]) -> Set[int]:
    """This process and its ancestors, which are never ended."""
    line = {os.getpid()}
    current = processes.get(os.getpid())
    while current is not None and current.parent not in line:
        line.add(current.parent)
        current = processes.get(current.parent)
    return line


def find(mark: Optional[str], root: Optional[int] = None, spare: Sequence[int] = ()) -> List[Process]:
    """Living descendants of `root` (without it) and all processes that carry `mark`; never this one or an ancestor."""
    processes = _all_processes()
    excluded = _own_line(processes) | set(spare)
    below: Set[int] = set()
    if root is not None:
        children: Dict[int, List[int]] = {}
        for process in processes.values():
            children.setdefault(process.parent, []).append(process.pid)
        pending = [root]
        while pending:
            for pid in children.get(pending.pop(), []):
                if pid not in below:
                    below.add(pid)
                    pending.append(pid)
    entry = ("%s=%s" % (MARK_VARIABLE, mark)).encode() if mark else None
    return [
        process
        for pid, process in sorted(processes.items())
        if pid not in excluded and (pid in below or (entry is not None and _carries(pid, entry)))
    ]


def send(process: Process, signum: int) -> None:
    """Signal exactly this process; a later one that took its number is spared."""
    current = read_process(process.pid)
    if current is None or current.start_ticks != process.start_ticks:
        return
    try:
        os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def reap() -> Dict[int, int]:
    """Collect every child that has ended: pid -> wait status."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _never() -> bool:
    return False


def _wait_gone(
    look: Callable[[], List[Process]],
    limit_s: float,
    on_seen: Callable[[Process], None],
    hurry: Callable[[], bool] = _never,
) -> List[Process]:
    """Look until nothing is found or `limit_s` is over; `on_seen` is called for all of each look. What is left."""
    deadline = time.monotonic() + limit_s
    nap_s = _SCAN_INTERVAL_S
    while True:
        living = look()
        if not living or time.monotonic() >= deadline or hurry():
            return living
        for process in living:
            on_seen(process)
        time.sleep(nap_s)
        nap_s = min(nap_s * 1.5, 0.5)


@dataclass(frozen=True)
class Ended:
    """`killed`: needed KILL; `left`: still alive when patience ended. Command lines, with the pid ahead."""

    found: List[str]
    killed: List[str]
    left: List[str]


def end(look: Callable[[], List[Process]], grace_s: float, hurry: Callable[[], bool] = _never) -> Ended:
    """TERM to everything `look` finds, also what appears meanwhile; after `grace_s`, or once `hurry()` is true, KILL
    until nothing is found."""
    termed: Dict[int, int] = {}
    names: Dict[int, str] = {}
    killed: List[str] = []

    def name(process: Process) -> str:
        return names.setdefault(process.pid, "%d %s" % (process.pid, command_line(process)))

    def term(process: Process) -> None:
        name(process)
        if termed.get(process.pid) != process.start_ticks:
            termed[process.pid] = process.start_ticks
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a stopped process takes TERM only once it goes on

    def kill(process: Process) -> None:
        if name(process) not in killed:
            killed.append(name(process))
        send(process, signal.SIGKILL)

    left = _wait_gone(look, grace_s, term, hurry)
    if left:
        left = _wait_gone(look, _KILL_PATIENCE_S, kill)
    return Ended(sorted(names.values()), killed, [name(process) for process in left])


def main(arguments: Sequence[str]) -> int:
    """Status 0 when nothing is left, 1 when something is."""
    parser = argparse.ArgumentParser(prog="processes.py", description="End what a job left on this host.")
    parser.add_argument("mark")
    parser.add_argument("--grace", type=float, default=1.0, help="seconds between TERM and KILL")
    parser.add_argument("--spare", type=int, nargs="*", default=[], help="process numbers that are not touched")
    options = parser.parse_args(arguments)
    ended = end(lambda: find(options.mark, spare=options.spare), options.grace)
    sys.stdout.write(json.dumps({"found": ended.found, "killed": ended.killed, "left": ended.left}) + "\n")
    return 1 if ended.left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
