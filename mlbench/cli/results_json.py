"""One run set as JSON: the keys of `results show --json`."""

from __future__ import annotations

from typing import Any

from mlbench.store.rows import own_columns
from mlbench.store.summary import iso_utc, summary_of
from mlbench.store.tables import Base, Run, RunSet

_RUN_KEYS = (
    "index",
    "attempt",
    "status",
    "converged",
    "time_to_train_s",
    "epochs",
    "final_accuracy",
    "seed",
    "samples_per_s",
    "samples_per_s_first_epoch",
)


def show_json(run_set: RunSet) -> dict[str, Any]:
    """The keys of a list, the parts of the score, and every attempt that was not a warm-up."""
    return summary_of(run_set).as_json() | {
        "olympic_mean_s": run_set.olympic_mean_s,
        "scaling_factor": run_set.scaling_factor,
        "rcp_factor": run_set.rcp_factor,
        "runs": [_run(run) for run in run_set.runs if not run.warmup],
    }


def full_json(run_set: RunSet) -> dict[str, Any]:
    """`show_json`, and whatever else the database holds of the run set but its time lines."""
    return show_json(run_set) | {
        "warmups": [_run(run) for run in run_set.runs if run.warmup],
        "allreduce": [_columns(row) for row in run_set.allreduce],
        "storage": [_columns(row) for row in run_set.storage],
        "notes": [_columns(row) for row in run_set.notes],
        "hosts": _hosts(run_set),
        "path": run_set.path,
        "ruleset": run_set.ruleset,
        "launcher": run_set.launcher,
        "cache": run_set.cache,
        "throughput_method": run_set.throughput_method,
        "finished_at": iso_utc(run_set.finished_at),
        "description": _columns(run_set.description) if run_set.description is not None else None,
        "config": run_set.config,
        "provenance": run_set.provenance,
    }


def _run(run: Run) -> dict[str, Any]:
    return {key: getattr(run, key) for key in _RUN_KEYS}


def _columns(row: Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in own_columns(type(row).__table__)}  # type: ignore[arg-type]


def _hosts(run_set: RunSet) -> dict[str, dict[str, str]]:
    hosts: dict[str, dict[str, str]] = {}
    for fact in run_set.host_facts:
        hosts.setdefault(fact.host, {})[fact.key] = fact.value
    return hosts
