"""Host lists: the one place that reads them, whoever wrote them.

    dl-worker-01:2,dl-worker-02:2         as mpirun and horovodrun take them
    dl-worker-01 dl-worker-02             one slot each, or `default_slots`
    a file: one host a line, `name`, `name:2` or `name slots=2`; # starts a comment; any line ends, blank lines

A host may carry a user for ssh (`user@host`). IPv6 addresses stand in brackets: `[fe80::1]:2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlbench.errors import ConfigError, InputError
from mlbench.plan.types import Host

_MAX_FILE_BYTES = 1 << 20
_MAX_SLOTS = 4096
_NAME = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_ENTRY = re.compile(rf"^(?P<name>{_NAME})(?::(?P<slots>\d+))?$")
_SLOTS = re.compile(r"^(?:slots|max_slots|max-slots)=(?P<slots>\d+)$")


def parse_hosts(entries: Iterable[str], *, default_slots: int, where: str) -> tuple[Host, ...]:
    """Hosts in the order given.

    Args: entries: texts, each with one host or several, between commas or blanks. default_slots: of a host that names
    none. where: the setting, for messages. Raises: ConfigError naming the entry.
    """
    hosts: list[Host] = []
    for number, entry in enumerate(entries, start=1):
        for word in entry.replace(",", " ").split():
            hosts.append(_host(word, default_slots, f"{where}[{number}]"))
    return _without_duplicates(hosts, where)


def read_hostfile(path: Path, *, default_slots: int) -> tuple[Host, ...]:
    """Hosts of a file. Raises InputError when it cannot be read, ConfigError for a line that cannot be understood."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"launcher.hostfile {path}: {error.strerror}; give a text file with one host a line") from None
    if len(raw) > _MAX_FILE_BYTES:
        raise InputError(f"launcher.hostfile {path}: larger than {_MAX_FILE_BYTES} bytes, which no host list is")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"launcher.hostfile {path}: not text in UTF-8; give one host a line") from None
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        hosts += _line(words, default_slots, f"launcher.hostfile {path}:{number}")
    if not hosts:
        raise ConfigError(f"launcher.hostfile {path}: names no host; give one host a line, as `dl-worker-01:2`")
    return _without_duplicates(hosts, f"launcher.hostfile {path}")


def _line(words: Sequence[str], default_slots: int, where: str) -> list[Host]:
    """`a:2 b:2`, or one host followed by `slots=2` (Open MPI's own form)."""
    hosts: list[Host] = []
    for word in words:
        match = _SLOTS.match(word)
        if match is None:
            hosts.append(_host(word, default_slots, where))
        elif len(hosts) != 1:
            raise ConfigError(f"{where}: found {word!r}, expected it after exactly one host, as `dl-worker-01 slots=2`")
        elif not word.startswith("max"):
            hosts = [Host(name=hosts[0].name, slots=_slots(match["slots"], word, where))]
    return hosts


def _host(word: str, default_slots: int, where: str) -> Host:
    match = _ENTRY.match(word)
    if match is None:
        raise ConfigError(f"{where}: found {word!r}, expected a host name with or without slots, as `dl-worker-01:2`")
    slots = match["slots"]
    return Host(name=match["name"], slots=default_slots if slots is None else _slots(slots, word, where))


def _slots(text: str, word: str, where: str) -> int:
    slots = int(text) if len(text) <= 5 else _MAX_SLOTS + 1
    if not 1 <= slots <= _MAX_SLOTS:
        raise ConfigError(f"{where}: found {word!r}, expected 1 to {_MAX_SLOTS} slots")
    return slots


def _without_duplicates(hosts: Sequence[Host], where: str) -> tuple[Host, ...]:
    seen: set[str] = set()
    for host in hosts:
        name = host.name.lower()
        if name in seen:
            raise ConfigError(f"{where}: {host.name} stands there twice; name each host once with its slots, as `a:2`")
        seen.add(name)
    return tuple(hosts)


def place(hosts: Sequence[Host], num_ranks: int, *, where: str) -> tuple[Host, ...]:
    """The hosts that `num_ranks` ranks fill exactly, one after the other.

    A host that stays empty, or is filled in part, is refused: the user asked for another number of ranks than the
    hosts have. Raises ConfigError with the sum.
    """
    total = sum(host.slots for host in hosts)
    if total != num_ranks:
        listed = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        raise ConfigError(
            f"{where}: {listed} has {total} slots, expected {num_ranks} for gpus={num_ranks}; "
            f"change the slots, or say gpus={total}"
        )
    return tuple(hosts)


def host_argument(hosts: Sequence[Host]) -> str:
    """As mpirun and horovodrun take it: `a:5,b:4`."""
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)
