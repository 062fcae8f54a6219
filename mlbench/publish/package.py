"""`mlbench package`: run sets to a submission tree that MLCommons' checkers pass.

    OUT/<org>/results/<system>/<benchmark>/result_0.txt ...
    OUT/<org>/systems/<system>.json
    OUT/<org>/benchmarks/<benchmark>/implementations/mlbench/
        README.md                    what it is, set-up, how to run
        worker/                      the code that trained
        <system>/README.md           the exact commands, the runs, what was changed in the packaged logs
        <system>/config.yaml job_<n>.json packaging.json

Everything that speaks against a package is found before anything is written, and told at once. The same run sets give
the same bytes: no date, host or random name of the packaging goes into the tree.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlbench.check.checker import Report, check
from mlbench.check.finding import Finding, Severity, Status, Verdict
from mlbench.check.formats import place, sentence
from mlbench.check.package_rules import SCALING_FILE, bad_name
from mlbench.check.packaging import FILE_NAME, Change, PackagedLog, dump
from mlbench.check.subject import LogFile, OwnRun, ResultSet
from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder
from mlbench.collect.safety import storable_environment
from mlbench.errors import ConfigError, NotCompliantError
from mlbench.ingest.plain import load_config, load_json
from mlbench.publish import readme, tree
from mlbench.publish.system_description import check_given, describe, system_folder_name
from mlbench.wording import count_of
from mlbench.worker.job import Job
from mlbench.worker.job import dump as dump_job

UNNAMED = "unnamed"
IMPLEMENTATION = "mlbench"
_WORKER_SUFFIXES = {".py", ".c", ".h"}
_ORG_VALUE = re.compile(rb'("key"\s*:\s*"submission_org"\s*,\s*"value"\s*:\s*)"(?:[^"\\]|\\.)*"')
_SHOWN_REFUSALS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A tree that was made. `notes` tell what was left out or changed."""

    root: Path
    org: str
    systems: Sequence[str]
    num_files: int
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A run set that is to be packaged, checked where it lies."""

    folder: RunFolder
    item: ResultSet
    report: Report
    identity: RunSetFile
    system: str

    @property
    def benchmark(self) -> str:
        return self.item.benchmark or "resnet"


def package(
    folders: Sequence[RunFolder],
    *,
    out: Path,
    org: str | None = None,
    include: Path | None = None,
    given: Mapping[str, str] | None = None,
) -> Package:
    """Build the submission tree of one submitter.

    Args:
        folders: run sets, each of a system (or a number of GPUs) of its own.
        out: the tree becomes `out`/<org>; what is there already stays and is checked with the rest.
        org: the submitter; None: what the logs say. It fills in `unnamed`, and must equal anything else.
        include: more files for the implementation's folder, for example a Dockerfile.
        given: fields of the system description that the submitter knows better.
    Raises: NotCompliantError: a run set or a name is refused; every reason is told. ConfigError: the request is wrong.
    """
    given = given or {}
    check_given(given)
    if not folders:
        raise ConfigError("nothing to package: name at least one run set")
    candidates = [_candidate(folder) for folder in folders]
    submitter, refusals = _submitter(candidates, org)
    refusals += [reason for candidate in candidates for reason in _refusals(candidate)]
    refusals += _twins(candidates)
    if include is not None:
        refusals += _refused_include(include)
    if refusals:
        raise NotCompliantError(_refused(refusals))
    folder_name = re.sub(r"\s+", "", submitter)
    target = out / folder_name
    with tree.staging(out / folder_name) as stage:
        root = stage / folder_name
        if target.exists():
            tree.copy_tree(target, root)
        _clear(root, candidates)
        notes = _write(root, candidates, submitter, include, given)
        names = tree.refused_names(root)
        if names:
            raise NotCompliantError(_refused(names))
        _must_comply(root, candidates)
        tree.put_in_place(root, target)
    return Package(
        root=target,
        org=submitter,
        systems=[candidate.system for candidate in candidates],
        num_files=sum(1 for path in target.rglob("*") if path.is_file()),
        notes=notes,
    )


# -- what may be packaged


def _candidate(folder: RunFolder) -> _Candidate:
    report = check(folder.path)
    item = report.sets[0].item
    if item.own is None:
        raise ConfigError(f"{folder.path}: not a run set of mlbench (no run_set.json)")
    identity = item.own.identity
    return _Candidate(folder=folder, item=item, report=report, identity=identity, system=system_folder_name(identity))


def _submitter(candidates: Sequence[_Candidate], org: str | None) -> tuple[str, list[str]]:
    """The submitter's name, and what speaks against it."""
    logged = {candidate.identity.org for candidate in candidates}
    named = sorted(logged - {UNNAMED})
    refusals: list[str] = []
    if org is None:
        if not named:
            return UNNAMED, ["the logs say submission_org 'unnamed'; name the submitter with --org"]
        org = named[0]
    for other in named:
        if other != org:
            refusals.append(f"submission_org {other!r} was logged, --org says {org!r}; they must be the same")
    folder_name = re.sub(r"\s+", "", org)
    reason = bad_name(folder_name) if folder_name else "is empty"
    if "/" in org or "\\" in org or not org.isprintable():
        reason = "has a character that a folder cannot have"
    if reason is not None:
        refusals.append(f"--org {org!r} {reason}")
    if org == UNNAMED:
        refusals.append("--org 'unnamed' is the placeholder itself; name the submitter")
    return org, refusals


def _refusals(candidate: _Candidate) -> list[str]:
    """Everything that speaks against one run set."""
    name, identity = candidate.identity.run_set, candidate.identity
    found: list[str] = []
    if identity.rehearsal:
        found.append("a rehearsal can never be packaged")
    if identity.mlperf_name is None or identity.benchmark_kind != "train":
        found.append(f"{identity.benchmark} is not a training benchmark of MLPerf, so there is nothing to submit")
    score = candidate.report.sets[0].score
    if score is None or score.score_s is None:
        found.append(f"it has no score: {score.score_reason if score is not None else 'nothing to score'}")
    found += [f"{place(item)}: {item.rule}: {sentence(item)}" for item in _blocking(candidate.report)]
    return [f"{name}: {reason}" for reason in found]


def _blocking(report: Report) -> list[Finding]:
    return [
        item for item in report.findings if item.severity is Severity.error and item.status is not Status.passed
    ]  # fmt: skip


def _twins(candidates: Sequence[_Candidate]) -> list[str]:
    first: dict[tuple[str, str], str] = {}
    refusals = []
    for candidate in candidates:
        key = (candidate.system, candidate.benchmark)
        other = first.setdefault(key, candidate.identity.run_set)
        if other != candidate.identity.run_set:
            where = f"results/{candidate.system}/{candidate.benchmark}"
            refusals.append(f"{candidate.identity.run_set}: {where} is taken by {other}; package one set of a system")
    return refusals


def _refused_include(include: Path) -> list[str]:
    if not include.is_dir():
        raise ConfigError(f"--include {include}: not a folder; give a folder of files for the implementation")
    return [f"--include {include}: {reason}" for reason in tree.refused_names(include)]


def _refused(reasons: Sequence[str]) -> str:
    shown = [f"  {reason}" for reason in reasons[:_SHOWN_REFUSALS]]
    if len(reasons) > _SHOWN_REFUSALS:
        shown.append(f"  and {len(reasons) - _SHOWN_REFUSALS} more")
    return "nothing was packaged:\n" + "\n".join(shown)


# -- the tree


def _clear(root: Path, candidates: Sequence[_Candidate]) -> None:
    """Take away what an earlier package of the same systems left; everything else stays."""
    import shutil

    for candidate in candidates:
        shutil.rmtree(root / "results" / candidate.system / candidate.benchmark, ignore_errors=True)
        (root / "systems" / f"{candidate.system}.json").unlink(missing_ok=True)
        shutil.rmtree(_implementation(root, candidate.benchmark) / candidate.system, ignore_errors=True)
        shutil.rmtree(_implementation(root, candidate.benchmark) / "worker", ignore_errors=True)
        (_implementation(root, candidate.benchmark) / "README.md").unlink(missing_ok=True)


def _implementation(root: Path, benchmark: str) -> Path:
    return root / "benchmarks" / benchmark / "implementations" / IMPLEMENTATION


def _write(
    root: Path, candidates: Sequence[_Candidate], org: str, include: Path | None, given: Mapping[str, str]
) -> list[str]:
    """Write everything; returns the notes for the user."""
    notes: list[str] = []
    for candidate in candidates:
        notes += _write_system(root, candidate, org, given)
    for benchmark in sorted({candidate.benchmark for candidate in candidates}):
        folder = _implementation(root, benchmark)
        _write_worker(folder / "worker")
        if include is not None:
            tree.copy_tree(include, folder)
        if not (folder / "README.md").exists():
            of_it = [candidate for candidate in candidates if candidate.benchmark == benchmark]
            systems = sorted({*(path.name for path in folder.iterdir() if (path / FILE_NAME).is_file())})
            text = readme.implementation(of_it[0].identity, of_it[0].system, systems)
            tree.write_file(folder / "README.md", text.encode())
    return notes


def _write_system(root: Path, candidate: _Candidate, org: str, given: Mapping[str, str]) -> list[str]:
    item, identity = candidate.item, candidate.identity
    hardware: Mapping[str, Any] = load_config(candidate.folder.config).get("hardware") or {}
    hosts = {
        str(host): {str(key): str(value) for key, value in facts.items()}
        for host, facts in load_json(candidate.folder.hosts, dict).items()
        if isinstance(facts, dict)
    }
    description = describe(identity, hardware, hosts, org=org, given=given)
    tree.write_file(root / "systems" / f"{candidate.system}.json", _json(description))
    place_of_code = _implementation(root, candidate.benchmark) / candidate.system
    packaged: list[PackagedLog] = []
    assert item.own is not None
    for number, file in enumerate(item.logs):
        run = item.own.runs[file.index]
        result = f"results/{candidate.system}/{candidate.benchmark}/result_{number}.txt"
        original = file.path.read_bytes()
        content, changes = named(original, file, org)
        tree.write_file(root / result, content)
        if run.job is not None:
            tree.write_file(place_of_code / f"job_{number}.json", _job_text(run.job).encode())
        packaged.append(
            PackagedLog(
                result=result,
                run_set=identity.run_set,
                run=file.index,
                attempt=len(run.earlier),
                original_sha256=hashlib.sha256(original).hexdigest(),
                packaged_sha256=hashlib.sha256(content).hexdigest(),
                changes=changes,
            )
        )
    score = candidate.report.sets[0].score
    if score is not None and score.rcp_factor is not None and score.rcp_factor > 1:
        scaling = json.dumps({"scaling_factor": score.rcp_factor})
        tree.write_file(root / "results" / candidate.system / candidate.benchmark / SCALING_FILE, scaling.encode())
    if candidate.folder.config.is_file():
        tree.write_file(place_of_code / "config.yaml", _config_text(candidate.folder.config).encode())
    tree.write_file(place_of_code / FILE_NAME, dump(packaged).encode())
    attempts: list[OwnRun] = [item.own.runs[file.index] for file in item.logs]
    text = readme.system(identity, candidate.system, attempts, packaged, hardware)
    tree.write_file(place_of_code / "README.md", text.encode())
    return _notes(candidate, packaged)


def _job_text(job: Job) -> str:
    """The job as it was, apart from values of variables that may hold secrets."""
    return dump_job(dataclasses.replace(job, environment=storable_environment(job.environment)))


def _config_text(path: Path) -> str:
    """The resolved configuration without secrets; as it is when it has none."""
    import yaml

    text = path.read_text(encoding="utf-8")
    kept = load_config(path)
    return text if yaml.safe_load(text) == kept else yaml.safe_dump(kept, sort_keys=False)


def _notes(candidate: _Candidate, packaged: Sequence[PackagedLog]) -> list[str]:
    name = candidate.identity.run_set
    notes = [
        f"{name}: {stray!r} is not of mlbench's making; left out" for stray in candidate.item.own.stray_names
    ] if candidate.item.own is not None else []  # fmt: skip
    changed = [log for log in packaged if log.changes]
    if changed:
        value = changed[0].changes[0].after
        notes.append(
            f"{name}: submission_org 'unnamed' was filled in as {value!r} in {count_of(len(changed), 'packaged log')}"
        )
    return notes


def named(original: bytes, file: LogFile, org: str) -> tuple[bytes, list[Change]]:
    """The log with `unnamed` filled in, and what was changed; a log that names its submitter stays as it is.

    Raises: ConfigError: the record is not in a form that can be changed safely.
    """
    records = [record for record in file.records.all("submission_org") if record.value == UNNAMED]
    if not records:
        return original, []
    lines = original.split(b"\n")
    changes: list[Change] = []
    for record in records:
        line = lines[record.line - 1]
        changed, count = _ORG_VALUE.subn(lambda found: found[1] + json.dumps(org).encode(), line)
        if count != 1:
            raise ConfigError(
                f"{file.path}:{record.line}: submission_org cannot be filled in; expected one record a line"
            )
        lines[record.line - 1] = changed
        changes.append(
            Change(
                line=record.line,
                key="submission_org",
                before=UNNAMED,
                after=org,
                original_line=line.decode("utf-8", "surrogateescape"),
            )
        )
    return b"\n".join(lines), changes


def _write_worker(folder: Path) -> None:
    """The code that trains: the worker's own files, nothing compiled."""
    import mlbench.publish

    source = Path(mlbench.publish.__file__).resolve().parent.parent / "worker"
    for path in sorted(source.rglob("*")):
        if path.suffix in _WORKER_SUFFIXES and "__pycache__" not in path.parts:
            tree.write_file(folder / path.relative_to(source), path.read_bytes())


def _must_comply(root: Path, candidates: Sequence[_Candidate]) -> None:
    """The tree as it will be, under every ruleset its run sets were made for. Raises NotCompliantError."""
    for ruleset in sorted({candidate.item.ruleset for candidate in candidates}):
        report = check(root, ruleset=ruleset)
        if report.verdict is not Verdict.compliant:
            reasons = [f"{place(item)}: {item.rule}: {sentence(item)}" for item in _blocking(report)]
            raise NotCompliantError(_refused(reasons or [f"ruleset {ruleset}: nothing could be checked"]))


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
