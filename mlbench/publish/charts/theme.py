"""Colours and style of every plot.

The colours are those of Okabe and Ito (Color Universal Design, 2008), told apart by colour-blind readers too. A plot
has no background, so that a page can put it on light or dark paper; `DARK` says which colours a dark page replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
PURPLE = "#aa4499"
SKY = "#56b4e9"
AMBER = "#c98a00"
GREY = "#7d858f"
_MORE = ("#882255", "#332288", "#117733", "#8a8a1f", "#661100")
"""Further colours of Paul Tol's muted scheme, for many run sets in one plot."""
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, GREY, *_MORE)

INK = "#1c2127"
MUTED = "#59626d"
GRID = "#dfe3e8"
SHADE = "#eef1f5"
PAPER = "#ffffff"

DARK = {
    INK: "#e8ebef",
    MUTED: "#aab3bf",
    GRID: "#333b46",
    SHADE: "#232a33",
    BLUE: "#3f9fe3",
    SKY: "#a5d8fa",
    ORANGE: "#ff8b4d",
    GREEN: "#3fcf9f",
    PURPLE: "#de8ad0",
    AMBER: "#f0b429",
    GREY: "#98a2ae",
    "#882255": "#d77fa8",
    "#332288": "#9d90e8",
    "#117733": "#69c98a",
    "#8a8a1f": "#c9c95a",
    "#661100": "#d98b6b",
}
"""Light colour -> the one that is legible on dark paper."""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def config() -> dict[str, Any]:
    """Vega-Lite's `config` of every plot."""
    return {
        "font": FONT,
        "background": None,
        "padding": 6,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED,
            "titleColor": INK,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "gridColor": GRID,
            "domainColor": MUTED,
            "tickColor": MUTED,
            "labelOverlap": True,
            "titlePadding": 8,
        },
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "orient": "top",
            "direction": "horizontal",
            "title": None,
            "offset": 6,
            "labelLimit": 320,
            "symbolStrokeWidth": 2,
            "columnPadding": 36,
        },
        "title": {"color": INK, "fontSize": 13, "fontWeight": "normal", "anchor": "start", "subtitleColor": MUTED},
        "header": {"labelColor": INK, "titleColor": INK},
        "text": {"color": INK, "fontSize": 12},
        "rule": {"color": MUTED},
        "range": {"category": list(SERIES)},
        "line": {"strokeWidth": 2},
    }


def inline(rows: Iterable[dict[str, Any]]) -> Any:
    """Altair's data for rows. A tuple, since Altair copies every row of a list at each step of describing a chart."""
    import altair as alt

    return alt.InlineData(values=tuple(rows))


def legend_columns(names: Sequence[str], width: int) -> int:
    """Columns of a legend above a plot of `width` pixels, so that it does not reach beyond it; 0 is one row."""
    widest = 60 + 7 * max(map(len, names))
    columns = max(1, width // widest)
    return 0 if columns >= len(names) else columns


def name_colour(names: Sequence[str], width: int) -> Any:
    """Altair's colour channel for the field `name`; no legend for more names than can be told apart."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=[SERIES[index % len(SERIES)] for index in range(len(names))])
    legend = alt.Legend(columns=legend_columns(names, width)) if len(names) <= len(SERIES) else None
    return alt.Color("name:N", scale=scale, legend=legend)
