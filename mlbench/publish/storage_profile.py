"""What each model asks of storage, from measured rates: the storage table of the Ready Solutions guide.

One row a run set: images/s, images/s x mean image size as the expected rate, what disks and networks moved meanwhile,
how far the two are apart, and the mean disk operation. What was not measured is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlbench.analyse.compare import SAMPLES_PER_S
from mlbench.analyse.consistency import Consistency, consistency
from mlbench.analyse.telemetry import bytes_in_per_s
from mlbench.plan.data import mean_record_bytes
from mlbench.publish.comparison import good_runs, sample
from mlbench.store.tables import Run, RunSet


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageProfileRow:
    """Rates are means over the good runs; operations are those of all disks of all hosts."""

    run_set: str
    model: str | None
    samples_per_s: float | None
    mean_sample_bytes: float | None
    consistency: Consistency | None
    operations_per_s: float | None
    mean_operation_bytes: float | None


def storage_profile(run_set: RunSet) -> StorageProfileRow:
    """The row of one run set, loaded with its telemetry."""
    rate = sample(run_set, SAMPLES_PER_S).mean
    mean = known_sample_bytes(run_set)
    mean_bytes = mean[0] if mean is not None else None
    moved = _mean([value for run in good_runs(run_set) if (value := _bytes_in(run)) is not None])
    operations = _mean([value for run in good_runs(run_set) if (value := _disk_sum(run, "reads")) is not None])
    read = _mean([value for run in good_runs(run_set) if (value := _disk_sum(run, "read_bytes")) is not None])
    return StorageProfileRow(
        run_set=run_set.run_set,
        model=run_set.model or run_set.benchmark,
        samples_per_s=rate,
        mean_sample_bytes=mean_bytes,
        consistency=consistency(rate, mean_bytes, measured_bytes_per_s=moved) if rate and mean_bytes else None,
        operations_per_s=operations,
        mean_operation_bytes=read / operations if read and operations else None,
    )


def known_sample_bytes(run_set: RunSet) -> tuple[float, str] | None:
    """Mean bytes that a training sample takes of its storage, and where the number comes from; None: not known."""
    data: Mapping[str, Any] = (run_set.config or {}).get("data") or {}
    measured = (run_set.provenance or {}).get("mean_image_bytes")
    for value, basis in (
        (data.get("mean_image_bytes"), "of the configuration"),
        (measured, "from the record files"),
        (_from_files(data), "from the record files"),
    ):
        if isinstance(value, int | float) and value > 0:
            return float(value), basis
    return None


def _from_files(data: Mapping[str, Any]) -> float | None:
    """As the plan of a run measures it, when the record files are all still here."""
    path, names, count = data.get("path"), data.get("train_rec"), data.get("num_train")
    if not isinstance(path, str) or "://" in path or not isinstance(names, list) or not isinstance(count, int):
        return None
    return mean_record_bytes(path, [str(name) for name in names], count)


def _bytes_in(run: Run) -> float | None:
    """Bytes/s over all hosts: disks read and networks received, means of the run."""
    hosts: dict[str, dict[str, list[float]]] = {}
    for series in run.telemetry:
        if series.mean is not None:
            hosts.setdefault(series.host, {})[series.metric] = [series.mean]
    rates = [rate for metrics in hosts.values() if (rate := bytes_in_per_s(metrics)) is not None]
    return sum(rates) if rates else None


def _disk_sum(run: Run, what: str) -> float | None:
    pattern = re.compile(rf"disk_.+_{what}_per_s")
    means = [series.mean for series in run.telemetry if pattern.fullmatch(series.metric) and series.mean is not None]
    return sum(means) if means else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
