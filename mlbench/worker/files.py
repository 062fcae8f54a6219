"""Files that a reader sees whole or not at all. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any


def write_json(path: str, value: Any) -> None:
    """Write beside the place, let the disk confirm it, and only then put it there. Raises OSError."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
