"""Which run's telemetry a report shows, what it says in numbers, and whether the bytes agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlbench.analyse.consistency import Consistency, consistency
from mlbench.analyse.telemetry import bytes_in_per_s
from mlbench.publish.charts.labels import grouped
from mlbench.publish.charts.telemetry import PANELS, run_span, traces
from mlbench.publish.comparison import counted, good_runs
from mlbench.publish.report.blocks import TableBlock
from mlbench.publish.storage_profile import known_sample_bytes
from mlbench.store.tables import Run, RunSet, TelemetrySeries

IMAGENET_TRAIN_SAMPLES = 1_281_167
IMAGENET_MEAN_BYTES = 115_000.0
"""ILSVRC2012 in RecordIO, mean image: white paper H18597."""
_MIN_SAMPLES = 3
_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTelemetry:
    """The run that stands for its set, and its time lines."""

    run: Run
    series: Sequence[TelemetrySeries]

    @property
    def name(self) -> str:
        return f"run {self.run.index}"


def candidates(run_set: RunSet) -> list[Run]:
    """Runs by how well they stand for the set: good ones from the median outwards, then the others, longest first."""
    good = sorted(
        (run for run in good_runs(run_set) if run.time_to_train_s is not None),
        key=lambda run: run.time_to_train_s or 0.0,
    )
    middle = (len(good) - 1) / 2
    by_place = [run for _, run in sorted(enumerate(good), key=lambda pair: abs(pair[0] - middle))]
    others = [run for run in counted(run_set) if run not in good]
    return by_place + sorted(others, key=lambda run: -(run.time_to_train_s or 0.0))


def summary_table(found: RunTelemetry) -> TableBlock | None:
    """Mean, lowest and highest of every quantity between run_start and run_stop, over hosts (and GPUs)."""
    span = run_span(found.run, found.series)
    if span is None:
        return None
    span = (max(0.0, span[0]), span[1])
    rows = []
    for panel in PANELS if span[1] > span[0] else ():
        for trace in traces(panel, found.series, span, _STEPS):
            low = min((value for value in trace.low if value is not None), default=None)
            high = max((value for value in trace.high if value is not None), default=None)
            cells = [None if value is None else grouped(value) for value in (trace.overall, low, high)]
            rows.append([f"{panel.title}: {trace.label}", *cells, panel.unit, str(trace.num_lines)])
    if not rows:
        return None
    return TableBlock(
        title=f"Telemetry of {found.name}, run_start to run_stop",
        columns=("quantity", "mean", "lowest", "highest", "unit", "lines"),
        rows=rows,
        numbers=("mean", "lowest", "highest", "lines"),
        note=f"Lowest and highest are of means over a {_STEPS}th of the run; lines are hosts, or GPUs.",
    )


def mean_sample_bytes(run_set: RunSet) -> tuple[float, str] | None:
    """As `known_sample_bytes`; of ImageNet, by its number of images, the published mean where nothing else is known."""
    known = known_sample_bytes(run_set)
    if known is None and any(run.train_samples == IMAGENET_TRAIN_SAMPLES for run in run_set.runs):
        return IMAGENET_MEAN_BYTES, "of ILSVRC2012 in RecordIO (white paper H18597)"
    return known


def consistency_of(run_set: RunSet, found: RunTelemetry | None) -> tuple[Consistency | None, str]:
    """The papers' cross-check in the first epoch, and the reason when it cannot be made."""
    run = found.run if found is not None else next(iter(candidates(run_set)), None)
    mean = mean_sample_bytes(run_set)
    if run_set.rehearsal:
        return None, "a rehearsal reads no data"
    if mean is None:
        return None, "the mean size of an image is not known"
    if run is None or not run.samples_per_s_first_epoch:
        return None, "the log does not tell the rate of the first epoch"
    first = min((row for row in run.epoch_rows if row.kind == "epoch"), key=lambda row: row.start_s, default=None)
    measured = _measured(found.series, first.start_s, first.start_s + first.duration_s) if found and first else None
    return (
        consistency(
            run.samples_per_s_first_epoch,
            mean[0],
            measured_bytes_per_s=measured,
            ceiling_bytes_per_s=_ceiling(run_set),
        ),
        "",
    )


def _measured(series: Sequence[TelemetrySeries], start_s: float, stop_s: float) -> float | None:
    """Bytes a second into all hosts, from disks and networks, between two moments."""
    pattern = re.compile(r"(net_.+_rx|disk_.+_read)_bytes_per_s")
    by_host: dict[str, dict[str, list[float]]] = {}
    for row in series:
        if not pattern.fullmatch(row.metric):
            continue
        values = [
            value
            for time_s, value in zip(row.times_s, row.points, strict=True)
            if value is not None and start_s < time_s <= stop_s
        ]
        if len(values) >= _MIN_SAMPLES:
            by_host.setdefault(row.host, {})[row.metric] = values
    rates = [rate for metrics in by_host.values() if (rate := bytes_in_per_s(metrics)) is not None]
    return sum(rates) if rates else None


def _ceiling(run_set: RunSet) -> float | None:
    """The storage stage's rate in the pattern of training, not from memory, over all hosts."""
    rates = [
        row.bandwidth_bytes_per_s
        for row in run_set.storage
        if row.pattern == "training" and row.cache != "warm" and row.bandwidth_bytes_per_s
    ]
    return max(rates, default=None)
