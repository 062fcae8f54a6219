"""Plots of throughput: samples a second by size, by run set, by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlbench.analyse.compare import SAMPLES_PER_S, SAMPLES_PER_S_FIRST, Sample
from mlbench.analyse.scaling import scaling_table
from mlbench.publish.charts.figure import NARROW, Absent, Figure, Plot
from mlbench.publish.charts.labels import (
    grouped,
    num_workers,
    set_labels,
    size_label,
    worker_noun,
)
from mlbench.publish.charts.theme import BLUE, INK, ORANGE, SKY, inline, name_colour
from mlbench.publish.comparison import good_runs, sample, scaling_point
from mlbench.store.tables import RunSet
from mlbench.wording import count_of

OVERALL, FIRST = "overall", "first epoch"
_KINDS = ((OVERALL, SAMPLES_PER_S), (FIRST, SAMPLES_PER_S_FIRST))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """One bar of the throughput plot."""

    label: str
    kind: str
    sample: Sample
    mean: float


def is_scaling(run_sets: Sequence[RunSet]) -> bool:
    """Whether the sets are one system at different sizes, so that linear scaling is a question at all."""
    counts = [num_workers(run_set) for run_set in run_sets]
    alike = {(run_set.origin, run_set.org, run_set.benchmark, worker_noun(run_set)) for run_set in run_sets}
    return len(run_sets) > 1 and None not in counts and len(set(counts)) == len(counts) and len(alike) == 1


def throughput_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Samples a second over the whole run and in the first epoch; the white paper's Figure 5."""
    key, title = "throughput", "Samples per second"
    scaling = is_scaling(run_sets)
    ordered = sorted(run_sets, key=lambda item: num_workers(item) or 0) if scaling else list(run_sets)
    labels = [size_label(item) for item in ordered] if scaling else _labels_with_size(ordered)
    bars = [
        _Bar(label=label, kind=kind, sample=found, mean=found.mean)
        for label, run_set in zip(labels, ordered, strict=True)
        for kind, metric in _KINDS
        if (found := sample(run_set, metric)).mean is not None
    ]
    if not bars:
        return Absent(key=key, title=title, reason="no good run logged enough to tell samples a second from evaluation")
    linear = _linear(ordered, labels) if scaling else []
    efficiency = _efficiency(ordered, labels) if scaling else {}
    return Figure(
        key=key,
        title=title,
        caption=_throughput_caption(scaling, bars, warm=any(run_set.cache == "warm" for run_set in ordered)),
        alt=f"Bar chart of samples per second. {_bars_in_words(bars, efficiency)}",
        draw=lambda width: _draw_throughput(bars, labels, linear, efficiency, width),
    )


def _labels_with_size(run_sets: Sequence[RunSet]) -> list[str]:
    named = zip(set_labels(run_sets), run_sets, strict=True)
    return [label if size_label(item) in label else f"{label}, {size_label(item)}" for label, item in named]


def _linear(run_sets: Sequence[RunSet], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Linear scaling from the smallest size that was measured."""
    measured = [
        (count, mean)
        for run_set in run_sets
        if (count := num_workers(run_set)) and (mean := sample(run_set, SAMPLES_PER_S).mean) is not None
    ]
    if not measured:
        return []
    base, rate = measured[0]
    return [
        {"label": label, "rate": rate * count / base}
        for label, run_set in zip(labels, run_sets, strict=True)
        if (count := num_workers(run_set)) and count >= base
    ]


def _efficiency(run_sets: Sequence[RunSet], labels: Sequence[str]) -> dict[str, float]:
    """label -> scaling efficiency against the smallest size."""
    points = [point for run_set in run_sets if (point := scaling_point(run_set)) is not None]
    by_count = {row.point.num_ranks: row.efficiency for row in scaling_table(points)}
    pairs = zip(labels, points, strict=True) if len(points) == len(labels) else ()
    return {label: found for label, point in pairs if (found := by_count[point.num_ranks]) is not None}


def _throughput_caption(scaling: bool, bars: Sequence[_Bar], *, warm: bool) -> str:
    first = (
        "WARM CACHE: the first epoch may come from memory too" if warm else "In the first epoch data come from storage"
    )
    text = f"Bars are means over the good runs, dots the single runs. {first}."
    if scaling:
        text += " The line is linear scaling from the smallest size, the percentage the efficiency against it."
    missing = sorted({bar.label for bar in bars if bar.kind == OVERALL} - {b.label for b in bars if b.kind == FIRST})
    if missing:
        text += f" No first epoch: {', '.join(missing)} logs blocks of epochs only."
    return text


def _bars_in_words(bars: Sequence[_Bar], efficiency: dict[str, float]) -> str:
    parts = []
    for label in dict.fromkeys(bar.label for bar in bars):
        rates = [f"{grouped(bar.mean)} {bar.kind}" for bar in bars if bar.label == label]
        percent = f", efficiency {efficiency[label]:.1%}" if label in efficiency else ""
        parts.append(f"{label}: {', '.join(rates)}{percent}.")
    return " ".join(parts)


def _draw_throughput(
    bars: Sequence[_Bar],
    labels: Sequence[str],
    linear: Sequence[dict[str, Any]],
    efficiency: dict[str, float],
    width: int,
) -> Any:
    import altair as alt

    narrow = width <= NARROW
    rows: list[dict[str, Any]] = [
        {
            "label": bar.label,
            "kind": bar.kind,
            "rate": bar.mean,
            "top": max(bar.mean, *bar.sample.values),
            "text": _short(bar.mean) if narrow else grouped(bar.mean),
            "words": f"{bar.label}, {bar.kind}: {grouped(bar.mean, 6)} samples/s, mean of {len(bar.sample.values)}",
        }
        for bar in bars
    ]
    dots = [
        {"label": bar.label, "kind": bar.kind, "rate": value, "words": f"one run: {grouped(value, 6)} samples/s"}
        for bar in bars
        for value in bar.sample.values
        if len(bar.sample.values) > 1
    ]
    if len(labels) == 1 or (not linear and len(labels) > (2 if narrow else 4)):
        return _lying_bars(rows, dots, labels, width)
    highest = max([row["top"] for row in rows] + [item["rate"] for item in linear])
    x = alt.X(
        "label:N",
        sort=list(labels),
        title=None,
        axis=alt.Axis(
            labelAngle=0 if len(labels) <= (2 if narrow else 5) else -35,
            labelLimit=width / max(2, len(labels)) if len(labels) <= (2 if narrow else 5) else 220,
            grid=False,
        ),
        scale=alt.Scale(paddingInner=0.3, paddingOuter=0.2),
    )
    offset = alt.XOffset("kind:N", sort=[OVERALL, FIRST], scale=alt.Scale(paddingInner=0.06))
    scale = alt.Scale(domain=[0, highest * 1.12], nice=False)
    y = alt.Y("rate:Q", title="samples/s", scale=scale, axis=alt.Axis(format="~s" if narrow else ",.0f", tickCount=6))
    base = alt.Chart(inline(rows))
    layers = [base.mark_bar().encode(x=x, xOffset=offset, y=y, color=_kind_colour(), description="words:N")]
    if dots:
        layers.append(
            alt.Chart(inline(dots))
            .mark_circle(size=20, opacity=0.9, color=INK)
            .encode(x=x, xOffset=offset, y=y, description="words:N")
        )
    if len(rows) <= (6 if narrow else 14):
        texts = base.mark_text(dy=-9, fontSize=11, color=INK)
        layers.append(texts.encode(x=x, xOffset=offset, y=alt.Y("top:Q", scale=scale), text="text:N"))
    if len(linear) > 1:
        layers += _linear_layers(linear, efficiency, x, y)
    return alt.layer(*layers).properties(width=width - 80, height=260 if narrow else 340)


def _linear_layers(linear: Sequence[dict[str, Any]], efficiency: dict[str, float], x: Any, y: Any) -> list[Any]:
    import altair as alt

    line = alt.Chart(inline(linear))
    marks = [
        {"label": item["label"], "rate": item["rate"], "text": f"{efficiency[item['label']]:.1%}"}
        for item in linear
        if efficiency.get(item["label"], 1.0) != 1.0  # the smallest size is what the others are held against
    ]
    texts = alt.Chart(inline(marks)).mark_text(dy=-13, fontSize=12, color=ORANGE, fontWeight="bold")
    return [
        line.mark_line(color=ORANGE, strokeDash=[5, 4], point={"color": ORANGE, "size": 30}).encode(x=x, y=y),
        texts.encode(x=x, y=y, text="text:N"),
    ]


def _lying_bars(
    rows: Sequence[dict[str, Any]], dots: Sequence[dict[str, Any]], labels: Sequence[str], width: int
) -> Any:
    """One run set alone, or many: bars that lie, so that neither bars nor names need more room than there is."""
    import altair as alt

    one = len(labels) == 1
    scale = alt.Scale(domain=[0, max(row["top"] for row in rows) * 1.2], nice=False)
    ticks = alt.Axis(tickCount=4, format="~s" if width <= NARROW else ",.0f")
    taken = 70 if one else min(width // 3, 20 + 6 * max(map(len, labels)))
    channels: dict[str, Any] = {}
    if one:
        channels["y"] = alt.Y("kind:N", sort=[OVERALL, FIRST], title=None)
    else:
        channels["y"] = alt.Y("label:N", sort=list(labels), title=None, axis=alt.Axis(labelLimit=taken))
        channels["yOffset"] = alt.YOffset("kind:N", sort=[OVERALL, FIRST])
    base = alt.Chart(inline({**row, "text": f"mean {row['text']}" if one else row["text"]} for row in rows))
    x = alt.X("rate:Q", title="samples/s", scale=scale, axis=ticks)
    bars = base.mark_bar(height={"band": 0.75 if one else 0.9})
    layers = [bars.encode(x=x, color=_kind_colour(legend=not one), description="words:N", **channels)]
    if dots:
        points = alt.Chart(inline(dots)).mark_circle(size=24 if one else 12, opacity=0.9, color=INK)
        layers.append(points.encode(x=x, description="words:N", **channels))
    texts = base.mark_text(align="left", dx=8, color=INK, fontSize=12 if one else 11)
    layers.append(texts.encode(x=alt.X("top:Q", scale=scale), text="text:N", **channels))
    return alt.layer(*layers).properties(width=width - taken - 40, height={"step": 42 if one else 17})


def _kind_colour(*, legend: bool = True) -> Any:
    import altair as alt

    scale = alt.Scale(domain=[OVERALL, FIRST], range=[BLUE, SKY])
    return alt.Color("kind:N", scale=scale, legend=alt.Legend() if legend else None)


def _short(value: float) -> str:
    """`20.7k`, for a phone."""
    return f"{value / 1e6:.3g}M" if value >= 1e6 else f"{value / 1e3:.3g}k" if value >= 1e4 else grouped(value, 3)


def epochs_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Samples a second of every epoch: the first from storage, later ones from cache, and any that is slow."""
    key, title = "epochs", "Samples per second by epoch"
    several = len(run_sets) > 1
    points: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for label, run_set in zip(set_labels(run_sets), run_sets, strict=True):
        for run in good_runs(run_set):
            name = label if several else f"run {run.index}"
            for number, row in enumerate(sorted(run.epoch_rows, key=lambda item: item.start_s)):
                if row.kind != "epoch" or row.samples_per_s is None:
                    continue
                names[name] = None
                words = f"{name}, epoch {number + 1}: {grouped(row.samples_per_s, 5)} samples/s"
                points.append(
                    {
                        "name": name,
                        "run": f"{label} {run.index}",
                        "epoch": number + 1,
                        "rate": row.samples_per_s,
                        "words": words,
                    }
                )
    if not points:
        return Absent(key=key, title=title, reason="no good run logs its epochs one by one")
    if max(point["epoch"] for point in points) < 2:
        return Absent(key=key, title=title, reason="the good runs have one epoch each")
    rates = [point["rate"] for point in points]
    runs = count_of(len({point["run"] for point in points}), "run")
    return Figure(
        key=key,
        title=title,
        caption="Training alone, evaluation left out; epochs counted from 1. The axis does not begin at zero.",
        alt=f"Line chart of samples per second by epoch, {runs}: from {grouped(min(rates))} to {grouped(max(rates))}.",
        draw=lambda width: _draw_epochs(points, list(names), width),
    )


def _draw_epochs(points: Sequence[dict[str, Any]], names: Sequence[str], width: int) -> Any:
    import altair as alt

    narrow = width <= NARROW
    last = max(point["epoch"] for point in points)
    step = -(-last // (8 if narrow else 20))
    ticks = alt.Axis(values=list(range(1, last + 1, step)), format="d", grid=False)
    base = alt.Chart(inline(points)).encode(
        x=alt.X("epoch:Q", title="epoch", scale=alt.Scale(nice=False, domain=[0.5, last + 0.5]), axis=ticks),
        y=alt.Y(
            "rate:Q",
            title="samples/s",
            scale=alt.Scale(zero=False, padding=10),
            axis=alt.Axis(format="~s" if narrow else ",.4~r", tickCount=5),
        ),
        detail="run:N",
        color=name_colour(names, width),
    )
    return alt.layer(
        base.mark_line(opacity=0.8, strokeWidth=1.5), base.mark_circle(size=22).encode(description="words:N")
    ).properties(width=width - 80, height=200)
