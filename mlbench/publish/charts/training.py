"""Plots of the runs themselves: images a second, run-to-run spread, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlbench.analyse.compare import SAMPLES_PER_S, SAMPLES_PER_S_FIRST, Sample
from mlbench.analyse.scaling import scaling_table
from mlbench.publish.charts.figure import NARROW, Absent, Figure, Plot
from mlbench.publish.charts.labels import (
    grouped,
    minutes_or_seconds,
    num_workers,
    set_labels,
    size_label,
    worker_noun,
)
from mlbench.publish.charts.theme import BLUE, GREEN, GREY, INK, MUTED, ORANGE, SERIES, SKY
from mlbench.publish.comparison import counted, good_runs, sample, scaling_point
from mlbench.store.tables import Run, RunSet

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
        caption=_throughput_caption(scaling, bars),
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


def _throughput_caption(scaling: bool, bars: Sequence[_Bar]) -> str:
    text = (
        "Bars are means over the good runs, dots the single runs. In the first epoch the data still come from storage."
    )
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
    rows = [
        {
            "label": bar.label,
            "kind": bar.kind,
            "rate": bar.mean,
            "text": grouped(bar.mean),
            "words": f"{bar.label}, {bar.kind}: {grouped(bar.mean, 6)} samples/s, mean of {len(bar.sample.values)}",
        }
        for bar in bars
    ]
    dots = [
        {"label": bar.label, "kind": bar.kind, "rate": value, "words": f"one run: {grouped(value, 6)} samples/s"}
        for bar in bars
        for value in bar.sample.values
    ]
    x = alt.X(
        "label:N",
        sort=list(labels),
        title=None,
        axis=alt.Axis(labelAngle=0 if len(labels) <= (2 if narrow else 5) else -35, labelLimit=width / 2, grid=False),
        scale=alt.Scale(paddingInner=0.3, paddingOuter=0.2),
    )
    offset = alt.XOffset("kind:N", sort=[OVERALL, FIRST], scale=alt.Scale(paddingInner=0.06))
    y = alt.Y("rate:Q", title="samples/s", axis=alt.Axis(format="~s" if narrow else ",.0f", tickCount=6))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=[OVERALL, FIRST], range=[BLUE, SKY]), legend=alt.Legend())
    base = alt.Chart(alt.InlineData(values=rows))
    layers = [
        base.mark_bar().encode(x=x, xOffset=offset, y=y, color=colour, description="words:N"),
        alt.Chart(alt.InlineData(values=dots))
        .mark_circle(size=22, opacity=0.85, color=INK)
        .encode(x=x, xOffset=offset, y=y, description="words:N"),
    ]
    if len(rows) <= (6 if narrow else 12):
        layers.append(
            base.mark_text(dy=-9, fontSize=11).encode(x=x, xOffset=offset, y=y, text="text:N", color=alt.value(INK))
        )
    if len(linear) > 1:
        line = alt.Chart(alt.InlineData(values=list(linear)))
        layers.append(
            line.mark_line(color=ORANGE, strokeDash=[5, 4], point={"color": ORANGE, "size": 30}).encode(x=x, y=y)
        )
        marks = [
            {"label": item["label"], "rate": item["rate"], "text": f"{efficiency[item['label']]:.1%}"}
            for item in linear
            if item["label"] in efficiency
        ]
        layers.append(
            alt.Chart(alt.InlineData(values=marks))
            .mark_text(dy=-24, fontSize=12, color=ORANGE, fontWeight="bold")
            .encode(x=x, y=y, text="text:N")
        )
    return alt.layer(*layers).properties(width=width - 80, height=260 if narrow else 320)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dot:
    """One run of the strip plot; `role` is kept, dropped or lost."""

    label: str
    run: Run
    role: str


KEPT, DROPPED, LOST = "enters the mean", "dropped: fastest or slowest", "not converged"


def run_roles(run_set: RunSet) -> dict[int, str]:
    """Run.index -> what the olympic mean makes of it. Where no olympic mean was formed, nothing is dropped.

    A run that did not converge is the slowest, so it is the one dropped at that end."""
    runs = counted(run_set)
    good = [run for run in runs if run.converged and run.time_to_train_s is not None]
    roles = {run.index: KEPT if run in good else LOST for run in runs}
    if run_set.olympic_mean_s is None or len(good) < 3 or len(runs) != (run_set.repeats_asked or len(runs)):
        return roles
    ordered = sorted(good, key=lambda run: run.time_to_train_s or 0.0)
    roles[ordered[0].index] = DROPPED
    if len(good) == len(runs):
        roles[ordered[-1].index] = DROPPED
    return roles


def spread_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Time to train of every run, with those that the olympic mean drops."""
    key, title = "spread", "Run-to-run spread"
    labels = set_labels(run_sets)
    dots = [
        _Dot(label=label, run=run, role=role)
        for label, run_set in zip(labels, run_sets, strict=True)
        for role_of in [run_roles(run_set)]
        for run in counted(run_set)
        if run.time_to_train_s is not None
        for role in [role_of[run.index]]
    ]
    dots = [dot for dot in dots if dot.role != LOST or dot.run.status == "success" or dot.run.status == "aborted"]
    if not dots:
        return Absent(key=key, title=title, reason="no run came to its end, so there is no time to train")
    means = [
        {"label": label, "time": run_set.olympic_mean_s}
        for label, run_set in zip(labels, run_sets, strict=True)
        if run_set.olympic_mean_s is not None
    ]
    return Figure(
        key=key,
        title=title,
        caption="Each mark is one run. The olympic mean (vertical line) drops the fastest and the slowest; a run that "
        "did not converge counts as the slowest whatever its time.",
        alt="Strip plot of time to train. " + _dots_in_words(dots),
        draw=lambda width: _draw_spread(dots, labels, means, width),
    )


def _dots_in_words(dots: Sequence[_Dot]) -> str:
    parts = []
    for label in dict.fromkeys(dot.label for dot in dots):
        times = [
            minutes_or_seconds(dot.run.time_to_train_s or 0.0) + ("" if dot.role == KEPT else f" ({dot.role})")
            for dot in dots
            if dot.label == label
        ]
        parts.append(f"{label}: {', '.join(times)}.")
    return " ".join(parts)


def _draw_spread(dots: Sequence[_Dot], labels: Sequence[str], means: Sequence[dict[str, Any]], width: int) -> Any:
    import altair as alt

    slowest = max(dot.run.time_to_train_s or 0.0 for dot in dots)
    factor, unit = (60.0, "min") if slowest >= 600 else (1.0, "s")
    rows = [
        {
            "label": dot.label,
            "time": (dot.run.time_to_train_s or 0.0) / factor,
            "role": dot.role,
            "words": f"run {dot.run.index}: {minutes_or_seconds(dot.run.time_to_train_s or 0.0)}, {dot.role}",
            "run": str(dot.run.index),
        }
        for dot in dots
    ]
    narrow = width <= NARROW
    one = len(set(labels)) == 1
    x = alt.X("time:Q", title=f"time to train, {unit}", scale=alt.Scale(zero=False, nice=True, padding=18))
    y = alt.Y(
        "label:N", sort=list(labels), title=None, axis=None if one else alt.Axis(labelLimit=130 if narrow else 260)
    )
    roles = [KEPT, DROPPED, LOST]
    present = [role for role in roles if any(row["role"] == role for row in rows)]
    colours = {KEPT: BLUE, DROPPED: GREY, LOST: ORANGE}
    shapes = {KEPT: "circle", DROPPED: "triangle-up", LOST: "cross"}
    base = alt.Chart(alt.InlineData(values=rows))
    marks = base.mark_point(size=110, filled=True, opacity=0.9).encode(
        x=x,
        y=y,
        color=alt.Color("role:N", scale=alt.Scale(domain=present, range=[colours[role] for role in present])),
        shape=alt.Shape("role:N", scale=alt.Scale(domain=present, range=[shapes[role] for role in present])),
        description="words:N",
    )
    numbers = base.mark_text(dy=-14, fontSize=11, color=MUTED).encode(x=x, y=y, text="run:N")
    layers = [marks, numbers]
    if means:
        values = [{"label": item["label"], "time": item["time"] / factor} for item in means]
        layers.insert(
            0,
            alt.Chart(alt.InlineData(values=values)).mark_tick(color=GREEN, thickness=2.5, size=40).encode(x=x, y=y),
        )
    names = 0 if one else min(260, 30 + max(len(label) for label in labels) * 7)
    return alt.layer(*layers).properties(
        width=width - 60 - (min(names, 130) if narrow else names), height=max(90, 56 * len(set(labels)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Accuracy of one run."""

    name: str
    run: Run


def accuracy_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Accuracy against time and against epoch, with the target."""
    key, title = "accuracy", "Accuracy"
    several = len(run_sets) > 1
    lines = [
        _Line(name=label if several else f"run {run.index}", run=run)
        for label, run_set in zip(set_labels(run_sets), run_sets, strict=True)
        for run in (good_runs(run_set) if several else counted(run_set))
        if any(item.epoch_num is not None or item.time_s is not None for item in run.evaluations)
    ]
    if not lines:
        return Absent(key=key, title=title, reason="no run logged an evaluation")
    targets = {line.run.quality_target for line in lines} - {None}
    target = min(target for target in targets if target is not None) if targets else None
    reached = sum(line.run.converged for line in lines)
    ends = [line.run.final_accuracy for line in lines if line.run.final_accuracy is not None]
    words = f"last evaluations from {min(ends):.4f} to {max(ends):.4f}; " if ends else ""
    goal = f"the target {target:g} was reached by {reached} of {len(lines)} runs" if target else "no target is known"
    return Figure(
        key=key,
        title=title,
        caption="Top-1 accuracy on the validation images at each evaluation"
        + (f"; the dashed line is the target, {target:g}." if target else ".")
        + (" Runs that did not converge are dotted." if reached < len(lines) else ""),
        alt=f"Line charts of accuracy against time and against epoch: {words}{goal}.",
        draw=lambda width: _draw_accuracy(lines, target, width),
    )


def _draw_accuracy(lines: Sequence[_Line], target: float | None, width: int) -> Any:
    import altair as alt

    last = max((item.time_s or 0.0) for line in lines for item in line.run.evaluations)
    factor, unit = (60.0, "min") if last >= 600 else (1.0, "s")
    rows = [
        {
            "name": line.name,
            "run": number,
            "converged": line.run.converged,
            "accuracy": item.accuracy,
            "time": None if item.time_s is None else item.time_s / factor,
            "epoch": item.epoch_num,
            "words": f"{line.name}: {item.accuracy:.4f}",
        }
        for number, line in enumerate(lines)
        for item in line.run.evaluations
    ]
    names = list(dict.fromkeys(line.name for line in lines))
    narrow = width <= NARROW
    panels = []
    for field, title in (("time", f"time since run_start, {unit}"), ("epoch", "epoch, as logged")):
        values = [row for row in rows if row[field] is not None]
        if not values:
            continue
        x = alt.X(f"{field}:Q", title=title, scale=alt.Scale(zero=True))
        y = alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format=".2f", tickCount=6))
        marks = alt.Chart(alt.InlineData(values=values)).encode(
            x=x,
            y=y,
            detail="run:N",
            color=alt.Color(
                "name:N",
                scale=alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))]),
                legend=alt.Legend(columns=(1 if max(map(len, names)) > 24 else 3) if narrow else 0),
            ),
        )
        dash = alt.StrokeDash("converged:N", scale=alt.Scale(domain=[True, False], range=[[1, 0], [2, 3]]), legend=None)
        layers = [
            marks.mark_line(opacity=0.85).encode(strokeDash=dash),
            marks.mark_circle(size=26).encode(description="words:N"),
        ]
        if target is not None:
            layers.append(
                alt.Chart(alt.InlineData(values=[{"target": target}]))
                .mark_rule(strokeDash=[6, 4], color=INK)
                .encode(y="target:Q")
            )
        panels.append(alt.layer(*layers).properties(width=width - 70 if narrow else width // 2 - 70, height=230))
    return alt.vconcat(*panels) if narrow else alt.hconcat(*panels)
