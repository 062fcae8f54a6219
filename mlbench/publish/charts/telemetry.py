"""Telemetry of one run as time lines: what the machines did while they trained, over the run's epochs.

Many hosts and GPUs become one line a quantity, their mean, with a band from the lowest to the highest: a single slow
host or GPU shows as a band that is wide, whatever the number of hosts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from mlbench.publish.charts.figure import NARROW, Absent, Figure, Plot
from mlbench.publish.charts.labels import grouped
from mlbench.publish.charts.theme import BLUE, GREEN, MUTED, ORANGE, SHADE, inline
from mlbench.store.tables import Epoch, Run, TelemetrySeries

NUM_BUCKETS = {False: 240, True: 120}
"""Points of a line, wide and narrow: about one every three pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Metrics that belong to one line. `per_device`: each GPU is a line of its own in the band; otherwise the metrics
    of one host are added up."""

    label: str
    pattern: str
    per_device: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One time line; `scale` turns the stored SI value into `unit`."""

    key: str
    title: str
    quantities: tuple[Quantity, ...]
    scale: float
    unit: str
    zero_to_one: bool = False


PANELS = (
    Panel(
        key="cpu",
        title="CPU use",
        quantities=(
            Quantity(label="busy", pattern=r"cpu_share"),
            Quantity(label="waiting for I/O", pattern=r"cpu_iowait_share"),
        ),
        scale=100.0,
        unit="%",
        zero_to_one=True,
    ),
    Panel(
        key="gpu",
        title="GPU use",
        quantities=(Quantity(label="busy", pattern=r"gpu\d+_use_share", per_device=True),),
        scale=100.0,
        unit="%",
        zero_to_one=True,
    ),
    Panel(
        key="gpu_power",
        title="GPU power, one GPU",
        quantities=(Quantity(label="power", pattern=r"gpu\d+_power_w", per_device=True),),
        scale=1.0,
        unit="W",
    ),
    Panel(
        key="memory",
        title="Memory, one host",
        quantities=(
            Quantity(label="used", pattern=r"memory_used_bytes"),
            Quantity(label="page cache", pattern=r"page_cache_bytes"),
        ),
        scale=1e-9,
        unit="GB",
    ),
    Panel(
        key="network",
        title="Network, one host",
        quantities=(
            Quantity(label="received", pattern=r"net_.+_rx_bytes_per_s"),
            Quantity(label="sent", pattern=r"net_.+_tx_bytes_per_s"),
        ),
        scale=1e-6,
        unit="MB/s",
    ),
    Panel(
        key="disk",
        title="Disks, one host",
        quantities=(
            Quantity(label="read", pattern=r"disk_.+_read_bytes_per_s"),
            Quantity(label="written", pattern=r"disk_.+_write_bytes_per_s"),
        ),
        scale=1e-6,
        unit="MB/s",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One quantity over time: shape (num_buckets,) each; None where nothing was measured."""

    label: str
    times_s: tuple[float, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    num_lines: int

    @property
    def overall(self) -> float | None:
        known = [value for value in self.mean if value is not None]
        return sum(known) / len(known) if known else None


def traces(panel: Panel, series: Iterable[TelemetrySeries], span: tuple[float, float], max_buckets: int) -> list[Trace]:
    """The lines of a panel over `span` (seconds since run_start); a quantity that nobody measured is left out.

    A line has at most `max_buckets` points, and on a short run so few that each holds a sample or two: a bucket
    without one would be a gap that nobody measured."""
    found = []
    patterns = [re.compile(quantity.pattern) for quantity in panel.quantities]
    rows = [row for row in series if any(pattern.fullmatch(row.metric) for pattern in patterns)]
    counts = [count for row in rows if (count := _num_inside(row, span)) > 0]
    usual = median_low(counts) if counts else 0  # one metric that came late must not make all lines coarse
    num_buckets = max(1, min(max_buckets, int(usual / _SAMPLES_PER_BUCKET)))
    for quantity, pattern in zip(panel.quantities, patterns, strict=True):
        groups: dict[str, list[list[float | None]]] = {}
        for row in rows:
            if not pattern.fullmatch(row.metric):
                continue
            values = _bucketed(row, span, num_buckets)
            owner = f"{row.host}/{row.metric}" if quantity.per_device else row.host
            groups.setdefault(owner, []).append(values)
        lines = [_added(members) for members in groups.values()]
        if lines and any(value is not None for line in lines for value in line):
            found.append(_trace(quantity.label, lines, span, panel.scale))
    return found


_SAMPLES_PER_BUCKET = 1.5


def _num_inside(row: TelemetrySeries, span: tuple[float, float]) -> int:
    return bisect_left(row.times_s, span[1]) - bisect_left(row.times_s, span[0])


def _bucketed(row: TelemetrySeries, span: tuple[float, float], num_buckets: int) -> list[float | None]:
    """Means of a series over equal parts of the span."""
    start, stop = span
    step = (stop - start) / num_buckets
    found: list[float | None] = []
    first = bisect_left(row.times_s, start)
    for number in range(1, num_buckets + 1):
        last = bisect_left(row.times_s, start + number * step, lo=first)
        known = [value for value in row.points[first:last] if value is not None]
        found.append(sum(known) / len(known) if known else None)
        first = last
    return found


def _added(members: Sequence[Sequence[float | None]]) -> list[float | None]:
    if len(members) == 1:
        return list(members[0])
    return [
        sum(known) if (known := [value for value in column if value is not None]) else None
        for column in zip(*members, strict=True)
    ]


def _trace(label: str, lines: Sequence[Sequence[float | None]], span: tuple[float, float], scale: float) -> Trace:
    step = (span[1] - span[0]) / len(lines[0])
    columns = [[value * scale for value in column if value is not None] for column in zip(*lines, strict=True)]
    return Trace(
        label=label,
        times_s=tuple(span[0] + (number + 0.5) * step for number in range(len(columns))),
        mean=tuple(sum(column) / len(column) if column else None for column in columns),
        low=tuple(min(column, default=None) for column in columns),
        high=tuple(max(column, default=None) for column in columns),
        num_lines=len(lines),
    )


def run_span(run: Run, series: Iterable[TelemetrySeries]) -> tuple[float, float] | None:
    """From the first sample (the start-up is of interest) to run_stop, in seconds since run_start."""
    starts = [row.times_s[0] for row in series if row.times_s]
    stops = [row.times_s[-1] for row in series if row.times_s]
    if not starts:
        return None
    start, stop = min(starts), max(stops)
    if run.time_to_train_s is not None:
        stop = min(stop, run.time_to_train_s)
    return (start, stop) if stop > start else None


def telemetry_figures(run: Run, series: Sequence[TelemetrySeries], *, name: str) -> list[Plot]:
    """One plot a panel; `name` is the run's, for captions. `series` are the run's time lines."""
    title = "Telemetry"
    span = run_span(run, series)
    if span is None:
        return [Absent(key="telemetry", title=title, reason=f"no telemetry was recorded in {name}")]
    plots: list[Plot] = []
    for panel in PANELS:
        key = f"telemetry_{panel.key}"
        found = traces(panel, series, span, NUM_BUCKETS[False])
        if not found:
            plots.append(Absent(key=key, title=panel.title, reason=f"telemetry of {name} holds no such metric"))
            continue
        plots.append(_figure(key, panel, run, series, span, found, name))
    return plots


def _figure(
    key: str,
    panel: Panel,
    run: Run,
    series: Sequence[TelemetrySeries],
    span: tuple[float, float],
    found: Sequence[Trace],
    name: str,
) -> Figure:
    words = [
        f"{trace.label} {grouped(trace.overall or 0.0, 3)} {panel.unit} on average"
        + (f" over {trace.num_lines} lines" if trace.num_lines > 1 else "")
        for trace in found
    ]
    band = max(trace.num_lines for trace in found)
    what = "GPUs" if any(quantity.per_device for quantity in panel.quantities) else "hosts"
    return Figure(
        key=key,
        title=panel.title,
        caption=f"{name}"
        + (f"; line: mean of {band} {what}, band: lowest to highest" if band > 1 else "")
        + ("; shaded: every second epoch." if run.epoch_rows else "."),
        alt=f"Time line of {panel.title} in {panel.unit} through {name}: {'; '.join(words)}.",
        draw=lambda width: _draw(
            panel, run.epoch_rows, span, traces(panel, series, span, NUM_BUCKETS[width <= NARROW]), width
        ),
    )


def _draw(panel: Panel, epochs: Sequence[Epoch], span: tuple[float, float], found: Sequence[Trace], width: int) -> Any:
    import altair as alt

    factor, unit = (60.0, "min") if span[1] - span[0] >= 600 else (1.0, "s")
    rows = [
        {
            "time": round(time_s / factor, 4),
            "mean": _rounded(trace.mean[number]),
            "low": _rounded(trace.low[number]),
            "high": _rounded(trace.high[number]),
            "quantity": trace.label,
        }
        for trace in found
        for number, time_s in enumerate(trace.times_s)
    ]
    x = alt.X(
        "time:Q",
        title=f"time since run_start, {unit}",
        scale=alt.Scale(domain=[span[0] / factor, span[1] / factor], nice=False),
        axis=alt.Axis(grid=False, tickCount=5 if width <= NARROW else 10),
    )
    scale = _value_scale(panel, found)
    y = alt.Y("mean:Q", title=panel.unit, scale=scale, axis=alt.Axis(tickCount=4, minExtent=40))
    labels = [trace.label for trace in found]
    colour = alt.Color(
        "quantity:N",
        scale=alt.Scale(domain=labels, range=[BLUE, ORANGE, GREEN][: len(labels)]),
        legend=alt.Legend(symbolOpacity=1, symbolType="stroke") if len(labels) > 1 else None,
    )
    layers = []
    shades = [
        {
            "start": max(span[0], row.start_s) / factor,
            "stop": min(span[1], row.start_s + row.duration_s) / factor,
            "words": f"epoch {row.epoch_num:g}" if row.epoch_num is not None else "epoch",
        }
        for row in sorted(epochs, key=lambda item: item.start_s)[::2]
        if row.start_s < span[1] and row.start_s + row.duration_s > span[0]
    ]
    if shades:
        shading = alt.Chart(inline(shades)).mark_rect(color=SHADE)
        layers.append(shading.encode(x=alt.X("start:Q"), x2="stop:Q", description="words:N"))
    if span[0] < 0:
        begin = alt.Chart(inline([{"time": 0}])).mark_rule(color=MUTED, strokeDash=[3, 3])
        layers.append(begin.encode(x=x))
    base = alt.Chart(inline(rows))
    if any(trace.num_lines > 1 for trace in found):
        layers.append(
            base.mark_area(opacity=0.22, interpolate="linear").encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
        )
    layers.append(base.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour))
    if len(rows) <= 3 * len(found):  # too few for a line to be seen
        layers.append(base.mark_circle(size=40).encode(x=x, y=y, color=colour))
    return alt.layer(*layers).properties(width=width - 70, height=130)


def _value_scale(panel: Panel, found: Sequence[Trace]) -> Any:
    """From zero, since a share or a rate is read against it; a line that is zero throughout gets room above."""
    import altair as alt

    if panel.zero_to_one:
        return alt.Scale(domain=[0, 100])
    highest = max((value for trace in found for value in trace.high if value is not None), default=0.0)
    return alt.Scale(zero=True) if highest > 0 else alt.Scale(domain=[0, 1])


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
