"""From run sets to the files of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mlbench import __version__
from mlbench.analyse.compare import BUSBW, STORAGE_TRAINING
from mlbench.publish.charts import NARROW, WIDE, PlotFormat
from mlbench.publish.charts.labels import grouped, minutes_or_seconds, set_labels
from mlbench.publish.charts.render import draw, inline_svg, interactive_html, svg_as, svg_text
from mlbench.publish.comparison import allreduce_path, sample
from mlbench.publish.report.blocks import Badge, Block, Report, Section, TableBlock, Tiles, Verdict
from mlbench.publish.report.collected import Collected, Material, Named
from mlbench.publish.report.csv_files import csv_files
from mlbench.publish.report.measured import measured_sections
from mlbench.publish.report.page import Drawn, html_page, markdown_page
from mlbench.publish.report.told import told_sections
from mlbench.publish.report.words import (
    asked,
    badges,
    good_of_asked,
    is_measurement,
    moment,
    number,
    subtitle,
    verdict_of,
)
from mlbench.store.tables import RunSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """`files` is name -> content, relative to the report's folder."""

    report: Report
    files: dict[str, bytes]


def build_report(
    materials: Sequence[Material],
    *,
    formats: Sequence[PlotFormat],
    made_at: datetime,
    command: str,
    progress: Callable[[str], None] = lambda text: None,
) -> Built:
    """The whole report. `formats` are the files of each plot; the page has its own; `command` writes it again."""
    report = describe(materials, made_at=made_at, command=command)
    drawn: dict[str, Drawn] = {}
    files: dict[str, bytes] = {}
    plots: dict[str, list[str]] = {}
    for figure in report.figures:
        progress(f"drawing {figure.key}")
        wide = svg_text(draw(figure, WIDE))
        narrow = svg_text(draw(figure, NARROW))
        drawn[figure.key] = Drawn(
            wide=inline_svg(wide, f"{figure.key}-w"), narrow=inline_svg(narrow, f"{figure.key}-n")
        )
        for form in formats:
            name = f"plots/{figure.key}.{form.value}"
            files[name] = interactive_html(draw(figure, WIDE)) if form is PlotFormat.html else svg_as(wide, form)
            plots.setdefault(figure.key, []).append(name)
    files["report.html"] = html_page(report, drawn).encode()
    files["report.md"] = markdown_page(report, {key: _pictures_first(names) for key, names in plots.items()}).encode()
    lines = {item.run_set.run_set: item.telemetry for item in materials if item.telemetry is not None}
    files |= csv_files([item.run_set for item in materials], lines)
    return Built(report=report, files=files)


def describe(materials: Sequence[Material], *, made_at: datetime, command: str) -> Report:
    """The report as blocks, before anything is drawn."""
    run_sets = [item.run_set for item in materials]
    alone = len(materials) == 1
    named = [
        Named(material=material, label=label, key="" if alone else f"{index + 1}", alone=alone)
        for index, (material, label) in enumerate(zip(materials, set_labels(run_sets), strict=True))
    ]
    shelf = Collected()
    sections = [_summary(named), *measured_sections(named, shelf), *told_sections(named, shelf, command)]
    order = _ORDER
    kept = sorted((item for item in sections if item.blocks), key=lambda item: order.index(item.key))
    rehearsals = [item.label for item in named if item.run_set.rehearsal]
    return Report(
        title=_title(named),
        subtitle=subtitle(run_sets[0]) if alone else f"{len(run_sets)} run sets side by side",
        badges=badges(run_sets[0]) if alone else [Badge(f"{len(run_sets)} run sets")],
        banner=_banner(rehearsals, alone=alone),
        verdicts=[_verdict(item) for item in named],
        sections=kept,
        missing=shelf.missing,
        made=f"{moment(made_at)}, mlbench {__version__}",
        command=command,
        figures=shelf.figures,
    )


def _verdict(item: Named) -> Verdict:
    """Score and compliance in one place; what was not checked is said."""
    found = verdict_of(item.run_set, None if item.alone else item.label)
    return dataclasses.replace(found, details=[*found.details, item.material.compliance.sentence])


_ORDER = (
    "summary", "comparison", "throughput", "runs", "accuracy", "allreduce", "storage", "telemetry", "consistency",
    "sizing", "findings", "materials", "software", "provenance", "repeat",
)  # fmt: skip


_MAX_NAMES_IN_TITLE = 3


def _title(named: Sequence[Named]) -> str:
    if len(named) == 1:
        run_set = named[0].run_set
        return " ".join(part for part in (run_set.round, run_set.org, run_set.system) if part and part != "unnamed")
    labels = [item.label for item in named]
    if len(labels) > _MAX_NAMES_IN_TITLE:
        return f"{labels[0]} and {len(labels) - 1} others"
    return " and ".join(labels) if len(labels) == 2 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _banner(rehearsals: Sequence[str], *, alone: bool) -> str | None:
    if not rehearsals:
        return None
    who = "" if alone else f" ({', '.join(rehearsals)})"
    return f"REHEARSAL{who}: nothing was trained; no number of it is a result"


def _summary(named: Sequence[Named]) -> Section:
    if len(named) == 1:
        return Section(key="summary", title="Summary", blocks=[Tiles(tiles=_tiles(named[0].run_set))])
    return Section(key="summary", title="Side by side", blocks=[_side_by_side(named)])


def _tiles(run_set: RunSet) -> list[tuple[str, str, str]]:
    """The numbers that are asked for first; what was not measured is said, not shown as zero."""
    tiles = []
    if run_set.score_s is not None and run_set.score_status == "valid":
        tiles.append((minutes_or_seconds(run_set.score_s), "score", "time to train, olympic mean"))
    elif run_set.mean_s is not None:
        why = "invalid, not a score" if run_set.score_status == "invalid" else "raw, not a score"
        tiles.append((minutes_or_seconds(run_set.mean_s), "mean time to train", why))
    if not is_measurement(run_set):
        tiles.append((f"{run_set.num_converged} of {asked(run_set)}", "good of asked", "runs"))
    rates = (("samples/s", run_set.samples_per_s), ("samples/s, first epoch", run_set.samples_per_s_first_epoch))
    tiles += [(grouped(rate), name, "mean of the good runs") for name, rate in rates if rate is not None]
    for metric, name in _STAGE_TILES:
        value = sample(run_set, metric).mean
        if value is not None:
            scale = 1.0 if metric.unit == "GB/s" else 1e9
            how = allreduce_path(run_set) if metric is BUSBW else None
            tiles.append((f"{grouped(value / scale)} GB/s", name, how or "measured before the runs"))
    if run_set.cv is not None:
        tiles.append((f"{run_set.cv * 100:.2f} %", "run-to-run spread", "coefficient of variation"))
    return tiles


_STAGE_TILES = ((BUSBW, "all-reduce busbw, peak"), (STORAGE_TRAINING, "storage, training pattern"))


def _side_by_side(named: Sequence[Named]) -> Block:
    rows: list[list[str | None]] = []
    for title, cell in _SIDE_BY_SIDE:
        rows.append([title, *[cell(item.run_set) for item in named]])
    return TableBlock(
        title="Key numbers",
        columns=("", *[item.label for item in named]),
        rows=[row for row in rows if any(text is not None for text in row[1:])],
        numbers=[item.label for item in named],
    )


def _score(run_set: RunSet) -> str:
    if run_set.score_status == "valid" and run_set.score_s is not None:
        return minutes_or_seconds(run_set.score_s)
    return "INVALID, no score" if run_set.score_status == "invalid" else "RAW, not a score"


_SIDE_BY_SIDE: Sequence[tuple[str, Callable[[RunSet], str | None]]] = (
    ("what", lambda row: "REHEARSAL" if row.rehearsal else f"imported, {row.round}" if row.round else row.origin),
    ("score", _score),
    ("why not a score", lambda row: row.score_reason if row.score_status != "valid" else None),
    ("good runs", good_of_asked),
    ("mean time to train, s", lambda row: number(row.mean_s, ",.2f")),
    ("spread (cv)", lambda row: number(row.cv, ".2%")),
    ("samples/s", lambda row: number(row.samples_per_s, ",.1f")),
    ("samples/s, first epoch", lambda row: number(row.samples_per_s_first_epoch, ",.1f")),
    ("cache", lambda row: "WARM" if row.cache == "warm" else row.cache),
    ("division", lambda row: row.division),
    ("ruleset", lambda row: row.ruleset),
    ("accelerators", lambda row: number(row.num_accelerators, "d")),
    ("ranks", lambda row: number(row.num_ranks, "d")),
    ("nodes", lambda row: number(row.num_nodes, "d")),
    ("global batch size", lambda row: number(row.global_batch_size, ",d")),
    ("framework", lambda row: row.framework),
    ("started", lambda row: moment(row.started_at)),
    ("run set", lambda row: row.run_set),
)


def _pictures_first(names: Sequence[str]) -> list[str]:
    """SVG or PNG before what Markdown cannot show."""
    order = (".svg", ".png", ".pdf", ".html")
    return sorted(names, key=lambda name: order.index(name[name.rindex(".") :]))
