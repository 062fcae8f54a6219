"""Host lists: `a:8`, `a slots=8`, commas, blanks, host files with comments; one parser for all launchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlbench.errors import ConfigError

_HOST = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
_SLOTS = re.compile(r"\s+(?:slots|max_slots|max-slots)\s*=\s*", re.IGNORECASE)


def parse_hosts(words: Iterable[str], where: str = "hosts") -> list[tuple[str, int | None]]:
    """Hosts in the order given, each with its slots, or None where the list names none.

    Raises ConfigError for a host that is no host name, slots that are no number above 0, and a host named twice.
    """
    found: dict[str, int | None] = {}
    for word in words:
        for entry in re.split(r"[,\s]+", word.strip()):
            if not entry:
                continue
            name, colon, slots = entry.partition(":")
            if not _HOST.match(name):
                raise ConfigError(f"{where}: found {entry!r}, expected HOST or HOST:SLOTS, for example a:8")
            if colon and (not slots.isascii() or not slots.isdigit() or int(slots) < 1):
                raise ConfigError(f"{where}: host {name} has {slots!r} slots, expected a whole number above 0")
            if name in found:
                raise ConfigError(f"{where}: host {name} is named twice; give it once with the sum of its slots")
            found[name] = int(slots) if colon else None
    return list(found.items())


def read_hostfile(path: Path) -> list[tuple[str, int | None]]:
    """Hosts of a file, one a line: `a`, `a:8` or `a slots=8`; blank lines and what follows `#` do not count.

    Raises ConfigError for a file that cannot be read, has no host, or has a line that is none of these.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"launcher.hostfile {path}: cannot be read ({_reason(error)})") from error
    words: list[str] = []
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        joined = _SLOTS.sub(":", text, count=1)
        if len(joined.split()) > 1:
            raise ConfigError(f"{path}:{number}: found {text!r}, expected HOST, HOST:SLOTS or HOST slots=SLOTS")
        words.append(joined)
    hosts = parse_hosts(words, str(path))
    if not hosts:
        raise ConfigError(f"launcher.hostfile {path}: names no host")
    return hosts


def hosts_of(hosts: Sequence[str], hostfile: str | None) -> list[tuple[str, int | None]]:
    """The hosts that the configuration names, in a list or a file; empty when it names none."""
    if hosts and hostfile:
        raise ConfigError("hosts and launcher.hostfile are both given; give only one of them")
    return read_hostfile(Path(hostfile).expanduser().absolute()) if hostfile else parse_hosts(hosts)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not UTF-8 text"
