"""The Python 3.8 of this machine, if one really starts."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path


@cache
def find_python38() -> Path | None:
    """MLBENCH_PYTHON38, else python3.8 on PATH, else one of pyenv's. A name on PATH can be a version manager's stand-in
    that starts nothing, so each is tried."""
    candidates = [
        os.environ.get("MLBENCH_PYTHON38"),
        "python3.8",
        *sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python3.8")),
    ]
    for candidate in candidates:
        if not candidate:
            continue
        try:
            command = [
                str(candidate),
                "-c",
                "import sys; print(sys.executable); sys.exit(sys.version_info[:2] != (3, 8))",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return Path(done.stdout.strip())
    return None
