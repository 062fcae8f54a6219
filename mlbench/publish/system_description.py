"""The system description of a submission, from what a run set recorded: its profile first, else what the host said.

All 33 fields of mlperf_logging's system_desc_checker are filled and every value is text. What the system has not is
`N/A`; what nobody recorded is `not recorded`, which is true, and can be given with `--field`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlbench.check.rulesets import DESCRIPTION_STATUSES
from mlbench.check.system_rules import REQUIRED_FIELDS
from mlbench.collect.runfiles import RunSetFile
from mlbench.errors import ConfigError, near_miss
from mlbench.wording import count_of

NONE_THERE = "N/A"
NOT_RECORDED = "not recorded"
_STATUS = dict(
    zip(("onprem", "cloud", "research", "preview"), DESCRIPTION_STATUSES, strict=True)
)  # the rules' words for what `submission_status` says in a log
_GIVEN_FIELDS = tuple(
    name for name in REQUIRED_FIELDS if name not in ("submitter", "division", "status", "system_name")
)
_FREQUENCY = re.compile(r"@\s*([\d.]+\s*[GM]Hz)", re.IGNORECASE)


def system_folder_name(identity: RunSetFile) -> str:
    """results/<this>: the system's name without what a repository refuses, and how much of it was used."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "_", identity.system_name).strip("._-") or "system"
    unit = "gpu" if identity.device == "gpu" else "cpu"
    return f"{name}_x{identity.num_ranks}{unit}"


def describe(
    identity: RunSetFile,
    hardware: Mapping[str, Any],
    hosts: Mapping[str, Mapping[str, str]],
    *,
    org: str,
    given: Mapping[str, str],
) -> dict[str, Any]:
    """The description of one system.

    Args:
        hardware: `hardware` of the stored configuration: `compute` and `storage`, either of them None.
        hosts: hosts.json, host -> fact -> text.
        given: fields that the submitter knows better; they win.
    Raises: ConfigError: a given field is not one of the 33, or not the submitter's to give.
    """
    check_given(given)
    compute: Mapping[str, Any] = hardware.get("compute") or {}
    storage: Mapping[str, Any] = hardware.get("storage") or {}
    facts: Mapping[str, str] = next(iter(hosts.values()), {}) if hosts else {}
    values = {
        "submitter": org,
        "division": identity.division,
        "status": _STATUS.get(identity.submission_status, identity.submission_status),
        "system_name": system_folder_name(identity),
        "number_of_nodes": str(identity.num_nodes),
        **_processor(compute, facts),
        **_memory_and_storage(compute, storage, facts, identity),
        **_network(compute),
        **_accelerator(identity, compute, facts),
        "cooling": NOT_RECORDED,
        "hw_notes": _hardware_notes(identity),
        "framework": identity.framework or _package(identity, "mxnet", "MXNet") or NOT_RECORDED,
        "other_software_stack": _software(identity, compute, facts),
        "operating_system": _operating_system(compute, facts),
        "sw_notes": _software_notes(identity),
    }
    values.update(given)
    return {name: values[name] for name in REQUIRED_FIELDS}


def check_given(given: Mapping[str, str]) -> None:
    """Raises ConfigError for a field that cannot be given."""
    for name in given:
        if name not in _GIVEN_FIELDS:
            known = ", ".join(_GIVEN_FIELDS)
            raise ConfigError(
                f"--field {name}: not a field that can be given{near_miss(name, _GIVEN_FIELDS)}; known: {known}"
            )


def _processor(compute: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, str]:
    model = _text(compute.get("host_processor_model")) or facts.get("cpu_model")
    sockets = _text(compute.get("host_processors_per_node")) or facts.get("num_sockets")
    cores = _text(compute.get("host_processor_cores")) or _per_socket(facts)
    frequency = _FREQUENCY.search(model or "")
    return {
        "host_processors_per_node": sockets or NOT_RECORDED,
        "host_processor_model_name": model or NOT_RECORDED,
        "host_processor_core_count": cores or NOT_RECORDED,
        "host_processor_vcpu_count": facts.get("num_cpus") or NOT_RECORDED,
        "host_processor_frequency": frequency[1] if frequency else NOT_RECORDED,
        "host_processor_caches": NOT_RECORDED,
        "host_processor_interconnect": NOT_RECORDED,
    }


def _per_socket(facts: Mapping[str, str]) -> str | None:
    """Cores of one processor from the cores of the node."""
    cores, sockets = facts.get("num_cores", ""), facts.get("num_sockets", "")
    if not cores.isdecimal():
        return None
    return str(int(cores) // int(sockets)) if sockets.isdecimal() and int(sockets) > 0 else cores


def _memory_and_storage(
    compute: Mapping[str, Any], storage: Mapping[str, Any], facts: Mapping[str, str], identity: RunSetFile
) -> dict[str, str]:
    memory_gb = compute.get("host_memory_gb")
    if memory_gb is None and facts.get("memory_bytes", "").isdecimal():
        memory_gb = round(int(facts["memory_bytes"]) / 1e9, 1)
    mount = identity.provenance.data_mount
    kind = _text(storage.get("system_name")) or _text(compute.get("host_storage"))
    if kind is None and mount.get("type"):
        kind = f"{mount['type']} file system on {mount.get('device', 'an unnamed device')}"
    if storage.get("protocol"):
        kind = f"{kind}, {storage['protocol']}"
    capacity = storage.get("raw_capacity_tb")
    chassis = storage.get("num_chassis") or 1
    return {
        "host_memory_capacity": f"{memory_gb:g} GB" if memory_gb is not None else NOT_RECORDED,
        "host_memory_configuration": NOT_RECORDED,
        "host_storage_type": kind or NOT_RECORDED,
        "host_storage_capacity": f"{capacity * chassis:g} TB" if capacity is not None else NOT_RECORDED,
    }


def _network(compute: Mapping[str, Any]) -> dict[str, str]:
    nics = [f"compute: {nic}" for nic in compute.get("compute_nics") or ()]
    nics += [f"storage: {nic}" for nic in compute.get("storage_nics") or ()]
    return {
        "host_networking": "; ".join(nics) or NOT_RECORDED,
        "host_networking_topology": _text(compute.get("interconnect")) or NOT_RECORDED,
    }


def _accelerator(identity: RunSetFile, compute: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, str]:
    names = [name for name in REQUIRED_FIELDS if name.startswith("accelerator_")]
    if identity.num_accelerators == 0:
        return {"accelerators_per_node": "0", **dict.fromkeys(names, NONE_THERE)}
    memory_gb = compute.get("accelerator_memory_gb")
    return {
        **dict.fromkeys(names, NOT_RECORDED),
        "accelerators_per_node": str(identity.num_accelerators // max(identity.num_nodes, 1)),
        "accelerator_model_name": _text(compute.get("accelerator_model"))
        or facts.get("gpus", "").split(", ")[0]
        or NOT_RECORDED,
        "accelerator_memory_capacity": f"{memory_gb:g} GB" if memory_gb is not None else NOT_RECORDED,
        "accelerator_interconnect": _text(compute.get("accelerator_interconnect")) or NOT_RECORDED,
    }


def _software(identity: RunSetFile, compute: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, str]:
    stack = {f"{name}_version": version for name, version in sorted(identity.provenance.packages.items())}
    stack["python_version"] = identity.provenance.python
    for name in ("driver", "cuda", "nccl"):
        if facts.get(name):
            stack[f"{name}_version"] = facts[name]
    if identity.provenance.container_image:
        stack["container"] = identity.provenance.container_image
    if identity.provenance.container_digest:
        stack["container_digest"] = identity.provenance.container_digest
    return {name: str(version) for name, version in stack.items()}


def _operating_system(compute: Mapping[str, Any], facts: Mapping[str, str]) -> str:
    software: Mapping[str, str] = compute.get("software") or {}
    system = facts.get("operating_system") or software.get("operating_system")
    kernel = facts.get("kernel") or software.get("kernel")
    if system and kernel:
        return f"{system}, kernel {kernel}"
    return system or NOT_RECORDED


def _hardware_notes(identity: RunSetFile) -> str:
    unit = "accelerators" if identity.num_accelerators else "CPU processes, no accelerator"
    size = f"{count_of(identity.num_ranks, 'rank')} on {count_of(identity.num_nodes, 'node')}"
    return f"{identity.system_name}; {size} ({unit})"


def _software_notes(identity: RunSetFile) -> str:
    origin = identity.provenance
    commit = f", commit {origin.git_commit}" if origin.git_commit else ""
    changed = " with local changes" if origin.git_dirty else ""
    return f"mlbench {origin.mlbench_version}{commit}{changed}; run set {identity.run_set}"


def _package(identity: RunSetFile, package: str, shown: str) -> str | None:
    version = identity.provenance.packages.get(package)
    return f"{shown} {version}" if version else None


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
