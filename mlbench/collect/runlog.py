"""One run, as its MLLOG log tells it: what is known is a value, what is not is None, each oddity a note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

PIPELINE, PIPELINE_REASON = "input_pipeline", "input_pipeline_reason"
"""Among the settings of a run: the pipeline that it had, and why it is not the one that was asked for."""


class RunStatus(Enum):
    """How a run ended. Only `success` can have converged."""

    success = "success"
    aborted = "aborted"  # run_stop says so
    incomplete = "incomplete"  # no run_stop
    crashed = "crashed"  # the process ended with a fault
    timeout = "timeout"  # a limit of ours ended it
    interrupted = "interrupted"  # the user ended it


@dataclass(frozen=True, slots=True)
class Note:
    """An oddity that did not stop the reading."""

    file: str
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """One MLLOG record. `line` counts from 1 in the file. `time_ms` may be a decimal number."""

    line: int
    key: str
    value: Any
    time_ms: float | None
    event_type: str | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """An epoch or a block of epochs, in milliseconds since the epoch of the clock. `num` as logged."""

    num: float | None
    num_epochs: float
    start_ms: float
    stop_ms: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    epoch_num: float | None
    accuracy: float
    time_ms: float | None
    line: int


@dataclass(slots=True, kw_only=True)
class RunLog:
    """What one log holds. Times are the log's own milliseconds; durations are computed in `analyse`."""

    file: str
    sha256: str | None = None
    benchmark: str | None = None
    org: str | None = None
    division: str | None = None
    submission_status: str | None = None
    platform: str | None = None
    cache_clear: bool | None = None
    seeds: list[int] = field(default_factory=list)
    run_start_ms: float | None = None
    run_stop_ms: float | None = None
    init_start_ms: float | None = None
    init_stop_ms: float | None = None
    run_stop_status: str | None = None
    run_stop_line: int | None = None
    quality_target: float | None = None
    train_samples: int | None = None
    eval_samples: int | None = None
    global_batch_size: int | None = None
    input_pipeline: str | None = None
    """What the run really read its images with, as mlbench's worker logs it."""
    input_pipeline_reason: str | None = None
    """Why it is not the one that was asked for; None when it is."""
    epochs: list[Span] = field(default_factory=list)
    blocks: list[Span] = field(default_factory=list)
    evals: list[tuple[float, float]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    num_records: int = 0
    num_torn: int = 0
    """Records that could not be read, or whose mark is lost."""
    untrusted: list[Note] = field(default_factory=list)
    """Why this log cannot prove a result: such a run counts as lost, whatever else it says."""
    notes: list[Note] = field(default_factory=list)
    """Every oddity, those of `untrusted` too."""
