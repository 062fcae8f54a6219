"""Two run sets side by side: every metric with its noise, what explains a difference, and what differs beside it.

Works on rows of the database, own and imported alike. The mathematics is in analyse/compare.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlbench.analyse.compare import (
    BUSBW,
    EPOCHS,
    METRICS,
    SAMPLES_PER_S,
    SAMPLES_PER_S_FIRST,
    STORAGE_RANDOM,
    STORAGE_SEQUENTIAL,
    STORAGE_TRAINING,
    TIME_PER_EPOCH,
    TIME_TO_TRAIN,
    Comparison,
    Difference,
    Metric,
    Outlier,
    Sample,
    compare_metric,
    differences,
    outliers,
    side_by_side_only,
)
from mlbench.analyse.scaling import ScalingPoint
from mlbench.collect.allreduce import LARGE_BYTES, peak_row
from mlbench.collect.runfolder import last_attempts
from mlbench.collect.runlog import PIPELINE, PIPELINE_REASON
from mlbench.publish.input_pipeline import input_pipelines, setting_value
from mlbench.store.tables import Run, RunSet

_NOT_COMPARED = {
    "config": {"runs_dir", "db", "extra"},
    "provenance": {"command_line", "created_at", "resumes", "reproduces", "sweep", "notes", "hosts", "clock_offsets_s"},
}
"""Where and when something ran says nothing about why it was faster."""
_CODE_KEYS = ("mlbench_version", "git_commit", "git_dirty", "python", "packages", "container_image", "container_digest")
_VOLATILE_LOGGED = ("seed", "train_samples_per_s", PIPELINE_REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """`other` against `base`. `differs` is section -> what differs; `warnings` are why the two may not be comparable.
    Outliers are runs of one set that stand out, with their cause."""

    base: RunSet
    other: RunSet
    comparisons: tuple[Comparison, ...]
    differs: Mapping[str, tuple[Difference, ...]]
    warnings: tuple[str, ...]
    base_outliers: tuple[Outlier, ...]
    other_outliers: tuple[Outlier, ...]
    explanation: str | None

    def of(self, metric: Metric) -> Comparison:
        return next(item for item in self.comparisons if item.metric is metric)

    @property
    def main(self) -> Comparison:
        """What the verdict is about: time to train where both have one, else samples/s."""
        time = self.of(TIME_TO_TRAIN)
        return time if time.ratio is not None else self.of(SAMPLES_PER_S)


def counted(run_set: RunSet) -> list[Run]:
    """The last attempt of each repetition, warm-ups left out, in order."""
    return last_attempts(run_set.runs)


def good_runs(run_set: RunSet) -> list[Run]:
    """Runs that enter means: converged ones; where nothing has a target, those that ended well."""
    runs = counted(run_set)
    if any(run.quality_target is not None or run.converged for run in runs):
        return [run for run in runs if run.converged]
    return [run for run in runs if run.status == "success"]


def sample(run_set: RunSet, metric: Metric) -> Sample:
    """Values of the good runs, or of the stage that measures the metric."""
    if metric in _STAGE_VALUES:
        values = _STAGE_VALUES[metric](run_set)
        return Sample(tuple(values), max(1, len(values)))
    asked = run_set.repeats_asked or len(counted(run_set))
    found = [value for run in good_runs(run_set) if (value := _RUN_VALUES[metric](run)) is not None]
    return Sample(tuple(found), asked)


def time_per_epoch_s(run: Run) -> float | None:
    """Mean seconds of an epoch, evaluation left out where the log tells epochs from evaluation."""
    epochs = [row for row in run.epoch_rows if row.kind == "epoch"] or run.epoch_rows
    total = sum(row.num_epochs for row in epochs)
    return sum(row.duration_s for row in epochs) / total if total else None


_RUN_VALUES: Mapping[Metric, Callable[[Run], float | None]] = {
    TIME_TO_TRAIN: lambda run: run.time_to_train_s if run.converged else None,
    SAMPLES_PER_S: lambda run: run.samples_per_s,
    SAMPLES_PER_S_FIRST: lambda run: run.samples_per_s_first_epoch,
    TIME_PER_EPOCH: time_per_epoch_s,
    EPOCHS: lambda run: run.epochs if run.converged else None,
}


def _busbw(run_set: RunSet) -> list[float]:
    """Peak of the first table measured, that of the path that training uses; none without large sizes."""
    if not run_set.allreduce:
        return []
    first = run_set.allreduce[0]
    peak = peak_row(
        [row for row in run_set.allreduce if (row.backend, row.transport) == (first.backend, first.transport)]
    )
    return [peak.busbw_gb_per_s] if peak is not None and peak.size_bytes >= LARGE_BYTES else []


def allreduce_path(run_set: RunSet) -> str | None:
    """What the compared all-reduce figure was measured with, `horovod over Gloo`; None when none was measured."""
    return f"{run_set.allreduce[0].backend} over {run_set.allreduce[0].transport}" if run_set.allreduce else None


def _storage(pattern: str) -> Callable[[RunSet], list[float]]:
    def values(run_set: RunSet) -> list[float]:
        rows = [
            row
            for row in run_set.storage
            if row.pattern == pattern and row.cache != "warm" and row.bandwidth_bytes_per_s is not None
        ]
        total = [row for row in rows if row.host is None and row.endpoint is None]
        chosen = (total or rows)[:1]
        return [row.bandwidth_bytes_per_s for row in chosen if row.bandwidth_bytes_per_s is not None]

    return values


_STAGE_VALUES: Mapping[Metric, Callable[[RunSet], list[float]]] = {
    BUSBW: _busbw,
    STORAGE_SEQUENTIAL: _storage("sequential"),
    STORAGE_RANDOM: _storage("random"),
    STORAGE_TRAINING: _storage("training"),
}


def side_by_side(base: RunSet, other: RunSet) -> SideBySide:
    """Compare two run sets, loaded with everything below them."""
    comparisons = tuple(_compared(metric, base, other) for metric in METRICS)
    return SideBySide(
        base=base,
        other=other,
        comparisons=comparisons,
        differs=_differs(base, other),
        warnings=tuple(_warnings(base, other)),
        base_outliers=outliers_of(base),
        other_outliers=outliers_of(other),
        explanation=_explanation({item.metric: item for item in comparisons}),
    )


def _compared(metric: Metric, base: RunSet, other: RunSet) -> Comparison:
    one, two = sample(base, metric), sample(other, metric)
    paths = allreduce_path(base), allreduce_path(other)
    if metric is BUSBW and one.values and two.values and paths[0] != paths[1]:
        # A ratio would read as if the fabric were faster; it is another library.
        return side_by_side_only(metric, one, two, f"{paths[0]} in the first, {paths[1]} in the second")
    return compare_metric(metric, one, two)


def outliers_of(run_set: RunSet) -> tuple[Outlier, ...]:
    """Good runs that stand out, each with what made it slow; positions count good runs in order."""
    runs = [run for run in good_runs(run_set) if run.time_to_train_s is not None]
    return tuple(outliers([run.time_to_train_s or 0.0 for run in runs], [run.epochs for run in runs]))


def _explanation(found: Mapping[Metric, Comparison]) -> str | None:
    """Time to train = epochs x time per epoch: which of the two moved."""
    time, epochs, per_epoch = found[TIME_TO_TRAIN], found[EPOCHS], found[TIME_PER_EPOCH]
    if time.ratio is None or epochs.ratio is None or per_epoch.ratio is None:
        return None
    return (
        f"time to train {time.in_words}: epochs to target {epochs.in_words}, "
        f"time per epoch {per_epoch.in_words} (time = epochs x time per epoch + evaluation)"
    )


def _warnings(base: RunSet, other: RunSet) -> list[str]:
    found = []
    for name, what in (
        ("benchmark", "benchmarks"),
        ("division", "divisions"),
        ("ruleset", "rulesets"),
        ("round", "rounds"),
        ("global_batch_size", "global batch sizes"),
        ("cache", "cache states"),
    ):
        one, two = getattr(base, name), getattr(other, name)
        if one != two and not (name in ("ruleset", "round", "cache") and None in (one, two)):
            found.append(f"different {what}: {one} and {two}")
    found += [
        f"{run_set.run_set} is a rehearsal: nothing was trained" for run_set in (base, other) if run_set.rehearsal
    ]
    for run_set in (base, other):
        if run_set.score_status != "valid":
            found.append(f"{run_set.run_set} has no score ({run_set.score_status}): {run_set.score_reason}")
    paths = [path for run_set in (base, other) if (path := allreduce_path(run_set)) is not None]
    if len(set(paths)) > 1:
        found.append(f"all-reduce was measured in different ways, {' and '.join(paths)}, so it has no ratio")
    return found


def _differs(base: RunSet, other: RunSet) -> dict[str, tuple[Difference, ...]]:
    pairs = {
        "configuration": (_configuration(base), _configuration(other)),
        "settings logged": (_logged(base), _logged(other)),
        "environment": (_provenance(base).get("environment", {}), _provenance(other).get("environment", {})),
        "hardware": (_hardware(base), _hardware(other)),
        "code": (_code(base), _code(other)),
    }
    found = {section: tuple(differences(one, two)) for section, (one, two) in pairs.items()}
    if base.origin == "run" and other.origin == "run":
        # The log repeats what the configuration says; once is enough. What was really used the log alone tells.
        found["settings logged"] = tuple(item for item in found["settings logged"] if item.key == PIPELINE)
    return {section: items for section, items in found.items() if items}


def _configuration(run_set: RunSet) -> dict[str, Any]:
    return {key: value for key, value in (run_set.config or {}).items() if key not in _NOT_COMPARED["config"]}


def _provenance(run_set: RunSet) -> dict[str, Any]:
    return {k: v for k, v in (run_set.provenance or {}).items() if k not in _NOT_COMPARED["provenance"]}


def _code(run_set: RunSet) -> dict[str, Any]:
    provenance = _provenance(run_set)
    code = {key: provenance[key] for key in _CODE_KEYS if provenance.get(key) is not None}
    return code or ({"framework": run_set.framework} if run_set.framework else {})


def _hardware(run_set: RunSet) -> dict[str, Any]:
    """Facts of the hosts, each with every value it had; for imports the system description."""
    facts: dict[str, set[str]] = {}
    for fact in run_set.host_facts:
        facts.setdefault(fact.key, set()).add(fact.value)
    if facts:
        return {key: ", ".join(sorted(values)) for key, values in facts.items()}
    description = run_set.description.description if run_set.description is not None else {}
    # The framework is told with the code; an empty field and "N/A" both say that nothing was told.
    return {k: v for k, v in description.items() if k != "framework" and v not in ("", "N/A", None)}


def _logged(run_set: RunSet) -> dict[str, Any]:
    """Hyperparameters that all runs of the set share."""
    runs = counted(run_set)
    if not runs:
        return {}
    used = input_pipelines(run_set)
    settings = [{row.key: row.value for row in run.hyperparameters} for run in runs]
    shared = {
        key: value
        for key, value in settings[0].items()
        if key not in _VOLATILE_LOGGED and all(other.get(key) == value for other in settings)
    }
    plain = {key: setting_value(value) for key, value in shared.items()}
    return plain | ({PIPELINE: used} if used is not None else {})


def scaling_point(run_set: RunSet) -> ScalingPoint | None:
    """The run set as a point over ranks; over accelerators for imports, whose logs do not count ranks."""
    count = run_set.num_ranks or run_set.num_accelerators
    if not count:
        return None
    return ScalingPoint(
        num_ranks=count,
        samples_per_s=sample(run_set, SAMPLES_PER_S).mean,
        samples_per_s_first_epoch=sample(run_set, SAMPLES_PER_S_FIRST).mean,
        time_to_train_s=sample(run_set, TIME_TO_TRAIN).mean,
        samples_per_s_cv=sample(run_set, SAMPLES_PER_S).cv,
    )
