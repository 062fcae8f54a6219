"""How much storage a training system needs, and how much of a storage system delivers it.

Demand = samples/s of one GPU x GPUs x mean sample size x (1 + headroom): linear in GPUs, different for each model.
Supply = what one unit (a chassis, an endpoint) delivers, limit by limit; the units needed are those of the limit that
asks for most, and that limit is named. All rates are bytes/s and operations/s; 1 GB = 1e9 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlbench.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A measured or published training rate. `basis` says where it comes from."""

    samples_per_s_per_gpu: float
    basis: str


DEFAULT_HEADROOM = 0.20
"""On top of the demand when the user names none."""

MODEL_FACTORS = {"resnet50": 1.0, "alexnet": 7095 / 2940, "vgg16": 1590 / 2940}
"""samples/s relative to ResNet-50 on the same node: Ready Solutions for AI guide, F800, one compute node."""

OPERATION_BYTES = {"resnet50": 9.17e6, "alexnet": 8.61e6, "vgg16": 8.81e6}
"""Mean disk operation of training from sharded files, same guide. One file per image reads one image an operation."""


def rate_of_model(samples_per_s_per_gpu: Mapping[str, float], model: str, basis: str) -> Rate | None:
    """The rate of a model from a system's known rates; None when nothing leads to one.

    A model that was not measured there takes ResNet-50's rate times the ratio of the guide's one-node table, and the
    basis says so.
    """
    known = samples_per_s_per_gpu.get(model)
    if known is not None:
        return Rate(samples_per_s_per_gpu=known, basis=basis)
    reference, factor = samples_per_s_per_gpu.get("resnet50"), MODEL_FACTORS.get(model)
    if reference is None or factor is None:
        return None
    return Rate(
        samples_per_s_per_gpu=reference * factor,
        basis=f"{basis}, times {factor:.3f} for {model} against resnet50 (Ready Solutions for AI guide, one node)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What training asks of storage in an epoch that is not cached."""

    num_gpus: int
    rate: Rate
    mean_sample_bytes: float
    headroom: float
    operation_bytes: float

    @property
    def samples_per_s(self) -> float:
        return self.rate.samples_per_s_per_gpu * self.num_gpus

    @property
    def bytes_per_s(self) -> float:
        return self.samples_per_s * self.mean_sample_bytes * (1 + self.headroom)

    @property
    def operations_per_s(self) -> float:
        return self.bytes_per_s / self.operation_bytes

    @property
    def formula(self) -> str:
        return (
            f"{count_of(self.num_gpus, 'GPU')} x {self.rate.samples_per_s_per_gpu:,.1f} samples/s x "
            f"{self.mean_sample_bytes / 1e3:,.1f} KB x {1 + self.headroom:.2f} headroom = "
            f"{self.bytes_per_s / 1e9:,.2f} GB/s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """Whether later epochs come from memory. The shuffle deals samples anew to all nodes each epoch, so each node's
    cache must hold the whole set."""

    dataset_bytes: float
    cache_bytes_per_node: float | None

    @property
    def fits(self) -> bool | None:
        if self.cache_bytes_per_node is None:
            return None
        return self.dataset_bytes <= self.cache_bytes_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One thing that a unit of storage (or the link of a compute node) can run out of."""

    quantity: str
    per_unit: float
    max_units: int | None
    unit: str
    demand: float

    @property
    def units(self) -> int:
        return max(1, math.ceil(self.demand / self.per_unit - 1e-9))

    @property
    def use(self) -> float:
        """Share of the units' capability that the demand takes."""
        return self.demand / (self.per_unit * self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What one unit delivers; an unknown limit is None and is said, never taken for no limit."""

    unit: str
    throughput_bytes_per_s: float | None
    operations_per_s: float | None
    link_bytes_per_s: float | None
    max_units: int | None
    nodes_per_unit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The answer for a demand: what each known limit asks for. `unknown` names the limits that nobody has stated."""

    demand: Demand
    limits: tuple[Limit, ...]
    unknown: tuple[str, ...]
    client_link_use: float | None
    """Share of one compute node's storage ports that its own GPUs take; above 1 the node, not the storage, limits."""
    nodes_per_unit: int | None

    @property
    def limiting(self) -> Limit | None:
        """The limit that asks for most units; among equals the fullest. None when the supply is not known."""
        return max(self.limits, key=lambda limit: (limit.units, limit.use), default=None)

    @property
    def units(self) -> int | None:
        return self.limiting.units if self.limiting else None

    @property
    def feasible(self) -> bool | None:
        """Whether one cluster is large enough and the nodes' own links carry it; None when not known."""
        limit = self.limiting
        if limit is None:
            return None
        large_enough = limit.max_units is None or limit.units <= limit.max_units
        return large_enough and (self.client_link_use is None or self.client_link_use <= 1.0)


def size(
    demand: Demand,
    supply: Supply,
    *,
    gpus_per_node: int | None = None,
    node_link_bytes_per_s: float | None = None,
) -> Sizing:
    """Units of storage for a demand. See `Sizing.limiting` for the quantity that decides."""
    limits: list[Limit] = []
    unknown: list[str] = []
    for quantity, per_unit, needed in (
        ("throughput", supply.throughput_bytes_per_s, demand.bytes_per_s),
        ("operations", supply.operations_per_s, demand.operations_per_s),
        ("front-end links", supply.link_bytes_per_s, demand.bytes_per_s),
    ):
        if per_unit is None:
            unknown.append(quantity)
            continue
        limits.append(
            Limit(quantity=quantity, per_unit=per_unit, max_units=supply.max_units, unit=supply.unit, demand=needed)
        )
    link_use = None
    if gpus_per_node and node_link_bytes_per_s:
        num_nodes = math.ceil(demand.num_gpus / gpus_per_node)
        link_use = demand.bytes_per_s / num_nodes / node_link_bytes_per_s
    return Sizing(
        demand=demand,
        limits=tuple(limits),
        unknown=tuple(unknown),
        client_link_use=link_use,
        nodes_per_unit=supply.nodes_per_unit,
    )
