"""Host lists: one parser for the command line, host files and every launcher.

    dl-worker-01:2,dl-worker-02:2         as mpirun and horovodrun take them
    dl-worker-01 dl-worker-02             without slots: what the profile's nodes take
    a file: one host a line, `name`, `name:2` or `name slots=2`; # starts a comment; any line ends, blank lines

A host may carry a user for ssh (`user@host`). IPv6 addresses stand in brackets: `[fe80::1]:2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlbench.errors import ConfigError

Named = tuple[str, int | None]
"""A host and its slots; None where the list names none."""

MAX_SLOTS = 4096
_MAX_FILE_BYTES = 1 << 20
_NAME = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_ENTRY = re.compile(rf"^(?P<name>{_NAME})(?::(?P<slots>[0-9]+))?$")
_SLOTS = re.compile(r"\s+slots\s*=\s*(?=[0-9])", re.IGNORECASE)
_MAX_SLOTS = re.compile(r"\s+max[_-]slots\s*=\s*[0-9]+", re.IGNORECASE)


def parse_hosts(words: Iterable[str], where: str = "hosts") -> list[Named]:
    """Hosts in the order given. Each word holds one host or several, between commas or blanks.

    Raises ConfigError for a host that is no host name, slots outside 1 to 4096, and a host named twice.
    """
    found: list[Named] = []
    for word in words:
        found += [_entry(text, where) for text in re.split(r"[,\s]+", word) if text]
    seen: set[str] = set()
    for name, _ in found:
        if name.lower() in seen:
            raise ConfigError(f"{where}: host {name} is named twice; name each host once with all its slots, as a:2")
        seen.add(name.lower())
    return found


def read_hostfile(path: Path) -> list[Named]:
    """Hosts of a file. Raises ConfigError when it cannot be read, names no host, or has a line that is none."""
    where = f"launcher.hostfile {path}"
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); expected a text file, a host a line") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: is not text in UTF-8; expected a host a line") from error
    if len(raw) > _MAX_FILE_BYTES:
        raise ConfigError(f"{where}: is larger than {_MAX_FILE_BYTES} bytes, which no host list is")
    words: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _SLOTS.sub(":", _MAX_SLOTS.sub("", f" {line.partition('#')[0].strip()}")).strip()
        if len(bare.split()) > 1:
            raise ConfigError(f"{where}:{number}: found {bare!r}, expected one host a line, as `dl-worker-01 slots=2`")
        parse_hosts([bare], f"{where}:{number}")
        words.append(bare)
    hosts = parse_hosts(words, where)
    if not hosts:
        raise ConfigError(f"{where}: names no host; give a host a line, as dl-worker-01:2")
    return hosts


def hosts_of(hosts: Sequence[str], hostfile: str | None) -> list[Named]:
    """The hosts that the configuration names, in a list or a file; empty when it names none."""
    if hosts and hostfile:
        raise ConfigError("hosts and launcher.hostfile are both given; give only one of them")
    return read_hostfile(Path(hostfile).expanduser().absolute()) if hostfile else parse_hosts(hosts)


def _entry(text: str, where: str) -> Named:
    match = _ENTRY.match(text)
    if match is None:
        raise ConfigError(f"{where}: found {text!r}, expected a host with or without slots, as dl-worker-01:2")
    slots = match["slots"]
    if slots is not None and not (len(slots) <= 4 and 1 <= int(slots) <= MAX_SLOTS):
        raise ConfigError(f"{where}: found {text!r}, expected 1 to {MAX_SLOTS} slots")
    return match["name"], None if slots is None else int(slots)
