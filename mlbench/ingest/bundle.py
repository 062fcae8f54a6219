"""One file with run sets, their logs and facts, to send to another team; verified when it is read.

A zip file:

    manifest.json                  format, version, and for each run set its files with size and sha256
    run_sets/<n>/facts.json        the rows as the sender's database had them
    run_sets/<n>/files/...         the files: a run folder of mlbench, or the part of a published tree

The reader trusts nothing in it: names stay inside the folder they are unpacked to, links are refused, sizes are
limited and checked against the manifest while reading, and rows are made from the files, not from the facts. Facts
serve only where the sender had no files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sqlalchemy import Engine

from mlbench import __version__
from mlbench.collect.runfolder import RunFolder
from mlbench.collect.runs_marker import mark_runs_folder
from mlbench.collect.tree import scan_tree
from mlbench.errors import InputError
from mlbench.ingest.content import file_sha256
from mlbench.ingest.published import import_folder
from mlbench.ingest.run_set import read_run_set
from mlbench.ingest.unpacking import unpacking_place
from mlbench.store.records import from_plain, to_plain
from mlbench.store.repository import SaveOutcome, load_run_sets, save_run_set, stored_hash
from mlbench.store.tables import RunSet

FORMAT = "mlbench bundle"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
MAX_FACTS_BYTES = 512 << 20
MAX_FILE_BYTES = 4 << 30
MAX_TOTAL_BYTES = 64 << 30
MAX_FILES = 500_000
_CHUNK = 1 << 20
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
_PART = re.compile(r"^(?!\.{1,2}$)[^/\\\0:\x01-\x1f]{1,255}$")
_SKIPPED = {".lock"}
_OF_THE_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Written:
    num_run_sets: int
    num_files: int
    size_bytes: int


@dataclass(slots=True)
class BundleReport:
    """Public ids with what became of them. `conflicts`: ours has other content under the same id."""

    saved: list[tuple[RunSet, SaveOutcome]] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Listed:
    """One run set in the manifest. `files`: name inside its folder -> (size in bytes, sha256)."""

    run_set: str
    origin: str
    round: str | None
    folder: str
    facts: tuple[int, str]
    files: dict[str, tuple[int, str]]


def write_bundle(engine: Engine, run_sets: list[str], out: Path) -> Written:
    """Write run sets (public ids) with their files to `out`, which is there whole or not at all.

    Raises: InputError: there is nothing to write, a file cannot be read, or `out` cannot be written.
    """
    if not run_sets:
        raise InputError("results export --bundle: no run set fits; name some, or give other filters")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            listed = [_add(archive, engine, name, number) for number, name in enumerate(run_sets)]
            manifest = {
                "format": FORMAT,
                "version": VERSION,
                "mlbench_version": __version__,
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "run_sets": listed,
            }
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        size = part.stat().st_size
        part.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); nothing was left there") from error
    finally:
        part.unlink(missing_ok=True)
    return Written(len(listed), sum(len(item["files"]) for item in listed), size)


def read_bundle(engine: Engine, path: Path, runs_dir: Path, imports_dir: Path) -> BundleReport:
    """Verify a bundle, unpack own run sets to `runs_dir` and published ones to `imports_dir`, and store them all.

    A run set that is here with the same content is left alone; one with other content is reported and left alone.
    Raises: InputError: it is no bundle, is damaged, or holds what a bundle may not hold. Run sets before the fault
        are stored, the one with it and those after are not.
    """
    report = BundleReport()
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is a folder, device or pipe, expected a bundle of mlbench")
    try:
        with zipfile.ZipFile(path) as archive:
            for listed in _manifest(archive, path):
                _take(archive, engine, listed, path, (runs_dir, imports_dir), report)
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: is no bundle of mlbench, or damaged ({error})") from error
    except (zlib.error, lzma.LZMAError, struct.error, UnicodeError) as error:
        raise InputError(f"{path}: is damaged ({error})") from error
    except (OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read or unpacked ({error})") from error
    return report


def _add(archive: zipfile.ZipFile, engine: Engine, name: str, number: int) -> dict[str, Any]:
    run_set = load_run_sets(engine, [name], telemetry=True)[0]
    folder = f"run_sets/{number:05d}"
    facts = json.dumps(to_plain(run_set)).encode()
    archive.writestr(f"{folder}/facts.json", facts)
    files = {}
    for inside, file in _files(run_set):
        archive.write(file, f"{folder}/files/{inside}")
        info = archive.getinfo(f"{folder}/files/{inside}")
        files[inside] = {"size_bytes": info.file_size, "sha256": file_sha256(file)}
    return {
        "run_set": run_set.run_set,
        "origin": run_set.origin,
        "round": run_set.round,
        "folder": folder,
        "facts": {"size_bytes": len(facts), "sha256": hashlib.sha256(facts).hexdigest()},
        "files": files,
    }


def _files(run_set: RunSet) -> Iterator[tuple[str, Path]]:
    """(name in the bundle, file) of everything that belongs to a run set; links are left out."""
    if run_set.path is None or not Path(run_set.path).exists():
        return
    root = Path(run_set.path)
    if run_set.origin == "run":
        for file in sorted(Path(folder) / name for folder, _, names in os.walk(root) for name in names):
            if file.name not in _SKIPPED and file.is_file() and not file.is_symlink():
                yield file.relative_to(root).as_posix(), file
        return
    for found in scan_tree(root, round_name=run_set.round).folders:
        if not any(row.run_set == run_set.run_set for row in import_folder(found).run_sets):
            continue
        named = found.org is not None and found.system is not None
        top = [found.round or "round", found.org, "results", found.system, *found.below] if named else ["logs"]
        folder_name = "/".join(str(part) for part in top)
        for log in (*found.logs, *filter(None, [found.scaling])):
            yield f"{folder_name}/{log.name}", log
        if named and found.description is not None:
            yield f"{top[0]}/{found.org}/systems/{found.description.name}", found.description


def _manifest(archive: zipfile.ZipFile, path: Path) -> list[_Listed]:
    infos = archive.infolist()
    if len(infos) > MAX_FILES:
        raise InputError(f"{path}: holds {len(infos)} files, at most {MAX_FILES} are read")
    if len({info.filename for info in infos}) != len(infos):
        raise InputError(f"{path}: holds two files of one name")
    try:
        data = json.loads(_read(archive, MANIFEST, MAX_MANIFEST_BYTES, path))
        if data["format"] != FORMAT:
            raise InputError(f"{path}: format {data['format']!r}, expected {FORMAT!r}")
        if data["version"] != VERSION:
            raise InputError(f"{path}: bundle version {data['version']!r}, this mlbench reads {VERSION}")
        listed = [_listed(item, path) for item in data["run_sets"]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: its manifest is damaged ({type(error).__name__}: {error})") from error
    total = sum(size for item in listed for size, _ in (*item.files.values(), item.facts))
    if total > MAX_TOTAL_BYTES:
        raise InputError(f"{path}: would unpack to {total} bytes, at most {MAX_TOTAL_BYTES} are unpacked")
    return listed


def _listed(item: dict[str, Any], path: Path) -> _Listed:
    files = {str(name): (int(entry["size_bytes"]), str(entry["sha256"])) for name, entry in item["files"].items()}
    for name, (size, _) in files.items():
        if not all(_PART.match(part) for part in name.split("/")) or len(name) > 1000:
            raise InputError(f"{path}: holds the file name {name!r}, which leads out of its folder or is not allowed")
        if not 0 <= size <= MAX_FILE_BYTES:
            raise InputError(f"{path}: {name}: {size} bytes, at most {MAX_FILE_BYTES} are unpacked")
    facts = (int(item["facts"]["size_bytes"]), str(item["facts"]["sha256"]))
    if facts[0] < 0:
        raise ValueError(f"facts of {facts[0]} bytes")
    round_name = item["round"]
    return _Listed(
        run_set=str(item["run_set"]),
        origin=str(item["origin"]),
        round=None if round_name is None else str(round_name),
        folder=str(item["folder"]),
        facts=facts,
        files=files,
    )


def _take(
    archive: zipfile.ZipFile,
    engine: Engine,
    listed: _Listed,
    path: Path,
    places: tuple[Path, Path],
    report: BundleReport,
) -> None:
    facts = _read(archive, f"{listed.folder}/facts.json", min(listed.facts[0], MAX_FACTS_BYTES), path)
    if hashlib.sha256(facts).hexdigest() != listed.facts[1]:
        raise InputError(f"{path}: the facts of {listed.run_set} are not those that the manifest names")
    if listed.files:
        record = _from_files(archive, listed, path, places, report)
    else:
        try:
            record = from_plain(json.loads(facts), f"{path}: {listed.run_set}")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: the facts of {listed.run_set} are no JSON") from error
        record.path = None
        record.runs_folder = None
    if record is None:
        return
    known = stored_hash(engine, record.run_set)
    if known is not None and known != record.content_hash:
        report.conflicts.append(record.run_set)
        return
    report.saved.append((record, save_run_set(engine, record)))


def _from_files(
    archive: zipfile.ZipFile, listed: _Listed, path: Path, places: tuple[Path, Path], report: BundleReport
) -> RunSet | None:
    """Unpack beside the final place, verify, read, and only then move there. None: a conflict, told in the report."""
    runs_dir, imports_dir = places
    own = listed.origin == "run"
    if own and not _ID.match(listed.run_set):
        raise InputError(f"{path}: {listed.run_set!r} is no id of a run set of mlbench")
    parent = runs_dir if own else imports_dir
    name = listed.run_set if own else hashlib.sha256(json.dumps(sorted(listed.files.items())).encode()).hexdigest()[:16]
    final = parent / name
    try:
        with unpacking_place(parent) as place:
            unpacked = place / name
            _unpack(archive, listed, path, unpacked)
            record = _record(unpacked, listed, path)
            if _moved(unpacked, final):
                if own:
                    mark_runs_folder(parent)
                return _record(final, listed, path)
    except OSError as error:
        if error.errno not in _OF_THE_PLACE:
            raise
        raise InputError(
            f"{parent}: run sets of {path.name} cannot be unpacked there ({error.strerror}); nothing of "
            f"{listed.run_set} was left, those before it are stored; mend that and run it again"
        ) from error
    ours = _record(final, listed, path)
    if ours.content_hash != record.content_hash:
        report.conflicts.append(listed.run_set)
        return None
    return ours


def _moved(unpacked: Path, final: Path) -> bool:
    """Move a folder to where it stays. False when one is there already, perhaps another process's of this moment."""
    if final.exists():
        return False
    try:
        unpacked.rename(final)
    except OSError:
        if final.exists():
            return False
        raise
    return True


def _record(folder: Path, listed: _Listed, path: Path) -> RunSet:
    if listed.origin == "run":
        return read_run_set(RunFolder(folder.absolute()))
    for found in scan_tree(folder, round_name=listed.round).folders:
        for run_set in import_folder(found).run_sets:
            if run_set.run_set == listed.run_set:
                return run_set
    raise InputError(f"{path}: the files of {listed.run_set} are not those of a run set of that id")


def _unpack(archive: zipfile.ZipFile, listed: _Listed, path: Path, folder: Path) -> None:
    folder.mkdir()
    for name, (size, sha256) in listed.files.items():
        target = folder.joinpath(*PurePosixPath(name).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, written = hashlib.sha256(), 0
        with _open(archive, f"{listed.folder}/files/{name}", path) as source, target.open("xb") as sink:
            while piece := source.read(_CHUNK):
                written += len(piece)
                if written > size:
                    break
                digest.update(piece)
                sink.write(piece)
        if written != size or digest.hexdigest() != sha256:
            raise InputError(f"{path}: {listed.run_set}, {name}: damaged, its content is not what the manifest names")


def _read(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytes:
    with _open(archive, name, path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise InputError(f"{path}: {name} is larger than {limit} bytes")
    return data


def _open(archive: zipfile.ZipFile, name: str, path: Path) -> IO[bytes]:
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise InputError(f"{path}: lacks {name}; it is no bundle of mlbench, or damaged") from error
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise InputError(f"{path}: {name} is a link or a device, expected a file")
    return archive.open(info)
