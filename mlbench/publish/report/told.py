"""Sections of what is told beside the measurements: comparison, sizing, findings, materials, provenance, commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlbench.analyse.compare import Comparison, Sample
from mlbench.collect.runlog import PIPELINE, PIPELINE_REASON
from mlbench.publish.charts import comparison_figure, sizing_figure
from mlbench.publish.charts.labels import grouped
from mlbench.publish.comparison import SideBySide, counted, side_by_side
from mlbench.publish.input_pipeline import input_pipeline_text
from mlbench.publish.report.blocks import Block, Commands, Section, TableBlock, Text, Tone
from mlbench.publish.report.collected import Collected, Named
from mlbench.publish.report.words import joined, moment, plain
from mlbench.publish.sizing import SizingAnswer, units_text
from mlbench.store.tables import NoteRow, RunSet

_MAX_DIFFERENCES = 60
_NOT_PROVENANCE = {"command_line", "environment", "packages", "clock_offsets_s", "notes", "hosts", "data_mount"}


def told_sections(named: Sequence[Named], shelf: Collected, command: str) -> Iterator[Section]:
    if len(named) > 1:
        yield _comparison(named, shelf)
    yield Section(key="sizing", title="Storage sizing", blocks=[b for item in named for b in _sizing(item, shelf)])
    yield Section(key="findings", title="Findings", blocks=[b for item in named for b in _findings(item)])
    yield Section(key="materials", title="Bill of materials", blocks=[b for item in named for b in _materials(item)])
    yield Section(key="software", title="Software", blocks=[b for item in named for b in _software(item)])
    yield Section(key="provenance", title="Provenance", blocks=[b for item in named for b in _provenance(item)])
    yield Section(key="repeat", title="Repeat it", blocks=[*[b for i in named for b in _repeat(i)], _again(command)])


def _comparison(named: Sequence[Named], shelf: Collected) -> Section:
    base = named[0]
    found = [side_by_side(base.run_set, item.run_set) for item in named[1:]]
    alike = [item for item in found if item.other.rehearsal == base.run_set.rehearsal]
    blocks: list[Block] = list(shelf.plot(comparison_figure(alike)))
    for item, pair in zip(named[1:], found, strict=True):
        blocks += _pair(base.label, item.label, pair)
    blocks.append(
        Text(
            text="The verdict is an exact permutation test at 5 %. With three runs against three it cannot show any "
            "difference; “within noise” means that these runs cannot tell the two apart, not that they are equal."
        )
    )
    return Section(key="comparison", title="Comparison", blocks=blocks)


def _pair(base: str, other: str, pair: SideBySide) -> list[Block]:
    main = pair.main
    tone = {"better": Tone.good, "worse": Tone.bad}.get(main.outcome.value, Tone.plain)
    if pair.base.rehearsal != pair.other.rehearsal:
        return [
            Text(text=f"{other} against {base}: not compared; one is a rehearsal, the other is real.", tone=Tone.warn)
        ]
    p_value = "" if main.p_value is None else f" (p = {main.p_value:.3f})"
    said = main.in_words if main.outcome.value in ("better", "worse", "n/a") else f"{main.verdict}: {main.in_words}"
    blocks: list[Block] = [Text(text=f"{other} against {base}, {main.metric.label}: {said}{p_value}.", tone=tone)]
    if pair.explanation:
        blocks.append(Text(text=f"{pair.explanation[0].upper()}{pair.explanation[1:]}."))
    blocks += [Text(text=f"Warning: {warning}.", tone=Tone.warn) for warning in pair.warnings]
    columns = ("metric", base, other, "change", "95 % interval of the ratio", "verdict")
    blocks.append(
        TableBlock(
            title=f"{other} against {base}",
            columns=columns,
            rows=[_metric_row(item) for item in pair.comparisons if item.base.values or item.other.values],
            numbers=(base, other),
            note="Mean ± coefficient of variation (n good of n asked).",
        )
    )
    differences = [
        [section, item.key, plain(item.base), plain(item.other)]
        for section, items in pair.differs.items()
        for item in items
    ]
    if differences:
        more = len(differences) - _MAX_DIFFERENCES
        blocks.append(
            TableBlock(
                title=f"What differs: {other} against {base}",
                columns=("in", "what", base, other),
                rows=differences[:_MAX_DIFFERENCES],
                note=f"And {more} more; `mlbench compare --json` shows all." if more > 0 else None,
                folded=len(differences) > 12,
            )
        )
    return blocks


def _metric_row(item: Comparison) -> list[str | None]:
    interval = f"{item.interval[0]:.4f} to {item.interval[1]:.4f}" if item.interval else None
    unit = item.metric.unit
    return [
        item.metric.label,
        _sample(item.base, unit),
        _sample(item.other, unit),
        item.in_words,
        interval,
        item.verdict,
    ]


def _sample(sample: Sample, unit: str) -> str | None:
    if sample.mean is None:
        return None
    value, shown = (sample.mean / 1e9, "GB/s") if unit == "bytes/s" else (sample.mean, unit)
    spread = "" if sample.cv is None else f" ± {sample.cv * 100:.2f} %"
    return f"{grouped(value, 5)} {shown}{spread} ({len(sample.values)}/{sample.num_asked})"


def _sizing(named: Named, shelf: Collected) -> list[Block]:
    answer = named.material.sizing
    blocks: list[Block] = []
    if answer is not None:
        blocks.append(Text(text=named.prefix + sizing_sentence(answer), tone=_sizing_tone(answer)))
        blocks.append(Text(text=f"{named.prefix}Rate: {answer.sizing.demand.rate.basis}."))
    return [*blocks, *shelf.plot(sizing_figure(answer, named.material.sizing_reason), named.key)]


def _sizing_tone(answer: SizingAnswer) -> Tone:
    if answer.sizing.feasible is None:
        return Tone.warn
    return Tone.good if answer.sizing.feasible else Tone.bad


def sizing_sentence(answer: SizingAnswer) -> str:
    """The answer with the limiting quantity, and whether later epochs come from memory."""
    sizing = answer.sizing
    limit = sizing.limiting
    text = f"{sizing.demand.formula}. "
    if limit is None:
        text += f"{answer.storage}: its profile knows no limit, so there is no answer"
    else:
        units = units_text(limit.units, answer.unit)
        text += f"{answer.storage}: {units}, limited by {limit.quantity} ({limit.use:.0%} used)"
        if sizing.feasible is False:
            text += "; too small"
    fits = answer.caching.fits
    cached = {
        True: "later epochs come from memory",
        False: "the data do not fit into memory, so every epoch loads the storage",
        None: "whether the data fit into memory is not known",
    }
    return f"{text}; {cached[fits]}."


def _findings(named: Named) -> list[Block]:
    compliance = named.material.compliance
    blocks: list[Block] = [Text(text=named.prefix + compliance.sentence, tone=compliance.tone)]
    notes = [note for note in named.run_set.notes if note.rule != "CONSISTENCY"]
    rows = [
        [
            finding.severity.value,
            finding.rule,
            "not checked" if finding.status.value == "not_checked" else "failed",
            _place(finding.file, finding.line),
            joined([finding.found, finding.expected and f"expected {finding.expected}", finding.remedy]),
        ]
        for finding in compliance.findings
    ]
    rows += [
        [note.severity, note.rule, "noted", _place(note.file, note.line), note.text] for note in _worst_first(notes)
    ]
    if rows:
        columns = ("severity", "rule", "status", "where", "finding")
        blocks.append(TableBlock(title=named.title("Findings"), columns=columns, rows=rows, folded=len(rows) > 15))
    else:
        blocks.append(Text(text=f"{named.prefix}No stage and no file gave a finding."))
    return blocks


def _place(file: str | None, line: int | None) -> str | None:
    return joined([file]) + (f":{line}" if line is not None else "") if file else None


def _worst_first(notes: Sequence[NoteRow]) -> list[NoteRow]:
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(notes, key=lambda note: order.get(note.severity, 3))


def _materials(named: Named) -> list[Block]:
    run_set = named.run_set
    blocks: list[Block] = []
    system = run_set.description
    if system is not None:
        told = {key: plain(value) for key, value in (system.description or {}).items() if value != "N/A"}
        known = [[key.replace("_", " "), value] for key, value in told.items() if value is not None]
        fallback = [
            [name.replace("_", " "), text]
            for name in ("system_name", "submitter", "num_nodes", "accelerators_per_node", "accelerator_model",
                         "host_processors_per_node", "host_processor_model", "framework")
            if (text := plain(getattr(system, name))) is not None
        ]  # fmt: skip
        blocks.append(
            TableBlock(
                title=named.title("System description"), columns=("part", "as described"), rows=known or fallback
            )
        )
    profiles: Mapping[str, Any] = (run_set.config or {}).get("hardware") or {}
    for kind in ("compute", "storage"):
        profile = profiles.get(kind)
        if isinstance(profile, dict):
            rows = [
                [key.replace("_", " "), text] for key, value in profile.items() if (text := plain(value)) is not None
            ]
            blocks.append(
                TableBlock(
                    title=named.title(f"Profile: {kind} {profile.get('name', '')}"),
                    columns=("part", "as in the profile"),
                    rows=rows,
                    folded=True,
                )
            )
    facts = _host_facts(run_set)
    if facts:
        blocks.append(
            TableBlock(
                title=named.title("Hosts, as they said themselves"), columns=("fact", "value", "hosts"), rows=facts
            )
        )
    return blocks or [Text(text=f"{named.prefix}Nothing is known of the hardware.")]


def _host_facts(run_set: RunSet) -> list[list[str | None]]:
    """Each fact once with the hosts that have it: a difference between hosts is seen."""
    hosts = sorted({fact.host for fact in run_set.host_facts})
    by_key: dict[str, dict[str, list[str]]] = {}
    for fact in run_set.host_facts:
        by_key.setdefault(fact.key, {}).setdefault(fact.value, []).append(fact.host)
    return [
        [key, value, "all" if len(owners) == len(hosts) > 1 else ", ".join(sorted(owners))]
        for key, values in by_key.items()
        for value, owners in values.items()
    ]


def _software(named: Named) -> list[Block]:
    run_set = named.run_set
    provenance: Mapping[str, Any] = run_set.provenance or {}
    rows: list[list[str | None]] = [
        [name, text]
        for name, value in (
            ("framework", run_set.framework),
            ("mlbench", provenance.get("mlbench_version")),
            ("python", provenance.get("python")),
            ("container image", provenance.get("container_image")),
            ("container digest", provenance.get("container_digest")),
            ("git commit", provenance.get("git_commit")),
            ("uncommitted changes", provenance.get("git_dirty")),
            ("worker, sha256", provenance.get("worker_sha256")),
        )
        if (text := plain(value)) is not None
    ]
    packages = provenance.get("packages")
    if isinstance(packages, dict):
        rows += [[str(name), plain(version)] for name, version in packages.items()]
    if not rows:
        return [Text(text=f"{named.prefix}No software version was recorded.")]
    return [TableBlock(title=named.title("Versions"), columns=("software", "version"), rows=rows)]


def _provenance(named: Named) -> list[Block]:
    run_set = named.run_set
    provenance: Mapping[str, Any] = run_set.provenance or {}
    facts: list[tuple[str, Any]] = [
        ("run set", run_set.run_set),
        ("origin", "imported" if run_set.origin == "import" else "run by mlbench"),
        ("rehearsal", True if run_set.rehearsal else None),
        ("organisation", run_set.org),
        ("organisation, as logged", run_set.org_logged if run_set.org_logged != run_set.org else None),
        ("launcher", run_set.launcher),
        ("cache", run_set.cache),
        ("samples/s from", run_set.throughput_method),
        ("input pipeline", input_pipeline_text(run_set)),
        ("started", moment(run_set.started_at)),
        ("finished", moment(run_set.finished_at)),
        ("files", run_set.path),
        ("sha256 of the files", run_set.content_hash),
    ]
    facts += [(key.replace("_", " "), value) for key, value in provenance.items() if key not in _SOFTWARE_KEYS]
    rows = [[key, text] for key, value in facts if (text := plain(value)) is not None]
    blocks: list[Block] = [TableBlock(title=named.title("Provenance"), columns=("what", "value"), rows=rows)]
    environment = provenance.get("environment")
    if isinstance(environment, dict) and environment:
        blocks.append(
            TableBlock(
                title=named.title("Environment of every rank"),
                columns=("variable", "value"),
                rows=[[str(key), plain(value)] for key, value in environment.items()],
            )
        )
    settings = _settings(run_set)
    if settings:
        title = named.title("Settings, as logged")
        blocks.append(TableBlock(title=title, columns=("key", "value"), rows=settings, folded=True))
    return blocks


_SOFTWARE_KEYS = _NOT_PROVENANCE | {
    "mlbench_version", "python", "container_image", "container_digest", "git_commit", "git_dirty", "worker_sha256",
}  # fmt: skip


def _settings(run_set: RunSet) -> list[list[str | None]]:
    """Hyperparameters with the values that the runs had; several where they differ."""
    values: dict[str, dict[str, None]] = {}
    for run in counted(run_set):
        for row in run.hyperparameters:
            if row.key in (PIPELINE, PIPELINE_REASON):
                continue  # among the facts, with its reason
            values.setdefault(row.key, {})[row.value] = None
    return [[key, ", ".join(_unquoted(text) for text in found)] for key, found in values.items()]


def _unquoted(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _repeat(named: Named) -> list[Block]:
    run_set = named.run_set
    lines = []
    if run_set.origin == "import":
        lines += [f"mlbench import {shlex.quote(run_set.path)}"] if run_set.path else []
        lines.append(f"mlbench results show {shlex.quote(run_set.run_set)}")
    else:
        given = (run_set.provenance or {}).get("command_line")
        if isinstance(given, list) and given:
            lines.append(shlex.join(str(word) for word in given))
        lines.append(f"mlbench reproduce {shlex.quote(run_set.run_set)}")
    if run_set.path:
        ruleset = f" --ruleset {shlex.quote(run_set.ruleset)}" if run_set.ruleset else ""
        lines.append(f"mlbench check {shlex.quote(run_set.path)}{ruleset}")
    return [Commands(title=named.title("Run, reproduce and check it"), lines=lines)]


def _again(command: str) -> Commands:
    return Commands(title="Write this report again", lines=[command])
