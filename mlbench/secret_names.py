"""Which names are those of secrets: the value of such a key or variable is never kept."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|private_?key|access_?key|api_?key|session_?key|(?:^|_)auth(?:$|_)", re.I
)


def is_secret_name(name: str) -> bool:
    return _SECRET.search(name) is not None
