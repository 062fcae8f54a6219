"""Which rank runs where: ranks fill a node before the next one."""

from __future__ import annotations

from mlbench.choices import Device, Division, LauncherName
from mlbench.config import ComputeProfile, Config
from mlbench.errors import ConfigError
from mlbench.plan.hosts import hosts_of
from mlbench.plan.machine import Machine
from mlbench.plan.types import Host, Placement, Rank
from mlbench.wording import count_of

LOCAL_RANKS = 2
"""Ranks on this machine's CPU when nobody names a number: the smallest run that uses the all-reduce."""


def place(config: Config, machine: Machine) -> tuple[Placement, list[str]]:
    """The placement of the run set's ranks, and what must be said about it.

    Raises ConfigError for a number of ranks that the hosts or the profile's nodes cannot take.
    """
    if config.gpus is not None and config.gpus < 1:
        raise ConfigError(f"gpus={config.gpus}: found no rank, expected a whole number of at least 1")
    named = hosts_of(config.launcher.hosts, config.launcher.hostfile)
    hosts, known, notes = _on_named(config, named) if named else _on_nodes(config, machine)
    return Placement(hosts=hosts, ranks=_ranks(hosts), known=known), notes


def check_gpus(gpus: int, gpus_per_node: int) -> None:
    """Up to `gpus_per_node` fit on one node; beyond it only whole nodes. Raises ConfigError with the nearest counts."""
    if gpus <= gpus_per_node or gpus % gpus_per_node == 0:
        return
    below = gpus - gpus % gpus_per_node
    raise ConfigError(
        f"gpus={gpus} does not fill nodes of {gpus_per_node}; the nearest counts are {below} and "
        f"{below + gpus_per_node} (a part-filled node is said with hardware.compute.gpus_per_node=...)"
    )


def _ranks(hosts: tuple[Host, ...]) -> tuple[Rank, ...]:
    places = ((node, host.name, local) for node, host in enumerate(hosts) for local in range(host.slots))
    return tuple(
        Rank(rank=rank, node=node, host=host, local_rank=local) for rank, (node, host, local) in enumerate(places)
    )


def _on_named(config: Config, named: list[tuple[str, int | None]]) -> tuple[tuple[Host, ...], bool, list[str]]:
    if config.launcher.name is LauncherName.local and [name for name, _ in named] != ["localhost"]:
        raise ConfigError(
            "hosts are given, but launcher=local starts ranks on this host alone; add launcher=mpirun or launcher=slurm"
        )
    compute = config.hardware.compute
    hosts = [Host(name=name, slots=slots or _default_slots(config, compute, len(named))) for name, slots in named]
    total = sum(host.slots for host in hosts)
    gpus = total if config.gpus is None else config.gpus
    used: list[Host] = []
    for host in hosts:
        if sum(item.slots for item in used) < gpus:
            used.append(host)
    listed = ", ".join(f"{host.name}:{host.slots}" for host in hosts)
    if sum(host.slots for host in used) != gpus:
        raise ConfigError(
            f"gpus={gpus} does not fit the slots of the hosts ({listed}; {total} in all); "
            f"name hosts whose slots add up to the number of ranks"
        )
    if len(used) < len(hosts) and config.submission.division is Division.closed:
        raise ConfigError(
            f"gpus={gpus}, but the hosts have {count_of(total, 'slot')} ({listed}); in the closed division name only "
            "the hosts that take part"
        )
    left = [host.name for host in hosts[len(used) :]]
    notes = [f"hosts not used: {', '.join(left)}"] if left else []
    if compute is not None:
        _check_node_size(compute)
        _check_slots(used, compute)
        notes += _size_notes(compute, gpus, len(used))
    return tuple(used), True, notes


def _default_slots(config: Config, compute: ComputeProfile | None, num_hosts: int) -> int:
    if compute is not None:
        return compute.gpus_per_node
    if config.gpus is None:
        return 1
    if config.gpus % num_hosts:
        raise ConfigError(
            f"gpus={config.gpus} cannot be shared evenly by {num_hosts} hosts without slots; write HOST:SLOTS"
        )
    return config.gpus // num_hosts


def _check_slots(hosts: list[Host], compute: ComputeProfile) -> None:
    for host in hosts:
        single = len(hosts) == 1 and host.slots <= compute.gpus_per_node
        if host.slots != compute.gpus_per_node and not single:
            raise ConfigError(
                f"host {host.name} has {count_of(host.slots, 'slot')}, but nodes of profile {compute.name} take "
                f"{count_of(compute.gpus_per_node, 'rank')}; for part-filled nodes add "
                f"hardware.compute.gpus_per_node={host.slots}"
            )


def _on_nodes(config: Config, machine: Machine) -> tuple[tuple[Host, ...], bool, list[str]]:
    compute = config.hardware.compute
    scheduler = config.launcher.name is LauncherName.slurm
    if compute is None:
        gpus = LOCAL_RANKS if config.gpus is None else config.gpus
        name = "node-1" if scheduler else "localhost"
        notes = []
        if gpus > machine.num_cpus and not scheduler:
            cpus = count_of(machine.num_cpus, "CPU")
            notes.append(f"{gpus} ranks share {cpus} of this machine; they will slow each other down")
        return (Host(name=name, slots=gpus),), not scheduler, notes
    gpus = compute.default_gpus if config.gpus is None else config.gpus
    per_node = compute.gpus_per_node
    if per_node < 1:
        raise ConfigError(f"hardware.compute.gpus_per_node={per_node}: expected a whole number of at least 1")
    _check_node_size(compute)
    check_gpus(gpus, per_node)
    num_nodes = max(1, gpus // per_node)
    notes = _size_notes(compute, gpus, num_nodes)
    if num_nodes == 1 and not scheduler:
        return (Host(name="localhost", slots=gpus),), True, notes
    hosts = tuple(Host(name=f"node-{number + 1}", slots=min(gpus, per_node)) for number in range(num_nodes))
    return hosts, False, notes


def _check_node_size(compute: ComputeProfile) -> None:
    if compute.node_sizes and compute.gpus_per_node > max(compute.node_sizes):
        raise ConfigError(
            f"hardware.compute.gpus_per_node={compute.gpus_per_node}: a node of profile {compute.name} takes "
            f"at most {max(compute.node_sizes)}"
        )


def _size_notes(compute: ComputeProfile, gpus: int, num_nodes: int) -> list[str]:
    unit = "GPUs" if compute.device is Device.gpu else "ranks"
    notes = []
    if gpus < compute.gpus_per_node:
        notes.append(f"{gpus} of the {compute.gpus_per_node} {unit} of one node are used")
    if compute.node_sizes and compute.gpus_per_node not in compute.node_sizes:
        sizes = " or ".join(map(str, compute.node_sizes))
        notes.append(
            f"part-filled nodes: {compute.gpus_per_node} {unit} of each node are used, it is built for {sizes}"
        )
    if num_nodes > compute.num_nodes:
        notes.append(
            f"profile {compute.name} describes {count_of(compute.num_nodes, 'node')}, this plan needs {num_nodes}"
        )
    return notes
