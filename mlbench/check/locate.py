"""From a path to what is to be checked: a log, a result folder, a submitter's tree, a repository, a run folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlbench.check.records import RecordIndex
from mlbench.check.rulesets import DEFAULT_RULESET, round_ruleset
from mlbench.check.subject import (
    Description,
    Entry,
    Kind,
    LogFile,
    OwnRun,
    OwnRunSet,
    ResultSet,
    Subject,
    Tree,
    read_description,
)
from mlbench.collect.mllog import fold
from mlbench.collect.mllog_scan import HashingStream, scan
from mlbench.collect.runfiles import AttemptFile, read_attempt, read_run_set
from mlbench.collect.runfolder import AttemptFolder, RunFolder
from mlbench.collect.tree import kind_of, natural
from mlbench.errors import InputError
from mlbench.worker.job import Job, JobError, load

MAX_ENTRIES = 200_000
MAX_DEPTH = 4
"""Levels of folders above a submitter's tree: repository of rounds, round, submitter."""
OPTIONS_FILE = "package_checker_params"
OPTIONS = ("rcp-bypass", "seed-checker-bypass")
MAX_OPTIONS_BYTES = 1 << 16
_RESULT = re.compile(r"^result_.*\.txt$")
_LOG_SUFFIXES = {".txt", ".log", ".out"}
_PROBE_BYTES = 1 << 20
_OWN_NAMES = {
    "run_set.json", "config.yaml", "hosts.json", "allreduce.json", "allreduce", "storage.json", "storage",
    "findings.json", "runs", ".lock",
}  # fmt: skip


def locate(path: Path, ruleset: str | None = None) -> Subject:
    """Read everything below a path.

    Args: ruleset: for all of it; None: a run set's own, or the round that the path names, else 4.0.0.
    Raises: InputError: the path does not exist, cannot be read, or a run folder's own records are damaged.
    """
    try:
        root = path.resolve(strict=True)
        if root.is_dir():
            next(root.iterdir(), None)
        elif not root.is_file():
            # opening a pipe would wait for a writer
            raise InputError(
                f"{path}: is a device, pipe or socket; expected a log, a result folder, a submission tree or a run "
                f"folder"
            )
        else:
            with root.open("rb") as stream:
                stream.read(1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); expected a log, a result folder, a submission tree "
            f"or a run folder"
        ) from error
    return _Locator(root, ruleset).subject()


class _Locator:
    def __init__(self, root: Path, ruleset: str | None) -> None:
        self.root = root
        self.ruleset = ruleset
        self.base = root if root.is_dir() else root.parent

    def subject(self) -> Subject:
        if not self.root.is_dir():
            return Subject(root=self.root, sets=[self._single_log()], trees=[])
        if (self.root / "run_set.json").is_file():
            return Subject(root=self.root, sets=[self._own(RunFolder(self.root))], trees=[])
        own = [folder for folder in _folders(self.root) if (folder / "run_set.json").is_file()]
        if own:
            return Subject(root=self.root, sets=[self._own(RunFolder(folder)) for folder in own], trees=[])
        trees = [self._tree(folder) for folder in self._submitters(self.root, 0)]
        sets = [item for tree in trees for item in tree.sets]
        if not trees:
            sets = list(self._inside_a_tree()) or list(self._plain())
        return Subject(root=self.root, sets=sets, trees=trees)

    # -- where things are

    def _submitters(self, folder: Path, depth: int) -> Iterator[Path]:
        if (folder / "results").is_dir() and any(self._benchmark_folders(folder / "results")):
            yield folder
        elif depth < MAX_DEPTH:
            for child in _folders(folder):
                yield from self._submitters(child, depth + 1)

    def _benchmark_folders(self, results: Path) -> Iterator[Path]:
        """results/<system>/<benchmark> that hold something."""
        for system in _folders(results):
            for benchmark in _folders(system):
                if any(_RESULT.match(child.name) for child in _files(benchmark)):
                    yield benchmark

    def _inside_a_tree(self) -> Iterator[ResultSet]:
        """The path is results/, results/<system> or results/<system>/<benchmark> of a tree."""
        root = self.root
        if root.name == "results" and (root.parent / "systems").is_dir():
            for folder in self._benchmark_folders(root):
                yield self._result_folder(folder, root.parent)
        elif root.parent.name == "results":
            for folder in _folders(root):
                if any(_RESULT.match(child.name) for child in _files(folder)):
                    yield self._result_folder(folder, root.parent.parent)
        elif root.parent.parent.name == "results" and (root.parents[2] / "systems").is_dir():
            yield self._result_folder(root, root.parents[2])

    def _plain(self) -> Iterator[ResultSet]:
        """Folders with logs in them, at any place below."""
        pending = [self.root]
        seen = 0
        while pending and seen < MAX_ENTRIES:
            folder = pending.pop(0)
            files = _files(folder)
            seen += len(files) + 1
            named = any(_RESULT.match(path.name) for path in files)
            logs = _results(folder) if named else [path for path in files if _is_log(path)]
            if logs:
                others = [path.name for path in folder.iterdir() if path not in logs]
                yield self._set(Kind.folder, folder, logs, other_names=sorted(others))
            pending.extend(_folders(folder))

    # -- sets

    def _rel(self, path: Path) -> str:
        relative = os.path.relpath(path, self.base)
        return relative.replace(os.sep, "/")

    def _ruleset(self, folder: Path) -> str:
        return self.ruleset or round_ruleset(folder) or DEFAULT_RULESET

    def _single_log(self) -> ResultSet:
        return self._set(Kind.log, self.root.parent, [self.root])

    def _set(self, kind: Kind, folder: Path, paths: Sequence[Path], *, other_names: Sequence[str] = ()) -> ResultSet:
        logs, unread = self._read_all(paths, self.base)
        return ResultSet(
            kind=kind,
            name=self._rel(folder),
            folder=folder,
            ruleset=self._ruleset(folder),
            logs=logs,
            other_names=other_names,
            unread=unread,
        )

    def _tree(self, submitter: Path) -> Tree:
        sets = [self._result_folder(folder, submitter) for folder in self._benchmark_folders(submitter / "results")]
        entries = tree_entries(submitter, base=self.base)
        return Tree(
            root=submitter,
            name=self._rel(submitter),
            ruleset=self._ruleset(submitter),
            entries=entries,
            truncated=len(entries) >= MAX_ENTRIES,
            sets=sets,
        )

    def _result_folder(self, folder: Path, submitter: Path) -> ResultSet:
        paths = _results(folder)
        others = sorted(path.name for path in folder.iterdir() if path not in paths)
        logs, unread = self._read_all(paths, submitter)
        system = folder.parent.name
        options, unknown = self._options([folder.parent, folder], submitter)
        description: Description | None = None
        place = submitter / "systems" / f"{system}.json"
        if place.is_file() and _inside(place, submitter):
            description = read_description(place, self._rel(place))
        return ResultSet(
            kind=Kind.tree,
            name=self._rel(folder),
            folder=folder,
            ruleset=self._ruleset(folder),
            logs=logs,
            org=submitter.name,
            system=system,
            benchmark_folder=folder.name,
            description=description,
            description_expected=self._rel(place),
            other_names=others,
            unread=unread,
            options=options,
            unknown_options=unknown,
        )

    def _options(self, folders: Sequence[Path], submitter: Path) -> tuple[list[str], list[tuple[str, int, str]]]:
        """Read package_checker_params: one word a line, `-` or `_`, blank lines and `#` comments allowed."""
        known: list[str] = []
        unknown: list[tuple[str, int, str]] = []
        for path in (folder / OPTIONS_FILE for folder in folders):
            if not path.is_file() or not _inside(path, submitter) or path.stat().st_size > MAX_OPTIONS_BYTES:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                word = line.split("#", 1)[0].strip()
                if not word:
                    continue
                if word.replace("_", "-") in OPTIONS:
                    known.append(word.replace("_", "-"))
                else:
                    unknown.append((self._rel(path), number, word))
        return sorted(set(known)), unknown

    def _read_all(self, paths: Sequence[Path], within: Path) -> tuple[list[LogFile], dict[str, str]]:
        logs: list[LogFile] = []
        unread: dict[str, str] = {}
        for path in sorted(paths, key=lambda item: natural(item.name)):
            if path.is_symlink() and not _inside(path, within):
                unread[self._rel(path)] = "a link that leads out of the folder, or nowhere"
                continue
            if not path.is_file():
                unread[self._rel(path)] = f"{kind_of(path)}, not a file"
                continue
            try:
                logs.append(self._read(path, len(logs)))
            except InputError as error:
                unread[self._rel(path)] = str(error)
        return logs, unread

    def _read(self, path: Path, index: int) -> LogFile:
        name = self._rel(path)
        records = RecordIndex()
        try:
            with path.open("rb", buffering=0) as raw:
                stream = HashingStream(raw)
                log = fold(records.tap(scan(stream)), name)
        except OSError as error:
            raise InputError(f"{name}: cannot be read ({error.strerror or error}); a log was expected") from error
        return LogFile(path=path, name=name, index=index, log=log, records=records, sha256=stream.hexdigest())

    # -- a run folder of mlbench

    def _own(self, folder: RunFolder) -> ResultSet:
        identity = read_run_set(folder.identity)
        logs: list[LogFile] = []
        runs: dict[int, OwnRun] = {}
        unread: dict[str, str] = {}
        latest: dict[int, list[AttemptFolder]] = {}
        warmups = set()
        for attempt in folder.attempts():
            if attempt.warmup:
                warmups.add(attempt.index)
            else:
                latest.setdefault(attempt.index, []).append(attempt)
        for index, attempts in sorted(latest.items()):
            last = attempts[-1]
            has_log = last.mllog.is_file() and _inside(last.mllog, folder.path)
            runs[index] = OwnRun(
                name=self._rel(last.path),
                attempt=_attempt_file(last),
                job=_job(last),
                earlier=[_status(item) for item in attempts[:-1]],
                has_log=has_log,
            )
            if has_log:
                try:
                    logs.append(self._read(last.mllog, index))
                except InputError as error:
                    unread[self._rel(last.mllog)] = str(error)
        strays = sorted(child.name for child in folder.path.iterdir() if child.name not in _OWN_NAMES)
        return ResultSet(
            kind=Kind.run_set,
            name=self._rel(folder.path),
            folder=folder.path,
            ruleset=self.ruleset or identity.ruleset,
            logs=logs,
            system=identity.system_name,
            own=OwnRunSet(identity=identity, runs=runs, num_warmups=len(warmups), stray_names=strays),
            unread=unread,
        )


def tree_entries(root: Path, *, base: Path | None = None, limit: int = MAX_ENTRIES) -> list[Entry]:
    """Every name below a folder, at most `limit`, in order; links are not followed. Names are relative to `base`."""
    entries: list[Entry] = []
    for folder, folders, files in os.walk(root, followlinks=False):
        folders.sort()
        for name in sorted([*folders, *files]):
            if len(entries) >= limit:
                return entries
            entries.append(_entry(Path(folder) / name, root, base or root))
    return entries


def _entry(path: Path, root: Path, base: Path) -> Entry:
    is_link = path.is_symlink()
    problem = None
    if is_link and not path.exists():
        problem = "leads nowhere"
    elif is_link and not _inside(path, root):
        problem = "leads out of the tree"
    is_dir = path.is_dir() and not is_link
    return Entry(
        path=path,
        name=os.path.relpath(path, base).replace(os.sep, "/"),
        is_dir=is_dir,
        is_link=is_link,
        size_bytes=path.lstat().st_size,
        num_children=sum(1 for _ in path.iterdir()) if is_dir and os.access(path, os.R_OK) else None,
        link_problem=problem,
    )


def _folders(folder: Path) -> list[Path]:
    """Real sub-folders, in natural order; links and hidden ones are left alone."""
    children = [path for path in _children(folder) if path.is_dir() and not path.is_symlink()]
    return sorted((path for path in children if not path.name.startswith(".")), key=lambda path: natural(path.name))


def _files(folder: Path) -> list[Path]:
    return [path for path in _children(folder) if path.is_file() or path.is_symlink()]


def _results(folder: Path) -> list[Path]:
    """Everything that has the name of a result log, be it a file or not."""
    return [path for path in _children(folder) if _RESULT.match(path.name)]


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror or error}); a readable folder was expected") from (
            error
        )


def _is_log(path: Path) -> bool:
    """A file by its content: an MLLOG record in its first MiB. Raises nothing."""
    if path.suffix not in _LOG_SUFFIXES or path.is_symlink():
        return False
    try:
        with path.open("rb") as stream:
            return b":::MLL" in stream.read(_PROBE_BYTES)
    except OSError:
        return False


def _inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve())
    except OSError:
        return False


def _attempt_file(folder: AttemptFolder) -> AttemptFile | None:
    """None when the attempt was cut short. Raises InputError when the record is damaged."""
    return read_attempt(folder.outcome) if folder.outcome.is_file() else None


def _status(folder: AttemptFolder) -> str | None:
    record = _attempt_file(folder)
    return record.status if record is not None else None


def _job(folder: AttemptFolder) -> Job | None:
    if not folder.job.is_file():
        return None
    try:
        return load(str(folder.job))
    except JobError as error:
        raise InputError(str(error)) from error
