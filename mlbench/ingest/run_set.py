"""Our own run folder to the rows of the database. The files are the truth; the same files give the same rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlbench.analyse.score import RUNS_ASKED, RunSetScore, ScoreStatus, Target, score_run_set
from mlbench.check import checker, rcp
from mlbench.check.judgement import target_of
from mlbench.choices import BenchmarkKind
from mlbench.collect.mllog import read_log
from mlbench.collect.runfiles import AttemptFile, RunSetFile, read_attempt
from mlbench.collect.runfiles import read_run_set as read_run_set_file
from mlbench.collect.runfolder import AttemptFolder, RunFolder, last_attempts
from mlbench.collect.runlog import RunLog, RunStatus
from mlbench.collect.runs_marker import runs_folder_id
from mlbench.collect.safety import storable_arguments, storable_environment, without_secrets
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
from mlbench.ingest.content import content_hash, file_sha256
from mlbench.ingest.measurements import allreduce_rows, storage_rows, telemetry_rows
from mlbench.ingest.plain import load_config, load_json
from mlbench.store.tables import HostFact, NoteRow, Run, RunSet, System

MAX_ATTEMPTS = 10_000
_CUT_SHORT = "no attempt.json: mlbench ended before this attempt did, or it is still running"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt as its files tell it."""

    folder: AttemptFolder
    record: AttemptFile | None
    log: RunLog
    run: Run
    telemetry_notes: list[NoteRow]


def read_run_set(folder: RunFolder) -> RunSet:
    """The run set that the files of `folder` make, scored.

    Raises: InputError: run_set.json is missing or damaged, or a log cannot be read.
    """
    identity = read_run_set_file(folder.identity)
    if identity.run_set != folder.run_set:
        raise InputError(
            f"{folder.identity}: names run set {identity.run_set!r}, but the folder is {folder.run_set!r}; "
            "give the folder its name back"
        )
    folders = list(folder.attempts())
    if len(folders) > MAX_ATTEMPTS:
        raise InputError(f"{folder.path}: holds {len(folders)} attempts, at most {MAX_ATTEMPTS} are read")
    attempts = [_read_attempt(folder, item, identity) for item in folders]
    row = _identity_row(folder, identity)
    row.runs = [attempt.run for attempt in attempts]
    row.notes = list(_notes(folder, attempts))
    row.allreduce = allreduce_rows(folder)
    row.storage = storage_rows(folder)
    row.host_facts = _host_facts(folder)
    counting = _that_count(attempts)
    _add_what_runs_tell(row, identity, counting)
    _add_score(row, identity, counting, folder)
    row.content_hash = content_hash(folder.path, files_of(folder, folders))
    return row


def files_of(folder: RunFolder, attempts: Sequence[AttemptFolder] | None = None) -> list[Path]:
    """Every file that the rows are made from; logs of ranks and of tools are kept, but not read."""
    files = [folder.identity, folder.config, folder.hosts, folder.allreduce, folder.storage, folder.findings]
    for item in attempts if attempts is not None else list(folder.attempts()):
        files += [item.job, item.mllog, item.outcome, item.cache, *sorted(item.telemetry.glob("*.jsonl"))]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def _identity_row(folder: RunFolder, identity: RunSetFile) -> RunSet:
    config = load_config(folder.config)
    return RunSet(
        run_set=identity.run_set,
        origin="run",
        rehearsal=identity.rehearsal,
        org=identity.org,
        org_logged=identity.org,
        system=identity.system_name,
        division=identity.division,
        benchmark=identity.mlperf_name if _is_scored(identity) else identity.benchmark,
        model=identity.model,
        framework=identity.framework,
        ruleset=identity.ruleset,
        launcher=identity.launcher,
        num_nodes=identity.num_nodes,
        num_accelerators=identity.num_accelerators,
        num_ranks=identity.num_ranks,
        global_batch_size=identity.global_batch_size,
        repeats_asked=identity.repeats,
        path=str(folder.path),
        started_at=_moment(identity.created_at),
        config=config,
        provenance=_provenance(identity),
        runs_folder=runs_folder_id(folder.path.parent),
        description=_system(identity, config),
    )


def _is_scored(identity: RunSetFile) -> bool:
    return identity.benchmark_kind == BenchmarkKind.train.value and identity.mlperf_name is not None


def _provenance(identity: RunSetFile) -> dict[str, Any]:
    """What was asked, with what, from where. Columns of the run set are not said twice."""
    kept: dict[str, Any] = without_secrets(dataclasses.asdict(identity.provenance))
    kept |= {
        "command_line": storable_arguments(identity.command_line),
        "environment": storable_environment(identity.environment),
        "resumes": [
            dataclasses.asdict(item) | {"command_line": storable_arguments(item.command_line)}
            for item in identity.resumes
        ],
    }
    for name in (
        "created_at", "warmup_runs", "stages", "platform", "submission_status", "benchmark", "benchmark_kind", "device",
        "hosts", "target_accuracy", "train_samples", "eval_samples", "data_name", "data_path", "data_path_given",
        "mean_image_bytes", "cache", "notes", "reproduces", "sweep",
    ):  # fmt: skip
        kept[name] = without_secrets(getattr(identity, name))
    return kept


def _system(identity: RunSetFile, config: dict[str, Any]) -> System:
    hardware = config.get("hardware")
    hardware = hardware if isinstance(hardware, dict) else {}
    compute = hardware.get("compute")
    compute = compute if isinstance(compute, dict) else {}
    accelerators = identity.num_accelerators // max(identity.num_nodes, 1) if identity.num_accelerators else 0
    return System(
        origin="run",
        org=identity.org,
        name=identity.system_name,
        submitter=identity.org,
        system_name=identity.system_name,
        division=identity.division,
        status=identity.submission_status,
        num_nodes=identity.num_nodes,
        accelerators_per_node=accelerators,
        accelerator_model=_text(compute.get("accelerator_model")),
        host_processors_per_node=compute.get("host_processors_per_node"),
        host_processor_model=_text(compute.get("host_processor_model")),
        framework=identity.framework,
        description={"platform": identity.platform, "hardware": hardware},
    )


def _read_attempt(folder: RunFolder, item: AttemptFolder, identity: RunSetFile) -> _Attempt:
    name = item.mllog.relative_to(folder.path).as_posix()
    has_log = item.mllog.is_file()
    log = read_log(item.mllog, name=name) if has_log else RunLog(file=name)
    record = read_attempt(item.outcome) if item.outcome.is_file() else None
    ended, reason = _ended(record, log)
    run = build_run(
        log,
        index=item.index,
        attempt=item.attempt,
        warmup=item.warmup,
        target=_target(identity, log),
        ended=ended,
        ended_reason=reason,
        exit_status=record.exit_status if record else None,
        log_path=name if has_log else None,
        log_sha256=file_sha256(item.mllog) if has_log else None,
    )
    if run.seed is None and record is not None:
        run.seed = record.seed
    run.telemetry, notes = telemetry_rows(item, log.run_start_ms)
    return _Attempt(item, record, log, run, notes)


def _ended(record: AttemptFile | None, log: RunLog) -> tuple[RunStatus | None, str | None]:
    """How the runner saw the attempt end; None leaves it to the log."""
    if record is None:
        return (None, None) if log.run_stop_status is not None else (RunStatus.interrupted, _CUT_SHORT)
    try:
        return RunStatus(record.status), record.reason
    except ValueError:
        known = ", ".join(status.value for status in RunStatus)
        return RunStatus.crashed, f"attempt.json has status {record.status!r}, expected one of {known}"


def _target(identity: RunSetFile, log: RunLog) -> Target | None:
    """As `mlbench check` has it: only the open division may choose a target. A benchmark without rules has its own."""
    if identity.benchmark_kind != BenchmarkKind.train.value:
        return None
    by_rules = target_of(log, identity.ruleset) if identity.mlperf_name is not None else None
    if by_rules is not None:
        return by_rules
    return Target(log.quality_target if log.quality_target is not None else identity.target_accuracy)


def _that_count(attempts: Sequence[_Attempt]) -> list[_Attempt]:
    """The last attempt of each repetition, in order; warm-ups are left out."""
    counting = last_attempts(attempt.folder for attempt in attempts)
    return [attempt for attempt in attempts if attempt.folder in counting]


def _add_what_runs_tell(row: RunSet, identity: RunSetFile, counting: Sequence[_Attempt]) -> None:
    is_train = identity.benchmark_kind == BenchmarkKind.train.value
    # A throughput run has no target: it is good when it ended well.
    good = [
        (item.log, item.run.converged if is_train else item.run.status == RunStatus.success.value) for item in counting
    ]
    apply_throughput(row, good)
    row.cache = cache_state([item.log for item in counting if item.log.num_records])
    row.global_batch_size = agreed(item.log.global_batch_size for item in counting) or row.global_batch_size
    starts = [item.log.run_start_ms for item in counting if item.log.run_start_ms is not None]
    if starts:
        row.started_at = utc(min(starts))
    ends = [moment for item in counting if item.record and (moment := _moment(item.record.ended_at))]
    row.finished_at = max(ends, default=None)


def _add_score(row: RunSet, identity: RunSetFile, counting: Sequence[_Attempt], folder: RunFolder) -> None:
    asked = RUNS_ASKED.get(identity.mlperf_name or "") if _is_scored(identity) else None
    raw = []
    if identity.rehearsal:
        raw.append("a rehearsal: no training took place")
    if not _is_scored(identity):
        raw.append(f"{identity.benchmark} is not a time to train of the MLPerf rules")
    if row.cache == "warm" and not identity.rehearsal:
        raw.append("the cache was not proven cold")
    factor, broken = _reference_convergence(row, identity, counting)

    def score(broken_rules: Sequence[str]) -> RunSetScore:
        return score_run_set(
            run_results(item.run for item in counting),
            num_asked=asked,
            raw_reasons=raw,
            broken_rules=broken_rules,
            rcp_factor=factor,
        )

    found = score(broken)
    if found.score_status is ScoreStatus.valid:
        # What `mlbench check` would call broken has no score here either.
        rules = checker.broken_rules(folder.path)
        found = score([f"broken: {', '.join(rules)}"]) if rules else found
    apply_score(row, found)


def _reference_convergence(
    row: RunSet, identity: RunSetFile, counting: Sequence[_Attempt]
) -> tuple[float | None, list[str]]:
    """The factor on the score, and the rule that it breaks; neither in the open division or before the rules ask."""
    if not _is_scored(identity) or not rcp.applies(identity.ruleset, identity.division):
        return None, []
    epochs = [item.run.epochs if item.run.converged else None for item in counting]
    result = rcp.convergence(
        epochs, batch_size=row.global_batch_size, ruleset=identity.ruleset, benchmark=identity.mlperf_name or ""
    )
    factor = result.factor if rcp.normalises(identity.ruleset, identity.division) else None
    too_few = result.passed is None and result.reference is not None
    why = rcp.refusal(result, batch_size=row.global_batch_size, ruleset=identity.ruleset)
    return factor, [why] if why is not None and not too_few else []


def _notes(folder: RunFolder, attempts: Sequence[_Attempt]) -> Iterator[NoteRow]:
    for item in load_json(folder.findings, list):
        if isinstance(item, dict) and item.get("text"):
            line = item.get("line")
            yield NoteRow(
                severity=str(item.get("severity") or "note"),
                rule=_text(item.get("rule")),
                file=_text(item.get("file")),
                line=line if isinstance(line, int) else None,
                text=str(item["text"]),
            )
    for attempt in attempts:
        yield from note_rows(attempt.log.notes)
        yield from attempt.telemetry_notes


def _host_facts(folder: RunFolder) -> list[HostFact]:
    hosts = load_json(folder.hosts, dict)
    return [
        HostFact(host=str(host), key=str(key), value=str(without_secrets({str(key): str(value)})[str(key)]))
        for host, facts in hosts.items()
        if isinstance(facts, dict)
        for key, value in facts.items()
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
