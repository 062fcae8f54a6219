"""Rebuild and verify: the files of runs/ are the truth, the database is an index of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from sqlalchemy import Engine

from mlbench.collect.runfolder import RunFolder
from mlbench.collect.runs_marker import mark_runs_folder, runs_folder_id
from mlbench.collect.tree import scan_tree
from mlbench.errors import InputError
from mlbench.ingest.published import import_folder
from mlbench.ingest.run_set import read_run_set
from mlbench.store.canonical import differences
from mlbench.store.integrity import integrity_faults
from mlbench.store.repository import (
    SaveOutcome,
    StoredRunSet,
    all_run_sets,
    delete_run_set,
    load_run_sets,
    save_run_set,
)
from mlbench.store.tables import RunSet

Progress = Callable[[str], None]


@dataclass(slots=True)
class RebuildReport:
    """Public ids by what became of them. `unreadable`: sentences; their rows, if any, stay as they were."""

    inserted: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Imports and merged run sets whose files are not here: their rows stay."""
    unreadable: list[str] = field(default_factory=list)


class Compared(Enum):
    """What `verify` found of one run set."""

    equal = "equal"
    files_changed = "files_changed"
    rows_differ = "rows_differ"
    files_missing = "files_missing"
    files_unreadable = "files_unreadable"
    not_stored = "not_stored"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`detail` is a clause for everything but `equal`."""

    run_set: str
    result: Compared
    detail: str | None = None


@dataclass(slots=True)
class VerifyReport:
    """`database_faults`: what the database found when it checked itself."""

    comparisons: list[Comparison] = field(default_factory=list)
    database_faults: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Nothing differs. Files that are not on this machine are told, but are no difference."""
        fine = (Compared.equal, Compared.files_missing)
        return not self.database_faults and all(item.result in fine for item in self.comparisons)


def run_folders(runs_dir: Path) -> Iterator[RunFolder]:
    """The run sets in a folder, by name; other folders and links are left alone. Raises InputError."""
    try:
        children = sorted(runs_dir.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{runs_dir}: cannot be listed ({error.strerror})") from error
    for child in children:
        if child.is_dir() and not child.is_symlink() and (child / "run_set.json").is_file():
            yield RunFolder(child.absolute())


def rebuild(engine: Engine, runs_dir: Path, on_progress: Progress = lambda _: None) -> RebuildReport:
    """Make every row anew from its files, one short transaction a run set.

    Rows of run sets whose folder is gone from `runs_dir` are removed, those of another machine's folder of the same
    path never; imports are read again from where they lie.
    It may be cut short at any moment and run again; readers and writers go on meanwhile.
    """
    report = RebuildReport()
    mark_runs_folder(runs_dir)
    seen = set()
    for folder in run_folders(runs_dir):
        on_progress(folder.run_set)
        seen.add(folder.run_set)
        try:
            _note_outcome(report, save_run_set(engine, read_run_set(folder), force=True), folder.run_set)
        except InputError as error:
            report.unreadable.append(str(error))
    for stored in all_run_sets(engine):
        if stored.run_set in seen:
            continue
        on_progress(stored.run_set)
        if stored.origin == "run":
            _settle_own(engine, stored, runs_dir, report)
        else:
            _settle_import(engine, stored, report)
    return report


def verify(engine: Engine, runs_dir: Path, on_progress: Progress = lambda _: None) -> VerifyReport:
    """Compare files, hashes and rows of everything, and let the database check itself. Nothing is changed."""
    report = VerifyReport(database_faults=integrity_faults(engine))
    known = set()
    for stored in all_run_sets(engine):
        on_progress(stored.run_set)
        known.add(stored.run_set)
        report.comparisons.append(_compare(engine, stored))
    for folder in run_folders(runs_dir):
        if folder.run_set not in known:
            detail = f"{folder.path} is not in the database; `mlbench db rebuild` reads it"
            report.comparisons.append(Comparison(folder.run_set, Compared.not_stored, detail))
    return report


def read_again(stored: StoredRunSet) -> RunSet | None:
    """A stored run set read anew from its files; None when they are not here. Raises InputError."""
    if stored.path is None or not Path(stored.path).exists():
        return None
    path = Path(stored.path)
    if stored.origin == "run":
        return read_run_set(RunFolder(path)) if (path / "run_set.json").is_file() else None
    for place in (path, *(Path(log) for log in stored.log_paths if Path(log).is_absolute())):
        if not place.exists():
            continue
        for folder in scan_tree(place, round_name=stored.round).folders:
            for run_set in import_folder(folder).run_sets:
                if run_set.run_set == stored.run_set:
                    return run_set
    return None


def _settle_own(engine: Engine, stored: StoredRunSet, runs_dir: Path, report: RebuildReport) -> None:
    if stored.path is None:
        report.kept.append(stored.run_set)
    elif _lay_in(engine, stored, runs_dir) and not Path(stored.path).exists():
        delete_run_set(engine, stored.run_set)
        report.removed.append(stored.run_set)
    else:
        _settle_import(engine, stored, report)


def _lay_in(engine: Engine, stored: StoredRunSet, runs_dir: Path) -> bool:
    """Whether the files were in this very folder; where that is not known, a database of one machine goes by paths."""
    if stored.path is None or Path(stored.path).parent != runs_dir.absolute():
        return False
    if stored.runs_folder is None:
        return engine.dialect.name == "sqlite"
    return stored.runs_folder == runs_folder_id(runs_dir)


def _settle_import(engine: Engine, stored: StoredRunSet, report: RebuildReport) -> None:
    try:
        fresh = read_again(stored)
    except InputError as error:
        report.unreadable.append(str(error))
        return
    if fresh is None:
        report.kept.append(stored.run_set)
    else:
        _note_outcome(report, save_run_set(engine, fresh, force=True), stored.run_set)


def _note_outcome(report: RebuildReport, outcome: SaveOutcome, run_set: str) -> None:
    (report.inserted if outcome is SaveOutcome.inserted else report.replaced).append(run_set)


def _compare(engine: Engine, stored: StoredRunSet) -> Comparison:
    try:
        fresh = read_again(stored)
    except InputError as error:
        return Comparison(stored.run_set, Compared.files_unreadable, str(error))
    if fresh is None:
        where = stored.path or "another machine"
        return Comparison(stored.run_set, Compared.files_missing, f"its files ({where}) are not here: not compared")
    if fresh.content_hash != stored.content_hash:
        detail = (
            f"the files of {stored.path}, or how mlbench reads them, are not as when they were stored; "
            "`mlbench db rebuild` reads them again"
        )
        return Comparison(stored.run_set, Compared.files_changed, detail)
    kept = load_run_sets(engine, [stored.run_set], telemetry=True)[0]
    found = list(differences(kept, fresh))
    if found:
        return Comparison(stored.run_set, Compared.rows_differ, "; ".join(found))
    return Comparison(stored.run_set, Compared.equal)
