"""Plots for decisions: how much storage, and which of two run sets is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlbench.analyse.compare import Comparison, Outcome
from mlbench.publish.charts.figure import NARROW, WIDE, Absent, Figure, Plot
from mlbench.publish.charts.labels import grouped, set_labels
from mlbench.publish.charts.theme import BLUE, GREEN, GREY, INK, MUTED, ORANGE, inline
from mlbench.publish.comparison import SideBySide
from mlbench.publish.sizing import SizingAnswer, units_text
from mlbench.wording import count_of


def sizing_figure(answer: SizingAnswer | None, reason: str) -> Plot:
    """Demand over numbers of GPUs, and what whole units of storage deliver."""
    key, title = "sizing", "Storage demand and supply"
    if answer is None:
        return Absent(key=key, title=title, reason=reason)
    demand = answer.sizing.demand
    points = [f"{count_of(count, 'GPU')} {grouped(rate)} GB/s" for count, rate, _ in answer.curve]
    return Figure(
        key=key,
        title=title,
        caption=f"{answer.system} with {answer.storage}. Demand is linear in GPUs: {demand.formula}. Steps are what "
        f"the {answer.unit} count that is needed delivers in the limiting quantity.",
        alt=f"Line chart of storage demand over numbers of GPUs: {', '.join(points)}.",
        draw=lambda width: sizing_chart(answer, width=width),
    )


def sizing_chart(answer: SizingAnswer, *, width: int = WIDE) -> Any:
    """The chart of `mlbench size --plot`: demand, supply of the units needed, and the number asked for."""
    import altair as alt

    narrow = width <= NARROW
    limit = answer.sizing.limiting
    demand_now = answer.sizing.demand.bytes_per_s
    # The limit's own unit (operations/s, bytes/s) as the bytes/s that it lets through.
    per_unit = None if limit is None else limit.per_unit * demand_now / limit.demand / 1e9
    rows: list[dict[str, Any]] = [
        {
            "gpus": count,
            "demand": rate,
            "supply": None if units is None or per_unit is None else units * per_unit,
            "unit_text": "" if units is None else units_text(units, answer.unit),
            "words": f"{count_of(count, 'GPU')}: {grouped(rate)} GB/s"
            + ("" if units is None else f", {units_text(units, answer.unit)}"),
        }
        for count, rate, units in answer.curve
    ]
    x = alt.X("gpus:O", title="GPUs", axis=alt.Axis(labelAngle=0))
    y_title = "GB/s"
    base = alt.Chart(inline(rows))
    layers = []
    kinds = ["demand with headroom"]
    if per_unit is not None:
        kinds.append("supply of the units needed")
        layers.append(
            base.transform_calculate(kind=f"'{kinds[1]}'")
            .mark_bar(opacity=0.45, color=GREEN, width={"band": 0.6})
            .encode(x=x, y=alt.Y("supply:Q", title=y_title), color=_kind(kinds), description="words:N")
        )
        layers.append(
            base.mark_text(dy=-8, fontSize=11, color=MUTED).encode(x=x, y=alt.Y("supply:Q"), text="unit_text:N")
        )
    demand = base.transform_calculate(kind=f"'{kinds[0]}'")
    layers.append(demand.mark_line(color=BLUE).encode(x=x, y=alt.Y("demand:Q", title=y_title), color=_kind(kinds)))
    layers.append(demand.mark_circle(size=48).encode(x=x, y="demand:Q", color=_kind(kinds), description="words:N"))
    asked = [row for row in rows if row["gpus"] == answer.sizing.demand.num_gpus]
    layers.append(
        alt.Chart(inline(asked)).mark_point(size=220, color=ORANGE, strokeWidth=2.5).encode(x=x, y="demand:Q")
    )
    return alt.layer(*layers).properties(width=width - 75, height=230 if narrow else 280)


def _kind(kinds: Sequence[str]) -> Any:
    import altair as alt

    return alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(kinds), range=[BLUE, GREEN][: len(kinds)]),
        legend=alt.Legend(symbolOpacity=1),
    )


def comparison_figure(found: Sequence[SideBySide]) -> Plot:
    """Ratio of every metric with its 95 % interval, each run set against the first."""
    key, title = "comparison", "Against the first run set"
    if not found:
        return Absent(key=key, title=title, reason="there is nothing of its kind to compare with")
    labels = set_labels([found[0].base, *(item.other for item in found)])[1:]
    pairs = [
        (label, comparison)
        for label, item in zip(labels, found, strict=True)
        for comparison in item.comparisons
        if comparison.ratio is not None
    ]
    if not pairs:
        return Absent(key=key, title=title, reason="no metric was measured on both sides")
    words = [f"{label}, {item.metric.label}: {item.in_words}, {item.verdict}" for label, item in pairs]
    return Figure(
        key=key,
        title=title,
        caption="Ratio of means, the first run set is 1; right is better for every metric (times and epochs are turned "
        "over). Bars are 95 % intervals; without a bar there are too few runs for one.",
        alt="Dot plot of ratios with 95 % intervals. " + "; ".join(words) + ".",
        draw=lambda width: _draw_comparison(pairs, width, several=len(labels) > 1),
    )


def _advantage(item: Comparison, ratio: float) -> float:
    """The ratio so that above 1 is better whatever the metric's direction."""
    return 1.0 / ratio if item.metric.direction.value.startswith("lower") else ratio


def _draw_comparison(pairs: Sequence[tuple[str, Comparison]], width: int, *, several: bool) -> Any:
    import altair as alt

    rows: list[dict[str, Any]] = []
    for label, item in pairs:
        assert item.ratio is not None
        known = [_advantage(item, end) for end in item.interval] if item.interval else []
        rows.append(
            {
                "metric": item.metric.label,
                "set": label,
                "ratio": _advantage(item, item.ratio),
                "low": min(known, default=None),
                "high": max(known, default=None),
                "outcome": _OUTCOME_WORDS[item.outcome],
                "words": f"{label}, {item.metric.label}: {item.in_words}, {item.verdict}",
            }
        )
    present = [word for word in dict.fromkeys(_OUTCOME_WORDS.values()) if any(row["outcome"] == word for row in rows)]
    colours = {"better": GREEN, "worse": ORANGE, "within noise": GREY, "too few runs": MUTED, "n/a": MUTED}
    scale = alt.Scale(domain=present, range=[colours[word] for word in present])
    colour = alt.Color("outcome:N", scale=scale, legend=alt.Legend(symbolOpacity=1))
    if not several:
        return _ratios(rows, "metric", colour, width)
    # One panel a metric: the ratios of different metrics lie far apart, those of one metric are what is compared.
    panels = [
        _ratios([row for row in rows if row["metric"] == metric], "set", colour, width).properties(title=metric)
        for metric in dict.fromkeys(row["metric"] for row in rows)
    ]
    return alt.vconcat(*panels, spacing=10).resolve_scale(color="shared")


def _ratios(rows: Sequence[dict[str, Any]], names: str, colour: Any, width: int) -> Any:
    """Points with their intervals; `names` is the field that the lines are called by."""
    import altair as alt

    narrow = width <= NARROW
    longest = max(len(row[names]) for row in rows)
    taken = min(width // 3, 16 + 6 * longest) if names == "set" else min(170, 12 + 6 * longest)
    base = alt.Chart(inline(rows))
    axis = alt.Axis(format=".3~f", tickCount=5 if narrow else 8)
    x = alt.X("ratio:Q", title="ratio, right is better", scale=alt.Scale(zero=False, padding=14), axis=axis)
    y = alt.Y(f"{names}:N", sort=None, title=None, axis=alt.Axis(labelLimit=taken, grid=True))
    one = alt.Chart(inline([{"ratio": 1}])).mark_rule(color=INK, strokeDash=[4, 3])
    bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3, opacity=0.6)
    return alt.layer(
        one.encode(x=x),
        bars.encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(size=90, filled=True, opacity=1).encode(x=x, y=y, color=colour, description="words:N"),
    ).properties(width=width - 40 - taken, height={"step": 28 if names == "metric" else 20})


_OUTCOME_WORDS = {
    Outcome.better: "better",
    Outcome.worse: "worse",
    Outcome.within_noise: "within noise",
    Outcome.too_few_runs: "too few runs",
    Outcome.not_available: "n/a",
}
