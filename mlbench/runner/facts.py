"""The software and hardware facts of a run set, and what of them differs from another time or place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlbench.collect.runfiles import Provenance, RunSetFile
from mlbench.errors import InputError
from mlbench.ingest.plain import load_json

HostFacts = Mapping[str, Mapping[str, str]]
"""host -> fact -> text, as in hosts.json."""

_SHOWN = 80


def software_facts(provenance: Provenance) -> dict[str, str]:
    """What software made the result, flat; a fact that is not known is left out."""
    facts = {
        "mlbench": provenance.mlbench_version,
        # Not the git commit: a change of the documents is no reason to refuse, an uncommitted one of the worker is.
        "worker code": None if provenance.worker_sha256 is None else provenance.worker_sha256[:12],
        "python": provenance.python,
        "container image": provenance.container_image,
        "container digest": provenance.container_digest,
        **{f"package {name}": version for name, version in provenance.packages.items()},
    }
    return {name: value for name, value in facts.items() if value is not None}


def hardware_facts(hosts: HostFacts, volatile: frozenset[str] = frozenset()) -> dict[str, str]:
    """What the hosts say of themselves, flat, without the facts that change by themselves."""
    return {
        f"{host}: {name}": str(value)
        for host, facts in hosts.items()
        for name, value in facts.items()
        if name not in volatile
    }


def all_facts(identity: RunSetFile, hosts: HostFacts, volatile: frozenset[str] = frozenset()) -> dict[str, str]:
    """Software, hardware, and the environment that the ranks get."""
    environment = {f"environment {name}": value for name, value in identity.environment.items()}
    mount = {f"data mount {name}": value for name, value in identity.provenance.data_mount.items()}
    return {**software_facts(identity.provenance), **hardware_facts(hosts, volatile), **environment, **mount}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One clause for each fact that differs, `driver: '450.51.06', now '470.10'`, in order of the names."""
    found = []
    for name in sorted(set(before) | set(now)):
        old, new = before.get(name), now.get(name)
        if old != new:
            found.append(f"{name}: {_text(old)}, now {_text(new)}")
    return found


def _text(value: str | None) -> str:
    if value is None:
        return "not known"
    return repr(value if len(value) <= _SHOWN else value[: _SHOWN - 3] + "...")


def read_hosts(path: Path) -> dict[str, dict[str, str]]:
    """hosts.json. Raises InputError: it is damaged. A run set without one has no host facts."""
    data = load_json(path, dict)
    if not all(isinstance(facts, dict) for facts in data.values()):
        raise InputError(f"{path}: expected an object of hosts, each with an object of facts")
    return {str(host): {str(k): str(v) for k, v in facts.items()} for host, facts in data.items()}
