"""Results of others to run sets: a single log, a result folder, a submitter's tree, a whole round.

The public id of a published set is `<round>/<org>/<system>/<benchmark>`. Where the path does not tell all of that,
the first characters of the content hash are added, so the same files have the same id wherever they lie.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlbench.analyse.score import RUNS_ASKED, score_run_set
from mlbench.check import rcp
from mlbench.check.judgement import target_of
from mlbench.collect.mllog import read_log, shown
from mlbench.collect.mllog_scan import finite
from mlbench.collect.runlog import Note, RunLog
from mlbench.collect.sysdesc import SystemDescription, read_description
from mlbench.collect.tree import ResultFolder
from mlbench.errors import InputError
from mlbench.ingest.build import (
    agreed,
    apply_score,
    apply_throughput,
    build_run,
    cache_state,
    note_rows,
    run_results,
    utc,
)
from mlbench.ingest.content import READER_VERSION
from mlbench.store.tables import RunSet, System

MAX_SCALING_BYTES = 65_536


@dataclass(slots=True)
class Imported:
    """What one folder gave: one run set per benchmark in it, and what could not be read, a sentence each."""

    run_sets: list[RunSet] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Scaling:
    factor: float | None = None
    fault: str | None = None
    notes: list[Note] = field(default_factory=list)
    digest: str | None = None


def import_folder(folder: ResultFolder) -> Imported:
    """Read every log of a folder and build its run sets. What cannot be read is named, the rest is built."""
    imported = Imported()
    logs: list[tuple[Path, RunLog]] = []
    for path in folder.logs:
        try:
            logs.append((path, read_log(path)))
        except InputError as error:
            imported.unreadable.append(str(error))
    if not any(log.num_records or log.num_torn for _, log in logs):
        if logs:
            named = folder.path if len(folder.logs) > 1 else folder.logs[0]
            imported.unreadable.append(f"{named}: no MLLOG record found; result logs of MLPerf training were expected")
        return imported
    description, notes = _description(folder, imported.unreadable)
    notes = [*folder.notes, *notes]
    groups = _by_benchmark(logs, notes)
    for benchmark, group in groups.items():
        imported.run_sets.append(_run_set(folder, benchmark, group, description, notes, mixed=len(groups) > 1))
    return imported


def _description(folder: ResultFolder, unreadable: list[str]) -> tuple[SystemDescription | None, list[Note]]:
    if folder.description is None:
        if folder.system is None:
            return None, []
        return None, [Note(f"systems/{folder.system}.json", None, "no system description")]
    name = f"systems/{folder.description.name}"
    try:
        description = read_description(folder.description, name=name)
    except InputError as error:
        unreadable.append(str(error))
        return None, [Note(name, None, "the system description cannot be read")]
    return description, description.notes


def _by_benchmark(
    logs: Sequence[tuple[Path, RunLog]], notes: list[Note]
) -> dict[str | None, list[tuple[Path, RunLog]]]:
    """The logs of each benchmark, as logged. A log that names none belongs to the only one there is."""
    named = Counter(log.benchmark for _, log in logs if log.benchmark is not None)
    only = next(iter(named)) if len(named) == 1 else None
    groups: dict[str | None, list[tuple[Path, RunLog]]] = {}
    for path, log in logs:
        if log.benchmark is None and only is not None:
            notes.append(Note(log.file, None, f"names no benchmark; its neighbours are {only!r}"))
            log.benchmark = only
        groups.setdefault(log.benchmark, []).append((path, log))
    if len(groups) > 1:
        found = ", ".join(sorted(str(name) for name in groups))
        notes.append(Note(".", None, f"logs of several benchmarks in one folder ({found}); each is a set of its own"))
    return groups


def _run_set(
    folder: ResultFolder,
    benchmark: str | None,
    group: Sequence[tuple[Path, RunLog]],
    description: SystemDescription | None,
    notes: Sequence[Note],
    *,
    mixed: bool,
) -> RunSet:
    logs = [log for _, log in group]
    notes = list(notes)
    ruleset = f"{folder.round.removeprefix('v')}.0" if folder.round else None
    scaling = _read_scaling(folder)
    notes += scaling.notes
    digest = _content_hash(folder, benchmark, logs, scaling, description)
    runs = []
    for index, (path, log) in enumerate(group):
        target = target_of(log, ruleset, description.division if description else None)
        if target is None:
            notes.append(Note(log.file, None, "the quality target is not known from the rules, so nothing converged"))
        runs.append(build_run(log, index=index, target=target, log_path=str(path), log_sha256=log.sha256))
    for log in logs:
        notes += log.notes
    row = RunSet(
        run_set=_public_id(folder, benchmark, digest, mixed=mixed),
        origin="import",
        rehearsal=False,
        round=folder.round,
        org=folder.org,
        org_logged=agreed(log.org for log in logs),
        system=folder.system,
        division=_division(description, logs, notes),
        benchmark=benchmark,
        framework=description.framework if description else None,
        ruleset=ruleset,
        global_batch_size=_batch_size(logs, notes),
        repeats_asked=RUNS_ASKED.get(benchmark or ""),
        cache=cache_state(logs),
        started_at=utc(min((log.run_start_ms for log in logs if log.run_start_ms is not None), default=None)),
        finished_at=utc(max((log.run_stop_ms for log in logs if log.run_stop_ms is not None), default=None)),
        path=str(folder.path),
        content_hash=digest,
        config={},
        provenance=_provenance(folder, logs),
    )
    row.runs = runs
    if description is not None:
        _apply_description(row, description, folder)
    raw = (
        []
        if benchmark in RUNS_ASKED
        else [f"mlbench scores {', '.join(RUNS_ASKED)}, not {benchmark or 'unnamed logs'}"]
    )
    if row.cache == "warm":
        raw.append("warm: a log says that the cache was not cleared")
    if scaling.fault is not None:
        raw.append(scaling.fault)
    score = score_run_set(
        run_results(runs),
        num_asked=RUNS_ASKED.get(benchmark or ""),
        raw_reasons=raw,
        scaling_factor=scaling.factor,
    )
    apply_score(row, score)
    apply_throughput(row, [(log, run.converged) for log, run in zip(logs, runs, strict=True)])
    # told beside the score, never applied: a published score is scaled by scaling.json alone
    row.rcp_factor = _rcp_factor(row, benchmark, ruleset)
    row.notes = note_rows(dict.fromkeys(notes))
    return row


def _division(description: SystemDescription | None, logs: Sequence[RunLog], notes: list[Note]) -> str | None:
    """As described; what was logged when the description does not tell. Disagreement is noted."""
    described = description.division if description else None
    logged = agreed(log.division for log in logs)
    if described and logged and described != logged:
        notes.append(Note(description.file if description else ".", None, f"division {described}, logged {logged!r}"))
    if described is None and logged is not None and logged not in ("closed", "open"):
        notes.append(Note(logs[0].file, None, f"division {shown(logged)!r}; expected closed or open"))
        return None
    return described or logged


def _batch_size(logs: Sequence[RunLog], notes: list[Note]) -> int | None:
    sizes = sorted({log.global_batch_size for log in logs if log.global_batch_size is not None})
    if len(sizes) > 1:
        notes.append(Note(".", None, f"runs with different global batch sizes: {', '.join(map(str, sizes))}"))
    return sizes[0] if len(sizes) == 1 else None


def _apply_description(row: RunSet, description: SystemDescription, folder: ResultFolder) -> None:
    nodes, per_node = description.number_of_nodes, description.accelerators_per_node
    row.num_nodes = nodes
    row.num_accelerators = nodes * per_node if nodes is not None and per_node is not None else None
    row.description = System(
        origin="import",
        round=folder.round,
        org=folder.org,
        name=folder.system or "",
        submitter=description.submitter,
        system_name=description.system_name,
        division=description.division,
        status=description.status,
        num_nodes=nodes,
        accelerators_per_node=per_node,
        accelerator_model=description.accelerator_model_name,
        host_processors_per_node=description.host_processors_per_node,
        host_processor_model=description.host_processor_model_name,
        framework=description.framework,
        description=description.raw,
    )


def _rcp_factor(row: RunSet, benchmark: str | None, ruleset: str | None) -> float | None:
    if benchmark is None or ruleset is None or not rcp.applies(ruleset, row.division):
        return None
    epochs = [run.epochs if run.converged else None for run in row.runs]
    return rcp.convergence(epochs, batch_size=row.global_batch_size, ruleset=ruleset, benchmark=benchmark).factor


def _provenance(folder: ResultFolder, logs: Sequence[RunLog]) -> dict[str, Any]:
    return {
        "imported_from": str(folder.path),
        "submission_platform": agreed(log.platform for log in logs),
        "submission_status": agreed(log.submission_status for log in logs),
    }


def _read_scaling(folder: ResultFolder) -> _Scaling:
    """The factor of the round's reviewers. One that is there but makes no sense leaves the set without a score."""
    if folder.scaling is None:
        return _Scaling()
    try:
        if folder.scaling.stat().st_size > MAX_SCALING_BYTES:
            raise ValueError(f"larger than {MAX_SCALING_BYTES} bytes")
        text = folder.scaling.read_bytes()
        body = json.loads(text)
        factor = finite(body.get("scaling_factor")) if isinstance(body, dict) else None
    except (OSError, ValueError, RecursionError) as error:
        fault = f"scaling.json cannot be read: {shown(str(error))}"
        return _Scaling(fault=fault, notes=[Note("scaling.json", None, fault)])
    digest = hashlib.sha256(text).hexdigest()
    if factor is None or factor < 1.0:
        found = body.get("scaling_factor") if isinstance(body, dict) else body
        fault = f"scaling.json has scaling_factor {shown(found)}; a number of at least 1 was expected"
        return _Scaling(fault=fault, notes=[Note("scaling.json", None, fault)], digest=digest)
    return _Scaling(factor=factor, digest=digest)


def _content_hash(
    folder: ResultFolder,
    benchmark: str | None,
    logs: Sequence[RunLog],
    scaling: _Scaling,
    description: SystemDescription | None,
) -> str:
    """Over what is known, not over where it lies."""
    parts = [
        READER_VERSION,
        [folder.round, folder.org, folder.system, benchmark],
        [[log.file, log.sha256] for log in logs],
        scaling.digest or scaling.fault,
        description.raw if description else None,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _public_id(folder: ResultFolder, benchmark: str | None, digest: str, *, mixed: bool) -> str:
    if folder.org is None or folder.system is None:
        name = folder.logs[0].stem if len(folder.logs) == 1 else folder.path.name
        return f"{benchmark or name or 'import'}-{digest[:12]}"
    below = folder.below or ((benchmark,) if benchmark else ())
    parts = [part for part in (folder.round, folder.org, folder.system, *below) if part]
    name = "/".join(parts)
    if mixed:
        name = f"{name}:{benchmark}"
    return name if folder.round else f"{name}-{digest[:12]}"
