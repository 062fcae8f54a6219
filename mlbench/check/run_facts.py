"""What rules over one run share."""

from __future__ import annotations

import math

from mlbench.check.rule import NotApplicable, RunContext
from mlbench.collect.mllog_scan import finite
from mlbench.collect.runlog import Record

MAX_CLOCK_STEP_MS = 1_000.0
"""Ranks of several nodes may disagree this much (29 % of the published logs have records out of order)."""


def need_records(run: RunContext) -> None:
    """RUN-01 speaks of a log without records; other rules have nothing to say about it."""
    if run.file.log.num_records == 0:
        raise NotApplicable


def only_resnet(run: RunContext) -> None:
    """The course of a run is judged for the benchmark that mlbench scores. Others count samples where resnet counts
    epochs, and log other measures of quality; for them the official rule files speak."""
    if run.parent.benchmark not in (None, "resnet"):
        raise NotApplicable


def time_ms(record: Record) -> float:
    """Milliseconds since 1970; NaN, which no comparison accepts, where the record tells no usable time."""
    return record.time_ms if record.time_ms is not None else math.nan


def last_epoch(run: RunContext) -> float | None:
    """The highest epoch number that was begun, by epochs or by blocks."""
    index = run.file.records
    numbers = [finite(record.metadata.get("epoch_num")) for record in index.all("epoch_start")]
    for block in index.all("block_start"):
        first, count = finite(block.metadata.get("first_epoch_num")), finite(block.metadata.get("epoch_count"))
        if first is not None and count is not None:
            numbers.append(first + count - 1)
    known = [number for number in numbers if number is not None]
    return max(known) if known else None


def rule_file(ruleset_file: str) -> str:
    return f"mlperf_logging training_<ruleset>/{ruleset_file}"
