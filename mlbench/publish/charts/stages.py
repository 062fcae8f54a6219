"""Plots of what was measured beside training: all-reduce, storage, and whether the bytes agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlbench.analyse.consistency import Consistency
from mlbench.analyse.units import size_text
from mlbench.collect.allreduce import peak_row
from mlbench.publish.charts.figure import NARROW, Absent, Figure, Plot
from mlbench.publish.charts.labels import grouped, rate_unit, set_labels
from mlbench.publish.charts.theme import BLUE, GREEN, GREY, INK, ORANGE, SERIES, SKY, inline, legend_columns
from mlbench.store.tables import AllReduceResult, RunSet, StorageResult
from mlbench.wording import count_of


def allreduce_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Bus bandwidth by message size, one line for each backend (and run set)."""
    key, title = "allreduce", "All-reduce bus bandwidth"
    several = len(run_sets) > 1
    series: dict[str, list[AllReduceResult]] = {}
    for label, run_set in zip(set_labels(run_sets), run_sets, strict=True):
        for row in run_set.allreduce:
            place = ", in place" if row.in_place else ""
            name = f"{row.backend} over {row.transport}, {count_of(row.num_ranks, 'rank')}{place}"
            series.setdefault(f"{label}: {name}" if several else name, []).append(row)
    usable = {name: good for name, rows in series.items() if (good := [row for row in rows if row.busbw_gb_per_s > 0])}
    if not usable:
        measured = any(run_set.allreduce for run_set in run_sets)
        reason = "every size took no time, which is no measurement" if measured else "all-reduce was not measured"
        return Absent(key=key, title=title, reason=reason)
    return Figure(
        key=key,
        title=title,
        caption="busbw as nccl-tests defines it, so that numbers of ranks can be compared; 1 GB = 10⁹ bytes. The peak "
        "at large sizes tells of the fabric, small sizes of latency.",
        alt="Line chart of all-reduce bus bandwidth by message size, sizes on a logarithmic axis. "
        + " ".join(_peak_in_words(name, rows) for name, rows in usable.items()),
        draw=lambda width: _draw_allreduce(usable, width),
    )


def _peak_in_words(name: str, rows: Sequence[AllReduceResult]) -> str:
    """The peak as every table has it, of large sizes, and the line's highest point where that is a small size."""
    peak = peak_row(rows)
    assert peak is not None
    highest = max(rows, key=lambda row: row.busbw_gb_per_s)
    words = f"{name}: peak at large sizes {_busbw_text(peak)}"
    return (
        f"{words}, highest point {_busbw_text(highest)}."
        if highest.busbw_gb_per_s > peak.busbw_gb_per_s
        else f"{words}."
    )


def _busbw_text(row: AllReduceResult) -> str:
    return f"{grouped(row.busbw_gb_per_s)} GB/s at {size_text(row.size_bytes)}"


def _draw_allreduce(series: dict[str, list[AllReduceResult]], width: int) -> Any:
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "series": name,
            "size": row.size_bytes,
            "busbw": row.busbw_gb_per_s,
            "wrong": "wrong values" if row.num_wrong else "right",
            "words": f"{size_text(row.size_bytes)}: {grouped(row.busbw_gb_per_s)} GB/s",
        }
        for name, items in series.items()
        for row in sorted(items, key=lambda item: item.size_bytes)
    ]
    narrow = width <= NARROW
    sizes = sorted({row["size"] for row in rows})
    step = -(-len(sizes) // (5 if narrow else 11))
    label = (
        "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.4~g') + ' GiB' : "
        "datum.value >= 1048576 ? format(datum.value / 1048576, '.4~g') + ' MiB' : "
        "datum.value >= 1024 ? format(datum.value / 1024, '.4~g') + ' KiB' : datum.value + ' B'"
    )
    x = alt.X(
        "size:Q",
        title="message size",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=sizes[::-1][::step][::-1], labelExpr=label, labelOverlap=True),
    )
    y = alt.Y("busbw:Q", title="busbw, GB/s", axis=alt.Axis(tickCount=6))
    names = list(series)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))]),
        legend=alt.Legend(columns=legend_columns(names, width)),
    )
    base = alt.Chart(inline(rows)).encode(x=x, y=y, color=colour)
    wrong = base.transform_filter("datum.wrong == 'wrong values'").mark_point(
        shape="cross", size=120, color=ORANGE, strokeWidth=2
    )
    layers = [base.mark_line(), base.mark_circle(size=36).encode(description="words:N")]
    if any(row["wrong"] != "right" for row in rows):
        layers.append(wrong)
    return alt.layer(*layers).properties(width=width - 75, height=260)


def storage_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Read bandwidth of each pattern on each host and over all hosts."""
    key, title = "storage", "Storage bandwidth"
    several = len(run_sets) > 1
    found = [
        (f"{label}: {_where(row)}" if several else _where(row), row)
        for label, run_set in zip(set_labels(run_sets), run_sets, strict=True)
        for row in run_set.storage
        if row.status == "measured" and row.bandwidth_bytes_per_s
    ]
    if not found:
        asked = any(run_set.storage for run_set in run_sets)
        reason = "every storage test failed; the table says why" if asked else "storage was not measured"
        return Absent(key=key, title=title, reason=reason)
    words = [f"{where}, {row.pattern}: {_rate_text(row.bandwidth_bytes_per_s or 0.0)}" for where, row in found[:12]]
    return Figure(
        key=key,
        title=title,
        caption="Reads with the patterns of training; 1 GB = 10⁹ bytes. Warm reads come from memory and say nothing "
        "about the storage.",
        alt="Bar chart of read bandwidth by pattern and host. " + "; ".join(words) + ".",
        draw=lambda width: _draw_storage(found, width),
    )


def _where(row: StorageResult) -> str:
    return row.endpoint or row.host or "all hosts"


def _rate_text(bytes_per_s: float) -> str:
    factor, unit = rate_unit(bytes_per_s)
    return f"{grouped(bytes_per_s / factor)} {unit}"


def _draw_storage(found: Sequence[tuple[str, StorageResult]], width: int) -> Any:
    import altair as alt

    factor, unit = rate_unit(max(row.bandwidth_bytes_per_s or 0.0 for _, row in found))
    rows: list[dict[str, Any]] = [
        {
            "where": where,
            "pattern": row.pattern,
            "rate": (row.bandwidth_bytes_per_s or 0.0) / factor,
            "cache": row.cache,
            "text": grouped((row.bandwidth_bytes_per_s or 0.0) / factor),
            "words": f"{where}, {row.pattern}, {row.cache}: {_rate_text(row.bandwidth_bytes_per_s or 0.0)}",
        }
        for where, row in found
    ]
    caches = list(dict.fromkeys(row["cache"] for row in rows))
    colours = {"direct": BLUE, "cold": GREEN, "warm": GREY}
    narrow = width <= NARROW
    longest = max(len(where) for where, _ in found)
    taken = min(110 if narrow else 240, 20 + 7 * longest)
    x = alt.X("rate:Q", title=f"read bandwidth, {unit}", axis=alt.Axis(tickCount=4 if narrow else 6))
    y = alt.Y("where:N", sort=list(dict.fromkeys(where for where, _ in found)), title=None)
    y = y.axis(labelLimit=taken)
    offset = alt.YOffset("cache:N", sort=caches)
    colour = alt.Color("cache:N", scale=alt.Scale(domain=caches, range=[colours.get(cache, SKY) for cache in caches]))
    step = {"step": 26 if len(caches) == 1 else 20}
    panels = []
    for pattern in dict.fromkeys(row["pattern"] for row in rows):
        base = alt.Chart(inline(row for row in rows if row["pattern"] == pattern))
        bars = base.mark_bar(height={"band": 0.85})
        bars = bars.encode(x=x, y=y, yOffset=offset, color=colour, description="words:N")
        texts = base.mark_text(align="left", dx=4, color=INK).encode(x=x, y=y, yOffset=offset, text="text:N")
        panels.append(
            alt.layer(bars, texts).properties(title=f"{pattern} reads", width=width - taken - 60, height=step)
        )
    return alt.vconcat(*panels, spacing=12).resolve_scale(x="shared", color="shared", yOffset="independent")


def consistency_figure(found: Consistency | None, reason: str, *, run: str) -> Plot:
    """What the training rate implies, what disks and networks moved, what the storage stage could deliver."""
    key, title = "consistency", "Do the bytes agree?"
    if found is None:
        return Absent(key=key, title=title, reason=reason)
    values = [
        ("needed", found.expected_bytes_per_s, BLUE),
        ("moved", found.measured_bytes_per_s, GREEN),
        ("possible", found.ceiling_bytes_per_s, GREY),
    ]
    known = [(name, value, colour) for name, value, colour in values if value]
    if len(known) < 2:
        return Absent(key=key, title=title, reason="neither telemetry nor the storage stage says what could be moved")
    unknown = [name for name, value, _ in values if not value]
    return Figure(
        key=key,
        title=title,
        caption=f"First epoch of {run}, when the data come from storage. Needed: samples/s × mean image; moved: "
        "read by disks and received by networks of all hosts; possible: the storage stage in the pattern of training."
        + (f" Not measured: {'; '.join(unknown)}." if unknown else ""),
        alt="Bar chart of bytes per second. " + "; ".join(f"{name}: {_rate_text(value)}" for name, value, _ in known),
        draw=lambda width: _draw_consistency(known, width),
    )


def _draw_consistency(known: Sequence[tuple[str, float, str]], width: int) -> Any:
    import altair as alt

    factor, unit = rate_unit(max(value for _, value, _ in known))
    rows = [{"name": name, "rate": value / factor, "text": _rate_text(value)} for name, value, _ in known]
    base = alt.Chart(inline(rows))
    x = alt.X("rate:Q", title=unit, axis=alt.Axis(tickCount=4))
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=110))
    colour = alt.Color(
        "name:N",
        scale=alt.Scale(domain=[name for name, _, _ in known], range=[colour for _, _, colour in known]),
        legend=None,
    )
    bars = base.mark_bar(height={"band": 0.7}).encode(x=x, y=y, color=colour, description="text:N")
    texts = base.mark_text(align="left", dx=4, color=INK).encode(x=x, y=y, text="text:N")
    return alt.layer(bars, texts).properties(width=width - 150, height={"step": 34})
