"""From profiles, a data set and a rate to an answer in chassis or endpoints; the mathematics is analyse/sizing.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlbench.analyse.compare import SAMPLES_PER_S
from mlbench.analyse.sizing import (
    OPERATION_BYTES,
    Caching,
    Demand,
    Rate,
    Sizing,
    Supply,
    rate_of_model,
    size,
)
from mlbench.choices import StorageKind
from mlbench.config import ComputeProfile, StorageProfile
from mlbench.errors import ConfigError
from mlbench.publish.comparison import sample
from mlbench.store.tables import RunSet
from mlbench.wording import count_of

CACHE_SHARE = 0.8
"""Share of a node's memory that the page cache can hold beside the ranks; the guide saw 19 % of 384 GB in use."""
_SHARDED_OPERATION_BYTES = 9e6
"""Mean disk operation of training from sharded files for a model without a value of its own: the three values of the
Ready Solutions for AI guide lie between 8.61 and 9.17 MB."""


class TrainingData(Protocol):
    """What sizing asks of a data set; a DataConfig is one."""

    @property
    def name(self) -> str: ...
    @property
    def num_train(self) -> int: ...
    @property
    def mean_image_bytes(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingAnswer:
    """`curve` is (GPUs, GB/s needed, units) for the plot; `caching` tells first epoch from the later ones."""

    system: str
    storage: str
    unit: str
    sizing: Sizing
    caching: Caching
    num_nodes: int
    curve: tuple[tuple[int, float, int | None], ...]


def rate_from_run_set(run_set: RunSet) -> Rate:
    """samples/s of one accelerator (or CPU rank) of a run set, own or imported. Raises ConfigError: not known."""
    found = sample(run_set, SAMPLES_PER_S)
    count = run_set.num_accelerators or run_set.num_ranks
    if found.mean is None or not count:
        raise ConfigError(f"size: {run_set.run_set} has no samples/s or no number of accelerators to take a rate from")
    basis = f"{found.mean:,.0f} samples/s over {count} of {run_set.system} ({run_set.run_set}, n = {len(found.values)})"
    return Rate(samples_per_s_per_gpu=found.mean / count, basis=basis)


def rate_from_profile(compute: ComputeProfile, model: str) -> Rate:
    """The profile's published rate. Raises ConfigError: none for this model."""
    source = compute.sources.get("samples_per_s_per_gpu", "profile")
    rate = rate_of_model(compute.samples_per_s_per_gpu, model, f"{compute.name}: {source}")
    if rate is None:
        raise ConfigError(
            f"size: profile {compute.name} has no rate for {model}; give --rate SAMPLES_PER_S of one GPU, or "
            "--from RUN_SET of a measured or imported run set"
        )
    return rate


def supply_of(storage: StorageProfile) -> Supply:
    """What one chassis of a NAS or one endpoint of an object store delivers, as its profile knows it."""
    links = storage.front_end_links
    link_rate = storage.front_end_link_gb_per_s
    is_s3 = storage.kind is StorageKind.s3
    return Supply(
        unit="endpoint" if is_s3 else "chassis",
        throughput_bytes_per_s=_bytes(storage.throughput_gb_per_s),
        operations_per_s=storage.iops,
        link_bytes_per_s=_bytes(link_rate * links) if links and link_rate else None,
        max_units=len(storage.s3_endpoints) if is_s3 else storage.max_chassis,
        nodes_per_unit=storage.nodes_per_chassis,
    )


def units_text(count: int, unit: str) -> str:
    """`1 endpoint`, `2 endpoints`, `2 chassis`."""
    return count_of(count, unit, "chassis" if unit == "chassis" else None)


def _bytes(gb_per_s: float | None) -> float | None:
    return None if gb_per_s is None else gb_per_s * 1e9


def answer(
    *,
    compute: ComputeProfile,
    storage: StorageProfile,
    data: TrainingData,
    model: str,
    num_gpus: int,
    rate: Rate,
    headroom: float,
    file_per_image: bool,
    supply: Supply,
    dataset_bytes: float | None = None,
) -> SizingAnswer:
    """Size storage for `num_gpus`. Raises ConfigError: the mean image size is not known."""
    if data.mean_image_bytes is None:
        raise ConfigError(
            f"size: data set {data.name} has no mean_image_bytes, and its record files are not here; give "
            "data.mean_image_bytes=BYTES"
        )
    operation = data.mean_image_bytes if file_per_image else OPERATION_BYTES.get(model, _SHARDED_OPERATION_BYTES)
    mean_image_bytes = data.mean_image_bytes

    def sized(count: int) -> Sizing:
        demand = Demand(
            num_gpus=count,
            rate=rate,
            mean_sample_bytes=mean_image_bytes,
            headroom=headroom,
            operation_bytes=operation,
        )
        link = _bytes(compute.storage_link_gb_per_s)
        return size(demand, supply, gpus_per_node=compute.gpus_per_node, node_link_bytes_per_s=link)

    memory = compute.host_memory_gb
    points = [(count, sized(count)) for count in _counts(num_gpus, compute.gpus_per_node)]
    return SizingAnswer(
        system=compute.system_name,
        storage=storage.system_name,
        unit=supply.unit,
        sizing=sized(num_gpus),
        caching=Caching(
            dataset_bytes=dataset_bytes if dataset_bytes is not None else data.num_train * mean_image_bytes,
            cache_bytes_per_node=memory * 1e9 * CACHE_SHARE if memory is not None else None,
        ),
        num_nodes=-(-num_gpus // compute.gpus_per_node),
        curve=tuple((count, item.demand.bytes_per_s / 1e9, item.units) for count, item in points),
    )


def _counts(num_gpus: int, per_node: int) -> Sequence[int]:
    """Whole nodes by factor 2 up to four times what is asked: systems grow."""
    counts = [per_node]
    while counts[-1] < num_gpus * 4:
        counts.append(counts[-1] * 2)
    return sorted({*counts, num_gpus})
