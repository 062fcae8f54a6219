"""Which names are those of secrets, and how a text that holds one is shown: such a value is never kept or told."""

from __future__ import annotations

import re

MASK = "***"

_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|private_?key|access_?key|api_?key|session_?key|(?:^|_)auth(?:$|_)", re.I
)
# The password ends at the last @ before the host, because people leave an @ in it unescaped.
_IN_URL = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^:/?#@\s]*:)[^/\s]+(?=@)")
_IN_QUERY = re.compile(r"(?P<head>[?&;](?:password|passwd|pwd|sslpassword|passfile|token|signature)=)[^&;\s]+", re.I)
_NAMED_VALUE = re.compile(r"([\w.]+)['\"]?\s*[:=]")
_OVERRIDE = re.compile(r"(?P<head>[+~]*(?P<key>[^=:\s]+)[=:])(?P<value>.+)", re.S)


def is_secret_name(name: str) -> bool:
    return _SECRET.search(name) is not None


def mask_url(text: str) -> str:
    """The text with every password in a URL replaced by ***."""
    if "://" not in text:
        return text
    return _IN_QUERY.sub(rf"\g<head>{MASK}", _IN_URL.sub(rf"\g<head>{MASK}", text))


def holds_secret(key: str, value: str) -> bool:
    """Whether a value may not be told: its key or a key inside it, `{TOKEN: abc}`, is called like a secret, or it is a
    URL with a password."""
    names = (key.rpartition(".")[2], *_NAMED_VALUE.findall(value))
    return any(map(is_secret_name, names)) or mask_url(value) != value


def mask_override(text: str) -> str:
    """An override `KEY=VALUE`, also a mistyped one, as it may be told: what it gives to a secret is ***."""
    match = _OVERRIDE.fullmatch(text)
    if match is not None and holds_secret(match["key"], mask_url(match["value"])):
        return match["head"] + MASK
    return mask_url(text)
