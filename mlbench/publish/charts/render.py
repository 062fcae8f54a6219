"""Charts to SVG, PNG, PDF and interactive HTML, without a browser and without the network (vl-convert)."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

from mlbench.errors import ConfigError
from mlbench.publish.charts.figure import Figure
from mlbench.publish.charts.theme import PAPER, config

PNG_SCALE = 2.0
_LARGEST = 1.15
"""A plot of a page fills its column up to this scale, so that plots of unequal drawn width line up."""
_OPENING = re.compile(r"<svg\b[^>]*>")
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)([A-Za-z][\w-]*)')


class PlotFormat(Enum):
    """What a plot is saved as; `html` is interactive and holds all scripts (about 0.9 MB)."""

    svg = "svg"
    png = "png"
    pdf = "pdf"
    html = "html"


def draw(figure: Figure, width: int) -> Any:
    """The figure's chart. Altair validates every part of it as it is made, rows and all, unless told not to; the tests
    validate, a report with thousands of rows need not."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        return figure.draw(width)


def vega_lite(chart: Any, *, validate: bool = False) -> dict[str, Any]:
    """The chart's Vega-Lite description with the style of all plots."""
    described: dict[str, Any] = chart.to_dict(validate=validate)
    return described | {"config": config()}


def svg_text(chart: Any) -> str:
    """The chart as SVG without a background."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(vega_lite(chart), allowed_base_urls=[]))


def on_paper(svg: str) -> str:
    """An SVG on white paper, for a file that is looked at alone."""
    return _OPENING.sub(lambda match: f'{match[0]}<rect width="100%" height="100%" fill="{PAPER}"/>', svg, count=1)


def inline_svg(svg: str, prefix: str) -> str:
    """An SVG to stand in a page: its ids get `prefix`, since ids of a page are one family; its size is the page's."""
    renamed = _IDENTIFIER.sub(lambda match: f"{match[1]}{prefix}-{match[2]}", svg)
    opening = _OPENING.search(renamed)
    size = _SIZE.search(renamed)
    if opening is None or size is None:
        raise ValueError("not an SVG with a viewBox")
    largest = f"max-width:{float(size[1]) * _LARGEST:.0f}px"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[1]} {size[2]}" style="{largest}">'
    return renamed[: opening.start()] + start + renamed[opening.end() :]


def svg_as(svg: str, form: PlotFormat) -> bytes:
    """A drawn SVG as the content of a file. Raises ValueError for html, which needs the chart."""
    import vl_convert

    paper = on_paper(svg)
    if form is PlotFormat.svg:
        return paper.encode()
    if form is PlotFormat.png:
        return bytes(vl_convert.svg_to_png(paper, scale=PNG_SCALE))
    if form is PlotFormat.pdf:
        return bytes(vl_convert.svg_to_pdf(paper))
    raise ValueError(f"{form.value}: an SVG cannot become interactive")


def interactive_html(chart: Any) -> bytes:
    """A page with the chart alone, its scripts inside."""
    import vl_convert

    page = vl_convert.vegalite_to_html(vega_lite(chart) | {"background": PAPER}, bundle=True)
    return str(page).encode()


def chart_as(chart: Any, form: PlotFormat) -> bytes:
    return interactive_html(chart) if form is PlotFormat.html else svg_as(svg_text(chart), form)


def save_chart(chart: Any, path: Path) -> None:
    """Write a chart to a file; its ending decides: .svg, .png, .pdf or .html.

    Raises: ConfigError: another ending, or the file cannot be written.
    """
    try:
        form = PlotFormat(path.suffix.lower().removeprefix("."))
    except ValueError as error:
        known = ", ".join(f".{form.value}" for form in PlotFormat)
        raise ConfigError(f"plot {path}: found the ending {path.suffix!r}, expected one of {known}") from error
    content = chart_as(chart, form)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"plot {path}: cannot be written ({error.strerror or error})") from error
