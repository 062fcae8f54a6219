"""Which rank failed first, and which log says most about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mlbench.collect.runfolder import AttemptFolder
from mlbench.runner.judge import exit_text
from mlbench.runner.tail import last_lines

_NUM_LINES = 60
# horovodrun: "Process name: 1\nExit code: 137"; Open MPI: "Process name: [[5,1],1]\n  Exit code:    1".
_EXITED = re.compile(r"Process name:\s*(?:\[\[\d+,\d+\],)?(\d+)\]?\s*\n\s*Exit code:\s*(\d+)")
# Open MPI: "mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed)."
_SIGNALLED = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
_FAULT = re.compile(r"^(Traceback \(most recent call last\):|\S*(Error|Exception|Interrupt)\b.*|.*\b[Ee]rror:.*)$")


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The rank that the launcher saw fail first; `exit_status` as a shell shows it."""

    rank: int
    exit_status: int

    def __str__(self) -> str:
        return f"rank {self.rank} was the first to fail, with {exit_text(self.exit_status)}"


def first_failure(launcher_log: Path) -> FirstFailure | None:
    """What horovodrun or mpirun says of the first rank that failed; None when it says nothing."""
    text = "\n".join(line.strip() for line in last_lines(launcher_log, _NUM_LINES))
    signalled = _SIGNALLED.search(text)
    if signalled is not None:
        return FirstFailure(int(signalled[1]), 128 + int(signalled[2]))
    exited = _EXITED.search(text)
    return None if exited is None else FirstFailure(int(exited[1]), int(exited[2]))


def telling_log(folder: AttemptFolder) -> Path | None:
    """The log that says most about a failure.

    That of the rank that failed first when it holds a fault, else the first rank log that holds one, else the
    launcher's, else what was written last."""
    failed = first_failure(folder.launcher_log)
    ranks = sorted((path for path in folder.path.glob("rank_*.log") if _size(path)), key=_rank_of)
    if failed is not None:
        ranks.sort(key=lambda path: _rank_of(path) != failed.rank)
    for path in ranks:
        if any(_FAULT.match(line.strip()) for line in last_lines(path, _NUM_LINES)):
            return path
    if _size(folder.launcher_log):
        return folder.launcher_log
    return max(ranks, key=lambda path: path.stat().st_mtime, default=None)


def _rank_of(path: Path) -> int:
    number = path.stem.removeprefix("rank_")
    return int(number) if number.isdigit() else 1 << 30


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
