"""The report's folder: written apart and put in its place in one step; what is not ours is never touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mlbench.errors import ConfigError
from mlbench.publish.tree import put_in_place, staging, write_file
from mlbench.wording import count_of

MARK = "report.json"
"""Names every file of the report; by it an earlier report is known."""
FORMAT = "mlbench report"
_MAX_MARK_BYTES = 1 << 20


def refuse_foreign(target: Path) -> None:
    """Raises ConfigError unless `target` is absent, empty, or an earlier report and nothing else."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"--out {target}: expected a folder, found a file or a link; give another folder")
    if not target.exists():
        return
    present = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    if not present:
        return
    known = _files_of_report(target / MARK)
    if known is None:
        files = count_of(len(present), "file that is", "files that are")
        raise ConfigError(
            f"--out {target}: holds {files} no report of mlbench (no {MARK}); give an empty or a new folder"
        )
    strange = sorted(present - known)
    if strange:
        shown = ", ".join(strange[:3]) + (", ..." if len(strange) > 3 else "")
        raise ConfigError(
            f"--out {target}: an earlier report, but {shown} in it is not of the report and would be lost; "
            "move it or give another folder"
        )


def _files_of_report(mark: Path) -> set[str] | None:
    """Names that the mark lists; None when it is not one of ours."""
    try:
        if mark.is_symlink() or mark.stat().st_size > _MAX_MARK_BYTES:
            return None
        found = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("files"), list):
        return None
    return {str(name) for name in found["files"]} | {MARK}


def write_folder(target: Path, files: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """Write `files` (name -> content) and the mark as the folder `target`; all of it, or nothing.

    Raises: ConfigError: the folder holds something else, or cannot be written.
    """
    refuse_foreign(target)
    mark = {"format": FORMAT, **about, "files": sorted(files)}
    with staging(target) as work:
        built = work / "report"
        for name, content in files.items():
            write_file(built / name, content)
        write_file(built / MARK, json.dumps(mark, indent=1, allow_nan=False).encode() + b"\n")
        put_in_place(built, target)
