"""Where the result logs lie under a path: a single log, a result folder, a submitter's tree, a round's repository.

    [training_results_]<round>/<org>/results/<system>/<benchmark>/result_*.txt
    [training_results_]<round>/<org>/systems/<system>.json

Links that lead out of the tree are not followed, and neither are links to folders inside it. What has the name of a
log and is none (a folder, a pipe) is noted and never opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlbench.collect.runlog import Note
from mlbench.errors import InputError

_ROUND = re.compile(r"(?:training_results_|hpc_results_)?(v\d{1,2}\.\d{1,2})")
_RESULT = re.compile(r"result[s]?[_-]?\d+\.(?:txt|log|out)|result_.*\.txt", re.IGNORECASE)
_LOG_SUFFIXES = {".txt", ".log", ".out"}
_MARK = b":::MLL"
_LOOK_BYTES = 1 << 20
_SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules"}
MAX_DEPTH = 12
MAX_LOGS_IN_FOLDER = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFolder:
    """The logs of one folder, and what the names above it say. `root` is what file names in notes are relative to."""

    path: Path
    root: Path
    logs: tuple[Path, ...]
    round: str | None
    org: str | None
    system: str | None
    below: tuple[str, ...]
    """Folders below the system's, the benchmark's among them."""
    description: Path | None
    scaling: Path | None
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class TreeScan:
    """`unreadable` are folders that could not be listed, and logs of folders that hold no other, with the reason."""

    folders: list[ResultFolder] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def parse_round(text: str) -> str:
    """`v2.1`, `2.1` or `training_results_v2.1` as `v2.1`. Raises InputError for anything else."""
    found = _ROUND.fullmatch(text if not text[:1].isdigit() else f"v{text}")
    if found is None:
        raise InputError(f"round {text!r}: expected the name of a round such as v2.1")
    return found[1]


def round_of(path: Path) -> str | None:
    """The round that the nearest folder of a path names."""
    for part in reversed(path.parts):
        found = _ROUND.fullmatch(part)
        if found is not None:
            return found[1]
    return None


def scan_tree(path: Path, *, round_name: str | None = None) -> TreeScan:
    """Every result folder at or below `path`, sorted by path.

    A folder counts when it holds result_*.txt. When none does, the other text files of `path` itself that hold MLLOG
    records are taken as one set.

    Raises: InputError: `path` does not exist or cannot be read.
    """
    try:
        path = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{path}: no such file or folder; a log, a result folder or a results tree was expected"
        ) from (error)
    if path.is_file():
        return TreeScan([_folder(path.parent, path.parent, [path], round_name, [])])
    if not path.is_dir():
        raise InputError(f"{path}: neither a file nor a folder")
    scan = TreeScan()
    for folder, files, notes in _walk(path, path, scan.unreadable, 0):
        logs = [file for file in files if _RESULT.fullmatch(file.name)]
        if logs:
            scan.folders.append(_folder(folder, path, logs, round_name, notes))
        else:
            named = [note for note in notes if _RESULT.fullmatch(Path(note.file).name)]
            scan.unreadable += [f"{path / note.file}: {note.text}" for note in named]
    if not scan.folders:
        loose, notes = _loose_logs(path)
        if loose:
            scan.folders.append(_folder(path, path, loose, round_name, notes))
    return scan


def _walk(folder: Path, root: Path, unreadable: list[str], depth: int) -> Iterator[tuple[Path, list[Path], list[Note]]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: natural(entry.name))
    except OSError as error:
        unreadable.append(f"{folder}: cannot be listed ({error.strerror or error})")
        return
    files: list[Path] = []
    notes: list[Note] = []
    for entry in listed:
        if entry.is_symlink():
            target = _link_target(Path(entry.path), root)
            if target is not None:
                files.append(Path(entry.path))
            elif _RESULT.fullmatch(entry.name):
                text = "a link that leads to no file of the tree, not followed"
                notes.append(Note(_relative(Path(entry.path), root), None, text))
        elif entry.is_file(follow_symlinks=False):
            files.append(Path(entry.path))
        elif _RESULT.fullmatch(entry.name):
            text = f"{kind_of(Path(entry.path))}, not a file; it has the name of a result log and is not read"
            notes.append(Note(_relative(Path(entry.path), root), None, text))
    if len(files) > MAX_LOGS_IN_FOLDER:
        notes.append(Note(_relative(folder, root), None, f"only {MAX_LOGS_IN_FOLDER} of {len(files)} files are read"))
        files = files[:MAX_LOGS_IN_FOLDER]
    yield folder, files, notes
    if depth >= MAX_DEPTH:
        return
    for entry in listed:
        if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
            yield from _walk(Path(entry.path), root, unreadable, depth + 1)


def kind_of(path: Path) -> str:
    """What a name that is no regular file stands for; asking does not open it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "gone"
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def _link_target(link: Path, root: Path) -> Path | None:
    """The regular file inside the tree that a link leads to, else None."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return target if target.is_file() and target.is_relative_to(root) else None


def _loose_logs(folder: Path) -> tuple[list[Path], list[Note]]:
    found: list[Path] = []
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: natural(entry.name))
    for entry in listed[:MAX_LOGS_IN_FOLDER]:
        if not entry.is_file(follow_symlinks=False) or Path(entry.name).suffix.lower() not in _LOG_SUFFIXES:
            continue
        try:
            with Path(entry.path).open("rb") as stream:
                if _MARK in stream.read(_LOOK_BYTES):
                    found.append(Path(entry.path))
        except OSError:
            found.append(Path(entry.path))  # the reader will name it
    return found, [Note(".", None, "no result_*.txt here; the other text files with MLLOG records are read")]


def _folder(path: Path, root: Path, logs: list[Path], round_name: str | None, notes: list[Note]) -> ResultFolder:
    org, system, submission = None, None, None
    below: tuple[str, ...] = ()
    parts = path.parts
    if "results" in parts[1:]:
        at = len(parts) - 1 - parts[::-1].index("results")
        org = parts[at - 1] if at > 1 else None
        system = parts[at + 1] if at + 1 < len(parts) else None
        below = parts[at + 2 :]
        submission = Path(*parts[:at])
    scaling = path / "scaling.json"
    return ResultFolder(
        path=path,
        root=root,
        logs=tuple(sorted(logs, key=lambda log: natural(log.name))),
        round=round_name or round_of(path),
        org=org,
        system=system,
        below=below,
        description=_description(submission, system) if submission and system else None,
        scaling=scaling if scaling.is_file() and not scaling.is_symlink() else None,
        notes=tuple(notes),
    )


def _description(submission: Path, system: str) -> Path | None:
    """systems/<system>.json; a name that differs in case only counts when it is the only one."""
    folder = submission / "systems"
    exact = folder / f"{system}.json"
    if exact.is_file() and not exact.is_symlink():
        return exact
    try:
        near = [
            item
            for item in folder.iterdir()
            if item.name.lower() == f"{system}.json".lower() and item.is_file() and not item.is_symlink()
        ]
    except OSError:
        return None
    return near[0] if len(near) == 1 else None


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key: result_2 before result_10."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
