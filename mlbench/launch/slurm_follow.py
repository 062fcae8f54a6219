"""Submits one sbatch script, follows its job to the end, cancels it when told to; standard library only.

    python -S -m mlbench.launch.slurm_follow submit SCRIPT --name NAME --status FILE --output FILE
    python -S -m mlbench.launch.slurm_follow clear --name NAME

`submit` ends with the status that the job itself wrote to FILE. A job that is gone without having written one failed,
whatever Slurm calls it (status 1, the state named). TERM cancels the job and waits until Slurm knows it no more.
`clear` does that for any job of this name and prints {"found", "killed", "left"} as JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_STATUS_LOOK_S = 0.2
_ASK_INTERVAL_S = 5.0
"""Between questions to slurmctld, which serves a whole cluster."""
_COMMAND_LIMIT_S = 60.0
_SILENCE_LIMIT_S = 600.0
"""A controller that restarts or fails over is away this long at most; the job goes on meanwhile."""
_GONE_LIMIT_S = 60.0
_KILL_AFTER_S = 5.0
_LATE_FILE_S = 5.0
"""A shared file system may show the status file this much later."""
_ENDED = frozenset(
    ("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT").split()  # noqa: SIM905
)
_STATUS_UNKNOWN = 1
_LESS_TIME = "ask for less time with limits.max_minutes, or another launcher.partition"
_NEVER_STARTS = {
    "PartitionTimeLimit": _LESS_TIME,
    "AssocMaxWallDurationPerJobLimit": _LESS_TIME,
    "QOSMaxWallDurationPerJobLimit": _LESS_TIME,
    "PartitionNodeLimit": "ask for fewer nodes, or another launcher.partition",
    "BadConstraints": "no node has what launcher.gres and the slots ask for",
    "InvalidAccount": "set launcher.account",
    "AccountNotAllowed": "set launcher.account, or another launcher.partition",
}
"""Reasons for which a job would stay in the queue for ever -> what to do."""


class SlurmError(Exception):
    """A Slurm command failed, with what it said."""


class Told(BaseException):
    """TERM arrived. Not an Exception: it passes through whatever is going on."""


@dataclass(frozen=True, slots=True)
class JobState:
    """`reason` is why the job waits, in Slurm's own word."""

    job: str
    state: str
    reason: str = "None"


def ask(argv: Sequence[str]) -> str:
    """Standard output of a Slurm command. Raises SlurmError."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        raise SlurmError(f"{argv[0]}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def jobs_named(name: str) -> list[JobState]:
    """Jobs of this name that have not ended; one that is completing still has processes."""
    lines = ask(["squeue", "--noheader", "--name", name, "--format", "%i %T %r"]).splitlines()
    states = [JobState(*line.split(None, 2)) for line in lines if line.strip()]
    return [state for state in states if state.state not in _ENDED]


def cancel_all(name: str) -> tuple[list[JobState], list[JobState]]:
    """Cancel every job of this name and wait until none is left: (found, left)."""
    found = jobs_named(name)
    living, began, killed = found, time.monotonic(), False
    for state in found:
        _cancel([state.job])
    while living and time.monotonic() - began < _GONE_LIMIT_S:
        if not killed and time.monotonic() - began > _KILL_AFTER_S:
            killed = True
            for state in living:
                _cancel(["--full", "--signal=KILL", state.job])
        time.sleep(0.5)
        living = jobs_named(name)
    return found, living


def _cancel(arguments: list[str]) -> None:
    try:
        ask(["scancel", *arguments])
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")  # it may have ended by itself meanwhile; what is left is asked for again


def read_status(path: Path) -> int | None:
    """The exit status that the job wrote, None when there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    return int(text) if text.strip().isdigit() else None


def submit(script: Path, name: str) -> str:
    """Number of the job."""
    job = ask(["sbatch", "--parsable", str(script)]).strip().partition(";")[0]
    sys.stdout.write(f"submitted {script} as job {job}, name {name}\n")
    sys.stdout.flush()
    return job


def follow(job: str, name: str, status: Path) -> int:
    """Wait for the job's own word. Raises SlurmError when it left without one, or Slurm is silent for too long."""
    told, asked_at, heard_at = "", -_ASK_INTERVAL_S, time.monotonic()
    while True:
        written = read_status(status)
        if written is not None:
            return written
        if time.monotonic() - asked_at >= _ASK_INTERVAL_S:
            asked_at = time.monotonic()
            try:
                now = next((item for item in jobs_named(name) if item.job == job), None)
            except SlurmError:
                if time.monotonic() - heard_at > _SILENCE_LIMIT_S:
                    raise
            else:
                heard_at = time.monotonic()
                if now is None:
                    return _last_word(job, status)
                text = now.state if now.state == "RUNNING" else f"{now.state} ({now.reason})"
                if text != told:
                    told = text
                    sys.stdout.write(f"job {job}: {told}\n")
                    sys.stdout.flush()
                if now.state == "PENDING" and now.reason in _NEVER_STARTS:
                    raise SlurmError(f"job {job} would never start: {now.reason}; {_NEVER_STARTS[now.reason]}")
        time.sleep(_STATUS_LOOK_S)


def _last_word(job: str, status: Path) -> int:
    deadline = time.monotonic() + _LATE_FILE_S
    while time.monotonic() < deadline:
        written = read_status(status)
        if written is not None:
            return written
        time.sleep(_STATUS_LOOK_S)
    try:
        state = ask(["squeue", "--noheader", "--states=all", "--jobs", job, "--format", "%T"]).strip()
    except SlurmError:
        state = "forgotten"
    raise SlurmError(f"job {job} is gone ({state or 'forgotten'}) and wrote no exit status to {status}")


def _wait_gone(name: str) -> None:
    """The job has written its status; Slurm needs a moment to end what is left on the nodes. That nothing is left is
    proven by `clear`, so a Slurm that does not answer now changes nothing."""
    deadline = time.monotonic() + _KILL_AFTER_S
    try:
        while jobs_named(name) and time.monotonic() < deadline:
            time.sleep(_STATUS_LOOK_S)
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")


def _on_term(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Told


def run_submit(script: Path, name: str, status: Path, output: Path) -> int:
    """The status to end with."""
    signal.signal(signal.SIGTERM, _on_term)
    try:
        result = follow(submit(script, name), name, status)
        _wait_gone(name)
    except SlurmError as error:
        # What is still in the queue is cancelled afterwards, by `clear`.
        sys.stderr.write(f"{error}\n")
        result = _STATUS_UNKNOWN
    except Told:
        cancel_all(name)
        result = 128 + signal.SIGTERM
    if output.is_file():
        with output.open(encoding="utf-8", errors="replace") as stream:
            shutil.copyfileobj(stream, sys.stdout)
    return result


def run_clear(name: str) -> int:
    """Status 1 when a job is left or Slurm does not answer."""
    try:
        found, left = cancel_all(name)
    except SlurmError as error:
        report = {"found": [], "killed": [], "left": [f"Slurm did not tell: {error}"]}
        sys.stdout.write(json.dumps(report) + "\n")
        return 1
    texts = [f"Slurm job {state.job} {state.state}" for state in found]
    remaining = [f"Slurm job {state.job} {state.state}" for state in left]
    sys.stdout.write(json.dumps({"found": texts, "killed": texts, "left": remaining}) + "\n")
    return 1 if left else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="slurm_follow")
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("submit")
    one.add_argument("script", type=Path)
    one.add_argument("--name", required=True)
    one.add_argument("--status", type=Path, required=True)
    one.add_argument("--output", type=Path, required=True)
    other = verbs.add_parser("clear")
    other.add_argument("--name", required=True)
    options = parser.parse_args()
    if options.verb == "submit":
        return run_submit(options.script, options.name, options.status, options.output)
    return run_clear(options.name)


if __name__ == "__main__":
    raise SystemExit(main())
