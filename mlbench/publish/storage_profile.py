"""What each model asks of storage, from measured rates: the storage table of the Ready Solutions guide.

One row a run set: images/s, images/s x mean image size as the expected rate, what disks and networks moved meanwhile,
how far the two are apart, and the mean disk operation. What was not measured is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlbench.analyse.compare import SAMPLES_PER_S
from mlbench.analyse.consistency import Consistency, consistency
from mlbench.analyse.telemetry import bytes_in_per_s
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
    mean_bytes = _mean_sample_bytes(run_set)
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


def _mean_sample_bytes(run_set: RunSet) -> float | None:
    data = (run_set.config or {}).get("data")
    value = data.get("mean_image_bytes") if isinstance(data, dict) else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


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
