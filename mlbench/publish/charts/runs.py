"""Plots of the runs: run-to-run spread and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from mlbench.publish.charts.figure import NARROW, Absent, Figure, Plot
from mlbench.publish.charts.labels import minutes_or_seconds, set_labels
from mlbench.publish.charts.theme import BLUE, GREEN, GREY, INK, MUTED, ORANGE, inline, name_colour
from mlbench.publish.comparison import counted, good_runs
from mlbench.store.tables import Run, RunSet
from mlbench.wording import count_of


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
    ended = ("success", "aborted", "fail")
    dots = [dot for dot in dots if dot.role != LOST or dot.run.status in ended]
    if not dots:
        return Absent(key=key, title=title, reason="no run came to its end, so there is no time to train")
    means = {
        label: run_set.olympic_mean_s or fmean(dot.run.time_to_train_s or 0.0 for dot in dots if dot.label == label)
        for label, run_set in zip(labels, run_sets, strict=True)
        if any(dot.label == label for dot in dots)
    }
    return Figure(
        key=key,
        title=title,
        caption="Each mark is one run. The olympic mean (green line; where there is none, the plain mean) drops the "
        "fastest and the slowest; a run that did not converge counts as the slowest whatever its time.",
        alt="Strip plot of time to train. " + _dots_in_words(dots),
        draw=lambda width: _draw_spread(dots, list(means), means, width),
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


def _draw_spread(dots: Sequence[_Dot], labels: Sequence[str], means: dict[str, float], width: int) -> Any:
    """One run set: times. Several: percent from each set's own mean, so that their spreads can be compared."""
    import altair as alt

    narrow, one = width <= NARROW, len(labels) == 1
    slowest = max(dot.run.time_to_train_s or 0.0 for dot in dots)
    factor, unit = (60.0, "min") if slowest >= 600 else (1.0, "s")
    rows = []
    for dot in dots:
        time_s = dot.run.time_to_train_s or 0.0
        mean = means[dot.label]
        rows.append(
            {
                "label": dot.label,
                "place": time_s / factor if one else (time_s / mean - 1.0) * 100.0,
                "role": dot.role,
                "words": f"run {dot.run.index}: {minutes_or_seconds(time_s)}, {dot.role}",
                "run": str(dot.run.index),
            }
        )
    title = f"time to train, {unit}" if one else "time to train, % from the mean of the set"
    x = alt.X(
        "place:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=True, padding=14),
        axis=alt.Axis(tickCount=4 if narrow else 7),
    )
    names = alt.Axis(labelLimit=120 if narrow else 260)
    y = alt.Y("label:N", sort=list(labels), title=None, axis=None if one else names)
    present = [role for role in (KEPT, DROPPED, LOST) if any(row["role"] == role for row in rows)]
    colours = {KEPT: BLUE, DROPPED: GREY, LOST: ORANGE}
    shapes = {KEPT: "circle", DROPPED: "triangle-up", LOST: "cross"}
    base = alt.Chart(inline(rows))
    legend = alt.Legend(columns=1 if narrow else 0)
    marks = base.mark_point(size=110, filled=True, opacity=0.9).encode(
        x=x,
        y=y,
        color=alt.Color(
            "role:N", scale=alt.Scale(domain=present, range=[colours[role] for role in present]), legend=legend
        ),
        shape=alt.Shape("role:N", scale=alt.Scale(domain=present, range=[shapes[role] for role in present])),
        description="words:N",
    )
    values = [{"label": label, "place": mean / factor if one else 0.0} for label, mean in means.items()]
    ticks = alt.Chart(inline(values)).mark_tick(color=GREEN, thickness=2.5, size=28)
    layers = [ticks.encode(x=x, y=y), marks]
    if one:
        layers.append(base.mark_text(dy=-20, fontSize=11, color=MUTED).encode(x=x, y=y, text="run:N"))
    taken = 0 if one else min(120 if narrow else 260, 20 + max(len(label) for label in labels) * 7)
    return alt.layer(*layers).properties(width=width - 40 - taken, height=max(80, 48 * len(labels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Accuracy of one run."""

    name: str
    run: Run


def accuracy_figure(run_sets: Sequence[RunSet]) -> Plot:
    """Accuracy against time and against epoch, with the target."""
    key, title = "accuracy", "Accuracy against time and epoch"
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
    runs = count_of(len(lines), "run")
    goal = f"the target {target:g} was reached by {reached} of {runs}" if target else "no target is known"
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
        ticks = alt.Axis(tickCount=6, tickMinStep=1 if field == "epoch" else 0)
        x = alt.X(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=ticks)
        y = alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format=".2f", tickCount=6))
        marks = alt.Chart(inline(values)).encode(
            x=x,
            y=y,
            detail="run:N",
            color=name_colour(names, width),
        )
        dash = alt.StrokeDash("converged:N", scale=alt.Scale(domain=[True, False], range=[[1, 0], [2, 3]]), legend=None)
        layers = [
            marks.mark_line(opacity=0.85).encode(strokeDash=dash),
            marks.mark_circle(size=26).encode(description="words:N"),
        ]
        if target is not None:
            layers.append(
                alt.Chart(inline([{"target": target}])).mark_rule(strokeDash=[6, 4], color=INK).encode(y="target:Q")
            )
        panels.append(alt.layer(*layers).properties(width=width - 70 if narrow else width // 2 - 70, height=230))
    return alt.vconcat(*panels) if narrow else alt.hconcat(*panels)
