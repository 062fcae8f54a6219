"""The record that `mlbench package` leaves in a tree, and whether the packaged logs still agree with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlbench.check.finding import Severity
from mlbench.check.rule import Outcome, Problem
from mlbench.check.subject import MAX_JSON_BYTES, Tree

FILE_NAME = "packaging.json"
MAX_LOG_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record that was changed in the packaged copy: its line, and the line's bytes before as text."""

    line: int
    key: str
    before: str
    after: str
    original_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedLog:
    """`result` is relative to the submitter's folder."""

    result: str
    run_set: str
    run: int
    attempt: int
    original_sha256: str
    packaged_sha256: str
    changes: Sequence[Change]


def dump(logs: Sequence[PackagedLog]) -> str:
    return json.dumps({"schema_version": 1, "logs": [asdict(log) for log in logs]}, indent=1) + "\n"


def load(path: Path) -> list[PackagedLog]:
    """Raises ValueError when the file is not such a record."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ValueError("too large")
    data = json.loads(path.read_text(encoding="utf-8"))
    try:
        return [_log(item) for item in data["logs"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a packaging record ({error})") from error


def _log(item: dict[str, Any]) -> PackagedLog:
    changes = [Change(**change) for change in item["changes"]]
    return PackagedLog(**{**item, "changes": changes})


def undo(packaged: bytes, changes: Sequence[Change]) -> bytes:
    """The original log. A change names its line from 1."""
    lines = packaged.split(b"\n")
    for change in changes:
        if not 1 <= change.line <= len(lines):
            raise ValueError(f"there is no line {change.line}")
        lines[change.line - 1] = change.original_line.encode("utf-8", "surrogateescape")
    return b"\n".join(lines)


def logs_agree(tree: Tree) -> Iterable[Outcome]:
    """PKG-10: packaged logs are the originals, apart from changes that are stated."""
    for entry in tree.entries:
        if entry.path.name != FILE_NAME or entry.is_link or not entry.path.is_relative_to(tree.root / "benchmarks"):
            continue
        try:
            logs = load(entry.path)
        except (ValueError, OSError) as error:
            yield Problem(found=f"cannot be read: {error}", expected="what mlbench package wrote", file=entry.name)
            continue
        for log in logs:
            yield from _agrees(tree, log)


def _agrees(tree: Tree, log: PackagedLog) -> Iterable[Outcome]:
    names = {entry.path.relative_to(tree.root).as_posix(): entry for entry in tree.entries if not entry.is_dir}
    entry = names.get(log.result)
    if entry is None or entry.is_link or entry.size_bytes > MAX_LOG_BYTES:
        yield Problem(found=f"{log.result} is not in the tree", expected="the log that was packaged", file=tree.name)
        return
    packaged = entry.path.read_bytes()
    if hashlib.sha256(packaged).hexdigest() != log.packaged_sha256:
        yield Problem(
            found="the log is not the one that was packaged",
            expected=f"sha256 {log.packaged_sha256[:16]}...",
            file=entry.name,
        )
        return
    try:
        original = undo(packaged, log.changes)
    except ValueError as error:
        yield Problem(
            found=f"the stated change does not fit: {error}", expected="a change of one record", file=entry.name
        )
        return
    if hashlib.sha256(original).hexdigest() != log.original_sha256:
        yield Problem(
            found="with the stated changes undone it is not the original log",
            expected=f"sha256 {log.original_sha256[:16]}...",
            file=entry.name,
        )
        return
    for change in log.changes:
        yield Problem(
            found=f"{change.key} was {change.before!r} when it ran, and {change.after!r} was filled in when packaged",
            expected=f"original sha256 {log.original_sha256}",
            file=entry.name,
            line=change.line,
            severity=Severity.note,
            remedy="nothing to do: the change is stated in the README of the package",
        )
