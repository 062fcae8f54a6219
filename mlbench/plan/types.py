"""What the plan decides, frozen: everything that can be known before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlbench.choices import BenchmarkKind, Device, Stage
from mlbench.config import Config
from mlbench.worker.job import Data, Model, Optimizer, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host that takes `slots` ranks. `name` is `localhost` here, `node-<n>` when no host is known yet."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    rank: int
    node: int
    host: str
    local_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Ranks fill a node before the next one (map-by slot). `known` is false while hosts are placeholders."""

    hosts: tuple[Host, ...]
    ranks: tuple[Rank, ...]
    known: bool

    @property
    def num_ranks(self) -> int:
        return len(self.ranks)

    @property
    def num_nodes(self) -> int:
        return len(self.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """The data set with absolute paths (or s3:// URLs), and what reading it will need."""

    worker: Data
    path_given: str
    path: str
    """Absolute folder, or s3://bucket/prefix."""
    mean_image_bytes: float | None
    storage_need_bytes_per_s: float | None
    """Expected samples/s times mean image size; None when no rate is known."""
    storage_need_basis: str | None
    """Where the rate comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run set, decided. `config` is the composed configuration, not to be changed."""

    config: Config
    system_name: str
    platform: str
    """`submission_platform`, for example `4xNVIDIA DGX A100`."""
    device: Device
    num_accelerators: int
    placement: Placement
    global_batch_size: int
    model: Model
    optimizer: Optimizer
    schedule: Schedule
    data: DataPlan
    threads_per_rank: int
    environment: dict[str, str]
    """Variables forwarded to every rank."""
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    """Said to the user and recorded: "not a published setting", a part-filled node, no reference near."""
    runs_dir: Path
    time_estimate_s: float | None

    @property
    def num_ranks(self) -> int:
        return self.placement.num_ranks

    @property
    def container_image(self) -> str | None:
        """The image that `container=` starts: the one that is asked for, else the profile's; None: none is named."""
        compute = self.config.hardware.compute
        return self.config.container.image or (compute.container_image if compute is not None else None)

    @property
    def target_accuracy(self) -> float | None:
        """What a run must reach; None for runs without evaluation."""
        return self.schedule.target_accuracy if self.config.benchmark.kind is BenchmarkKind.train else None
