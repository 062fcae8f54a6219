"""What is checked: logs, sets of logs, system descriptions and submission trees, read once and safely.

Links are followed only inside the folder that is checked; names in findings are relative to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from mlbench.check.records import RecordIndex
from mlbench.collect.runfiles import AttemptFile, RunSetFile
from mlbench.collect.runlog import RunLog
from mlbench.worker.job import Job

MAX_JSON_BYTES = 4 << 20


class Kind(Enum):
    """How a set of logs was found."""

    log = "log"  # a single file
    folder = "folder"  # logs side by side, without a submission tree around them
    tree = "tree"  # results/<system>/<benchmark> of a submission
    run_set = "run_set"  # a run folder of mlbench


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log. `name` is relative to the checked folder; `index` is the run's number in its set."""

    path: Path
    name: str
    index: int
    log: RunLog
    records: RecordIndex
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A system description. `data` is None when it cannot be read as a JSON object; `error` says why."""

    path: Path
    name: str
    data: Mapping[str, Any] | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """What mlbench recorded of the attempt that counts; None where a file is missing or unreadable."""

    name: str
    attempt: AttemptFile | None
    job: Job | None
    earlier: Sequence[str | None]
    """Status of each attempt before it; None when it was cut short."""
    has_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRunSet:
    identity: RunSetFile
    runs: Mapping[int, OwnRun]
    num_warmups: int
    stray_names: Sequence[str]
    """What lies in the folder and is not of mlbench's making."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSet:
    """Logs that are scored together."""

    kind: Kind
    name: str
    """Relative to the checked folder; `.` is the folder itself."""
    folder: Path
    ruleset: str
    logs: Sequence[LogFile]
    org: str | None = None
    """Folder's name of the submitter, in a tree."""
    system: str | None = None
    """Folder's name of the system, in a tree."""
    benchmark_folder: str | None = None
    description: Description | None = None
    description_expected: str | None = None
    """Where the system description belongs, in a tree."""
    own: OwnRunSet | None = None
    other_names: Sequence[str] = ()
    """What else lies beside the logs."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Log files that were not read, with the reason."""
    options: Sequence[str] = ()
    """Words of package_checker_params that are in force, `rcp-bypass` and `seed-checker-bypass`."""
    unknown_options: Sequence[tuple[str, int, str]] = ()
    """file, line and word of those that nobody knows."""

    @property
    def benchmark(self) -> str | None:
        """By the logs; the folder's name only when no log says (a folder can be called anything)."""
        logged = _most_common([item.log.benchmark for item in self.logs])
        return logged or self.benchmark_folder

    @property
    def division(self) -> str | None:
        """By the logs: the stricter one when they disagree."""
        divisions = {item.log.division for item in self.logs}
        return "closed" if "closed" in divisions else _most_common([item.log.division for item in self.logs])

    @property
    def scored(self) -> bool:
        """Whether this is meant to be a whole set of runs; a single log is not."""
        return self.kind is not Kind.log


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder or link of a submission tree; `name` is relative to the checked folder."""

    path: Path
    name: str
    is_dir: bool
    is_link: bool
    size_bytes: int
    num_children: int | None = None
    link_problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One submitter's tree: results/, systems/, benchmarks/."""

    root: Path
    name: str
    ruleset: str
    entries: Sequence[Entry]
    truncated: bool
    sets: Sequence[ResultSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything below one path."""

    root: Path
    sets: Sequence[ResultSet]
    trees: Sequence[Tree]


def read_description(path: Path, name: str) -> Description:
    """Read a system description; never raises, the fault is kept in `error`."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            return Description(path=path, name=name, data=None, error=f"larger than {MAX_JSON_BYTES >> 20} MiB")
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        return Description(path=path, name=name, data=None, error=error.strerror or "cannot be read")
    except (ValueError, RecursionError) as error:
        return Description(path=path, name=name, data=None, error=f"not JSON ({str(error)[:120]})")
    if not isinstance(data, dict):
        return Description(path=path, name=name, data=None, error=f"holds a {type(data).__name__}, not an object")
    return Description(path=path, name=name, data=data, error=None)


def _most_common(values: Sequence[str | None]) -> str | None:
    known = [value for value in values if value]
    return max(known, key=lambda value: (known.count(value), -known.index(value))) if known else None
