"""A name of its own for a folder of run sets, so that machines that share a database know whose files are whose.

Every machine may have its run sets in /data/runs. A row of the database holds the path of its files, which then says
too little: the path is not there on this machine, but are the files lost, or are they another machine's? The name, a
few random digits in a hidden file of the folder, tells. It goes with a mount, and not with the name of a host.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

MARKER = ".mlbench-runs"
_ID = re.compile(r"[0-9a-f]{16}")


def runs_folder_id(runs_dir: Path) -> str | None:
    """The name of the folder; None when it has none, or what is there is no name."""
    try:
        handle = os.open(runs_dir / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        text = os.read(handle, 64).decode("ascii", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(handle)
    return text if _ID.fullmatch(text) else None


def mark_runs_folder(runs_dir: Path) -> str | None:
    """The name of the folder, given now when it has none. None where nothing can be written; that is no fault."""
    known = runs_folder_id(runs_dir)
    if known is not None or not runs_dir.is_dir():
        return known
    part = runs_dir / f"{MARKER}.{os.getpid()}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        try:
            part.write_text(secrets.token_hex(8) + "\n", encoding="ascii")
            # A link fails where another process was quicker, and then its name counts.
            os.link(part, runs_dir / MARKER)
        finally:
            part.unlink(missing_ok=True)
    return runs_folder_id(runs_dir)
