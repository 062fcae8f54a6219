"""A report as HTML and Markdown. Everything from logs and databases is escaped: as HTML by Jinja, as Markdown here."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mlbench.publish.charts.theme import DARK
from mlbench.publish.report.blocks import Commands, FigureBlock, Report, TableBlock, Text, Tiles
from mlbench.wording import count_of

_TEMPLATES = "mlbench.publish"
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_MAX_CELL = 2000
"""Characters of a cell; what is longer is cut with a note, and is whole in the CSV files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The SVG of a figure to stand in a page, wide and narrow."""

    wide: str
    narrow: str


def html_page(report: Report, drawn: Mapping[str, Drawn]) -> str:
    """One self-contained page: styles, script and plots inside; its policy forbids every request."""
    from markupsafe import Markup

    script, style = _template("report.js"), _template("report.css") + _dark_plots()
    template = _environment(autoescape=True).get_template("report.html")
    page: str = template.render(
        report=report,
        drawn={key: (Markup(item.wide), Markup(item.narrow)) for key, item in drawn.items()},
        style=Markup(style),
        script=Markup(script),
        script_hash=_hash(script),
    )
    return page


def markdown_page(report: Report, plots: Mapping[str, Sequence[str]]) -> str:
    """The same report as Markdown; `plots` is figure key -> files of it, the picture first."""
    environment = _environment(autoescape=False)
    environment.filters["md"] = markdown_text
    environment.filters["cell"] = lambda value: markdown_text("–" if value is None else str(value))
    text = environment.get_template("report.md").render(report=report, plots=plots)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_KINDS = {Text: "text", Tiles: "tiles", TableBlock: "table", FigureBlock: "figure", Commands: "commands"}


def markdown_text(value: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(readable(value).split()))


def readable(value: str | None) -> str:
    r"""A cell: control and direction-changing characters as `\x1b`, long text cut."""
    if value is None:
        return "–"
    text = "".join(
        character if character.isprintable() or character == "\n" else _shown(character) for character in value
    )
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}… ({count_of(len(text), 'character')})"


def _shown(character: str) -> str:
    if character == "\t" or character.isspace():
        return " "
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"


def _environment(*, autoescape: bool) -> Any:
    from jinja2 import DictLoader, Environment, StrictUndefined

    names = ("report.html", "report.md")
    environment = Environment(
        loader=DictLoader({name: _template(f"{name}.j2") for name in names}),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["readable"] = readable
    environment.filters["kind"] = lambda block: _KINDS[type(block)]
    return environment


def _template(name: str) -> str:
    return resources.files(_TEMPLATES).joinpath("templates", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The script's hash for the page's policy: no other script can run in it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _dark_plots() -> str:
    """Rules that turn the colours of the plots into those of dark paper."""
    rules = [
        f'.plot svg [{kind}="{light}"]{{{kind}:{dark}}}' for light, dark in DARK.items() for kind in ("fill", "stroke")
    ]
    return "@media screen and (prefers-color-scheme: dark){" + "".join(rules) + "}\n"
