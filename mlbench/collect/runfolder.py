"""Where each file of a run set lies. The only place that knows the names.

runs/.mlbench-runs        the folder's own name, see runs_marker.py
runs/<run_set>/
  run_set.json            what was asked and where: RunSetFile, written before anything is launched
  config.yaml             the resolved configuration, composable again
  hosts.json              {host: {fact: text}} from preflight
  allreduce.json          table of the all-reduce stage; allreduce/ holds raw output
  storage.json            table of the storage stage; storage/ holds raw output
  findings.json           findings of stages and checks, [{rule, severity, file, line, text}]
  runs/<kind>_<index>/attempt_<n>/     kind is run or warmup; the folder is created "must not exist"
    job.json              what the worker was told
    result.txt            MLLOG records of rank 0, nothing else
    attempt.json          AttemptFile: how it ended; written last, so its absence means "cut short"
    launcher.log          output of the launcher
    rank_<r>.log          output of each rank
    cache.json            what the cache helper proved, per host
    telemetry/<host>.jsonl
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

_ATTEMPT = re.compile(r"^(run|warmup)_(\d+)$")


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The files of one attempt at one repetition, or at a warm-up."""

    path: Path
    warmup: bool
    index: int
    attempt: int

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def mllog(self) -> Path:
        return self.path / "result.txt"

    @property
    def outcome(self) -> Path:
        return self.path / "attempt.json"

    @property
    def launcher_log(self) -> Path:
        return self.path / "launcher.log"

    @property
    def cache(self) -> Path:
        return self.path / "cache.json"

    @property
    def telemetry(self) -> Path:
        return self.path / "telemetry"

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.log"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`path` is runs/<run_set>, absolute."""

    path: Path

    @property
    def run_set(self) -> str:
        return self.path.name

    @property
    def identity(self) -> Path:
        return self.path / "run_set.json"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def hosts(self) -> Path:
        return self.path / "hosts.json"

    @property
    def allreduce(self) -> Path:
        return self.path / "allreduce.json"

    @property
    def storage(self) -> Path:
        return self.path / "storage.json"

    @property
    def findings(self) -> Path:
        return self.path / "findings.json"

    def attempt(self, index: int, attempt: int, *, warmup: bool = False) -> AttemptFolder:
        kind = "warmup" if warmup else "run"
        path = self.path / "runs" / f"{kind}_{index}" / f"attempt_{attempt}"
        return AttemptFolder(path, warmup, index, attempt)

    def attempts(self) -> Iterator[AttemptFolder]:
        """Every attempt folder there is, ordered by kind, index and attempt; other names are left alone."""
        found: list[AttemptFolder] = []
        root = self.path / "runs"
        for parent in root.iterdir() if root.is_dir() else ():
            match = _ATTEMPT.match(parent.name)
            if match is None or not parent.is_dir():
                continue
            for child in parent.glob("attempt_*"):
                number = child.name.removeprefix("attempt_")
                if number.isdigit() and child.is_dir():
                    found.append(AttemptFolder(child, match[1] == "warmup", int(match[2]), int(number)))
        yield from sorted(found, key=lambda item: (item.warmup, item.index, item.attempt))


class Numbered(Protocol):
    """An attempt, as a folder here or as a row of the database."""

    @property
    def index(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def warmup(self) -> bool: ...


NumberedT = TypeVar("NumberedT", bound=Numbered)


def last_attempts(attempts: Iterable[NumberedT]) -> list[NumberedT]:
    """The attempt of each measured repetition that counts, in order: the last one. Warm-ups count for nothing."""
    measured = sorted((item for item in attempts if not item.warmup), key=lambda item: (item.index, item.attempt))
    return list({item.index: item for item in measured}.values())
