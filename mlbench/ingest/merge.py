"""Bring in another team's run sets: from their database or from their folder of run sets, without duplicates."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from mlbench.collect.runfolder import RunFolder
from mlbench.errors import InputError
from mlbench.ingest.care import run_folders
from mlbench.ingest.run_set import read_run_set
from mlbench.store.engine import open_database
from mlbench.store.foreign import open_copy
from mlbench.store.repository import StoredRunSet, all_run_sets, load_run_sets, save_run_set
from mlbench.store.tables import RunSet

Progress = Callable[[str], None]


@dataclass(slots=True)
class MergeReport:
    """Public ids. `conflicts`: ours has another content under the same id and was left alone."""

    added: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def merge(engine: Engine, other: str, on_progress: Progress = lambda _: None) -> MergeReport:
    """Add what `other` has and we have not. `other`: a folder of run sets, one run set, an SQLite file or a URL.

    `other` is never changed; an older database is upgraded as a copy.
    Raises: InputError: `other` is nothing of the kind. StoreError: it cannot be opened.
    """
    path = Path(other)
    if "://" not in other and path.is_dir():
        return _merge(engine, _from_folder(path), on_progress)
    with _opened(other) as source:
        return _merge(engine, _from_database(source), on_progress)


def arrived(run_set: RunSet) -> RunSet:
    """A record from elsewhere: its folder is kept only where it is here too, and is the same run set's."""
    if run_set.path is None:
        return run_set
    path = Path(run_set.path)
    here = (path / "run_set.json").is_file() and path.name == run_set.run_set
    if run_set.origin == "import":
        here = path.is_dir()
    if not here:
        run_set.provenance = {**(run_set.provenance or {}), "path_elsewhere": run_set.path}
        run_set.path = None
        run_set.runs_folder = None
    return run_set


@dataclass(frozen=True, slots=True)
class _Offer:
    """A run set that the other side has; `read` makes its record only when we want it."""

    run_set: str
    content_hash: str | None
    read: Callable[[], RunSet]


def _merge(engine: Engine, offers: Iterator[_Offer], on_progress: Progress) -> MergeReport:
    report = MergeReport()
    ours = {stored.run_set: stored.content_hash for stored in all_run_sets(engine)}
    hashes = set(ours.values())
    for offer in offers:
        on_progress(offer.run_set)
        if offer.content_hash in hashes:
            report.known.append(offer.run_set)
            continue
        if offer.content_hash is not None and offer.run_set in ours:
            report.conflicts.append(offer.run_set)
            continue
        try:
            record = offer.read()
        except InputError as error:
            report.unreadable.append(str(error))
            continue
        if record.content_hash in hashes:
            report.known.append(record.run_set)
        elif record.run_set in ours:
            report.conflicts.append(record.run_set)
        else:
            save_run_set(engine, record)
            hashes.add(record.content_hash)
            report.added.append(record.run_set)
    return report


def _from_folder(path: Path) -> Iterator[_Offer]:
    folders = [RunFolder(path.absolute())] if (path / "run_set.json").is_file() else list(run_folders(path))
    if not folders and (path / "runs").is_dir():
        folders = list(run_folders(path / "runs"))
    if not folders:
        raise InputError(
            f"{path}: found no run set of mlbench (a folder with run_set.json); published results are read with "
            f"`mlbench import {path}`"
        )
    for folder in folders:
        yield _Offer(folder.run_set, None, lambda folder=folder: read_run_set(folder))  # type: ignore[misc]


def _from_database(source: Engine) -> Iterator[_Offer]:
    for stored in all_run_sets(source):
        yield _Offer(stored.run_set, stored.content_hash, _reader(source, stored))


def _reader(source: Engine, stored: StoredRunSet) -> Callable[[], RunSet]:
    return lambda: arrived(load_run_sets(source, [stored.run_set], telemetry=True)[0])


@contextmanager
def _opened(other: str) -> Iterator[Engine]:
    if "://" in other and not other.startswith("sqlite:"):
        yield open_database(other, readonly=True)
        return
    folder = Path(tempfile.mkdtemp(prefix="mlbench-merge-"))
    try:
        yield open_copy(other, folder)
    finally:
        shutil.rmtree(folder)
