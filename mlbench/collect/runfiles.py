"""The two records of a run set on disk: `run_set.json` (what was asked, and where) and `attempt.json` (how one ended).

Both are written by the runner, whole or not at all, and read by everything else. Times are UTC in ISO 8601,
durations seconds. A field that is not known is null.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mlbench.errors import InputError

SCHEMA_VERSION = 1
MAX_BYTES = 16_000_000
"""A larger file is not one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the software came from. `packages` are versions of the orchestrator's environment."""

    mlbench_version: str
    git_commit: str | None
    git_dirty: bool | None
    python: str
    packages: dict[str, str]
    container_image: str | None
    container_digest: str | None
    data_mount: dict[str, str]
    """device, mount_point, type and options of the file system that holds the data; empty when not known."""
    clock_offsets_s: dict[str, float]
    """Clock of each host against this one."""
    worker_sha256: str | None = None
    """Over the sources of the worker: the code that makes the result, committed or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """One later call of `mlbench resume`. `differences` were accepted by `--force`."""

    at: str
    command_line: list[str]
    forced: bool
    differences: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetFile:
    """`run_set.json`. The configuration is in `config.yaml` beside it, the host facts in `hosts.json`."""

    schema_version: int
    run_set: str
    created_at: str
    command_line: list[str]
    rehearsal: bool
    repeats: int
    warmup_runs: int
    stages: list[str]
    launcher: str
    system_name: str
    org: str
    platform: str
    division: str
    submission_status: str
    ruleset: str
    benchmark: str
    """Name of the benchmark profile, for example `resnet50`."""
    benchmark_kind: str
    mlperf_name: str | None
    model: str
    framework: str | None
    device: str
    hosts: dict[str, int]
    """host -> ranks."""
    num_nodes: int
    num_accelerators: int
    num_ranks: int
    global_batch_size: int
    target_accuracy: float
    train_samples: int
    eval_samples: int
    data_name: str
    data_path: str
    """Absolute."""
    data_path_given: str
    cache: str
    environment: dict[str, str]
    """Variables forwarded to every rank."""
    notes: list[str]
    provenance: Provenance
    reproduces: str | None = None
    """The run set whose stored configuration this one runs again."""
    sweep: str | None = None
    """Id of the sweep (`--multirun`) this run set is a point of."""
    resumes: list[Resume] = field(default_factory=list)
    database: str | None = None
    """URL of the database it was stored in, so that `resume` finds it again; null when the URL holds a password."""
    mean_image_bytes: float | None = None
    """Mean bytes that a training image takes of its storage: as configured, else measured of the record files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFile:
    """`attempt.json`, written last: a folder without it was cut short."""

    schema_version: int
    job_id: str
    index: int
    attempt: int
    warmup: bool
    rehearsal: bool
    status: str
    """collect.runlog.RunStatus, by the run's own evidence."""
    reason: str | None
    """One sentence when the status is not success."""
    exit_status: int | None
    """Of the launcher, 128 + number for a signal; null: it was never started, or its end was not seen."""
    seed: int
    cache_clear: bool
    launched_at: str
    ended_at: str
    lifetime_s: float | None
    """From the start of the launcher to its exit; null when its end was not seen."""
    argv: list[str]
    last_record: str | None
    """The last MLLOG record seen, when the run did not end well."""
    last_lines: list[str]
    """The last 20 lines of `log`, when the run did not end well."""
    log: str | None
    """File of `last_lines`, relative to the attempt's folder."""
    num_strays: int
    """Processes that were still there after the launcher had gone, and were ended."""


_T = TypeVar("_T")


def write_json(path: Path, record: Any) -> None:
    """Write a dataclass (or plain JSON data) so that the file is there whole or not at all. Raises OSError."""
    data = dataclasses.asdict(record) if dataclasses.is_dataclass(record) and not isinstance(record, type) else record
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            json.dump(data, stream, indent=1)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_run_set(path: Path) -> RunSetFile:
    """Read `run_set.json`. Raises InputError naming the file and what is wrong with it."""
    data = _load(path)
    provenance = _build(Provenance, data.pop("provenance", None), path, "provenance")
    resumes = [_build(Resume, item, path, "resumes") for item in _list(data.pop("resumes", []), path)]
    return _build(RunSetFile, {**data, "provenance": provenance, "resumes": resumes}, path, "run_set")


def read_attempt(path: Path) -> AttemptFile:
    """Read `attempt.json`. Raises InputError naming the file and what is wrong with it."""
    return _build(AttemptFile, _load(path), path, "attempt")


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes, so it is not a record of mlbench")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}); the file was damaged after it was written") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected an object")
    found = data.get("schema_version")
    if found != SCHEMA_VERSION:
        raise InputError(f"{path}: schema_version {found!r}, this mlbench reads {SCHEMA_VERSION}")
    return data


def _list(value: Any, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{path}: 'resumes' is a {type(value).__name__}, expected a list")
    return value


def _build(cls: type[_T], value: Any, path: Path, where: str) -> _T:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {where!r} is missing or no object")
    names = {item.name for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
    required = {
        item.name
        for item in dataclasses.fields(cls)  # type: ignore[arg-type]
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    unknown, missing = sorted(set(value) - names), sorted(required - set(value))
    if unknown or missing:
        raise InputError(f"{path}: {where} has unknown keys {unknown} and lacks {missing}")
    return cls(**value)
