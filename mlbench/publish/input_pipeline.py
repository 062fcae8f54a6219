"""The input pipeline that runs really had, as their logs tell it: where one is not built, another takes its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlbench.collect.runfolder import last_attempts
from mlbench.collect.runlog import PIPELINE, PIPELINE_REASON
from mlbench.store.tables import Run, RunSet


def input_pipelines(run_set: RunSet) -> str | None:
    """The names, of the runs that count: `native`; two where runs differ; None when no log tells."""
    return ", ".join(dict.fromkeys(name for name, _ in _used(last_attempts(run_set.runs)))) or None


def input_pipeline_text(run_set: RunSet) -> str | None:
    """`native`, or `simplejpeg (native: not built)`; None when no log tells."""
    used = _used(last_attempts(run_set.runs))
    return ", ".join(dict.fromkeys(f"{name} ({why})" if why else name for name, why in used)) or None


def _used(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(name, why it is not the one that was asked for) of each run that tells."""
    told = [{row.key: row.value for row in run.hyperparameters} for run in runs]
    return [
        (str(setting_value(rows[PIPELINE])), str(setting_value(rows.get(PIPELINE_REASON, '""'))))
        for rows in told
        if PIPELINE in rows
    ]


def setting_value(text: str) -> Any:
    """A setting as it was logged, of its JSON in the database."""
    try:
        return json.loads(text)
    except ValueError:
        return text
