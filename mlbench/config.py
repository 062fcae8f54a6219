"""The schema of every setting. Values, with their sources, are in conf/; no default stands in two places.

The classes are what Hydra composes into (plain dataclasses: OmegaConf treats frozen ones as read-only); `plan` turns
the composed configuration into frozen values. A field without a value in conf/ and here is asked of the user.
Units end a name; `null` means "not known" or "choose for me", as the comment says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlbench.choices import (
    AllReduceBackend,
    BenchmarkKind,
    Binding,
    CacheMode,
    ContainerName,
    Device,
    Division,
    Dtype,
    LauncherName,
    Layout,
    OnFailure,
    OptimizerName,
    Pipeline,
    RehearsalFault,
    Stage,
    StorageKind,
    SubmissionStatus,
    Transport,
)


@dataclass(kw_only=True, slots=True)
class ComputeProfile:
    """A compute system as its owner would describe it; one file in conf/hardware a system."""

    name: str
    """Name of the profile, as in `+hardware=NAME`."""
    vendor: str | None = None
    system_name: str
    """As it stands in a system description and in `submission_platform`."""
    device: Device
    num_nodes: int
    """Nodes of the system as tested; the plan derives the nodes it needs from `gpus`."""
    gpus_per_node: int
    """Ranks a node takes: GPUs, or CPU processes when `device` is cpu."""
    default_gpus: int
    """`gpus` when the user names none."""
    node_sizes: list[int] = field(default_factory=list)
    """Accelerators that one node is sold with; another `gpus_per_node` means part-filled nodes."""
    accelerator_model: str | None = None
    accelerator_memory_gb: float | None = None
    accelerator_interconnect: str | None = None
    host_processor_model: str | None = None
    host_processors_per_node: int | None = None
    host_processor_cores: int | None = None
    """Cores of one processor."""
    host_memory_gb: float | None = None
    host_storage: str | None = None
    compute_nics: list[str] = field(default_factory=list)
    storage_nics: list[str] = field(default_factory=list)
    interconnect: str | None = None
    """Fabric between nodes, as in a system description."""
    compute_link_gb_per_s: float | None = None
    """Line rate of the fabric that one node's all-reduce can use, all its NICs together, GB/s (1e9)."""
    intra_node_link_gb_per_s: float | None = None
    """Bus bandwidth that the links inside a node allow, GB/s (1e9)."""
    storage_link_gb_per_s: float | None = None
    """Line rate of one node's storage ports, GB/s (1e9)."""
    binding: Binding = Binding.none
    """What a rank is bound to, when mpirun starts it."""
    network_interface: str | None = None
    """Interface for the launcher's and NCCL's sockets."""
    environment: dict[str, str] = field(default_factory=dict)
    """NCCL_*, HOROVOD_*, MXNET_*, OMP_* of every rank."""
    threads_per_rank: int | None = None
    """OMP_NUM_THREADS; null: cores divided by ranks."""
    samples_per_s_per_gpu: dict[str, float] = field(default_factory=dict)
    """model -> training samples/s of one GPU, published or measured; for time estimates and storage need."""
    dedicated: bool = True
    """The machine is ours alone, so its whole page cache may be dropped."""
    container_image: str | None = None
    container_image_as_tested: str | None = None
    software: dict[str, str] = field(default_factory=dict)
    """As tested: operating system, kernel, driver, container."""
    sources: dict[str, str] = field(default_factory=dict)
    """key -> where its value comes from."""


@dataclass(kw_only=True, slots=True)
class StorageProfile:
    """A storage system: what it holds and what it can deliver."""

    name: str
    vendor: str | None = None
    system_name: str
    kind: StorageKind
    protocol: str | None = None
    nodes_per_chassis: int | None = None
    disks_per_chassis: int | None = None
    num_chassis: int | None = None
    max_chassis: int | None = None
    front_end_links: int | None = None
    """Per chassis."""
    front_end_link_gb_per_s: float | None = None
    throughput_gb_per_s: float | None = None
    """Per chassis, GB/s (1e9)."""
    iops: float | None = None
    """Per chassis, file operations per second."""
    raw_capacity_tb: float | None = None
    cache_gb: float | None = None
    s3_endpoints: list[str] = field(default_factory=list)
    s3_bucket: str | None = None
    s3_prefix: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Hardware:
    """`+hardware=[compute, storage]` fills these; null compute means this very machine."""

    compute: ComputeProfile | None = None
    storage: StorageProfile | None = None


@dataclass(kw_only=True, slots=True)
class AllReduceSettings:
    """The all-reduce stage."""

    backend: AllReduceBackend
    min_bytes: int
    max_bytes: int
    """Sizes are measured from the least to the largest by factors of 2."""
    num_warmup: int
    num_iterations: int
    """All-reduces of each size that are timed."""
    binary: str
    """nccl-tests' all_reduce_perf: a name on PATH or a path."""


@dataclass(kw_only=True, slots=True)
class StorageSettings:
    """The storage stage."""

    runtime_s: float
    """Seconds of each fio job."""
    file_size_gb: float | None
    """Size of fio's own file set; null: twice the memory, at most what half the free disk holds and `max_file_gb`."""
    max_file_gb: float
    block_random_bytes: int
    block_sequential_bytes: int
    iodepth: int
    direct: bool
    path: str | None
    """Folder to measure; null: the data set's own mount."""


@dataclass(kw_only=True, slots=True)
class BenchmarkConfig:
    """What is run; conf/benchmark fills it."""

    name: str
    kind: BenchmarkKind
    mlperf_name: str | None
    """Name in MLPerf logs; null when the benchmark is not one of MLPerf's."""
    model: str
    stages: list[Stage]
    num_batches: int
    """Throughput runs only: measured batches."""
    num_warmup_batches: int
    """Batches before them that are not measured."""
    distortions: bool
    """Training distortions (crop, shift, mirror); off in the throughput benchmark."""
    allreduce: AllReduceSettings
    storage: StorageSettings


@dataclass(kw_only=True, slots=True)
class AugmentationConfig:
    """How images are distorted in training, and cut for validation."""

    random_resized_crop: bool
    area: list[float]
    """Least and largest share of the image that is cut out."""
    aspect: list[float]
    """Least and largest ratio of its sides."""
    max_shift_px: int
    """Without the crop: pixels that the image moves in each direction."""
    mirror: bool
    resize_val_px: int
    """Shorter side of a validation image before the centre is cut out."""


@dataclass(kw_only=True, slots=True)
class DataConfig:
    """The data set, and how it is read; conf/data fills it."""

    name: str
    path: str
    """Folder of the .rec and .idx files, or s3://bucket/prefix; a relative path is of the current folder."""
    train_rec: list[str]
    """Names in that folder; a pattern such as `train-*.rec` stands for all files that match."""
    val_rec: list[str]
    num_train: int
    """Images; the files are checked against it."""
    num_val: int
    num_classes: int
    image_px: int
    """Side of the square that the model sees, pixels."""
    mean_image_bytes: float | None
    """null: from the files, when they are here."""
    mean_rgb: list[float]
    """Subtracted from each channel, 0 to 255."""
    std_rgb: list[float]
    """Each channel is divided by it."""
    augmentation: AugmentationConfig
    pipeline: Pipeline
    """auto: dali beside a GPU, native on a CPU."""
    num_threads: int | None
    """Decoding threads of one rank; null: what the machine gives."""
    prefetch_batches: int
    """Batches of a rank that are ready before they are asked for."""
    make_if_missing: bool
    """mlbench can make this set itself (the digits)."""


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    """The recipe. It belongs to the data set, so conf/data fills it."""

    optimizer: OptimizerName
    base_learning_rate: float
    """At `published_global_batch`, or at whatever batch there is when that is null."""
    end_learning_rate: float
    decay_power: float
    """Of the polynomial decay that follows the warm-up."""
    max_epochs: int
    """A run that has not reached the target by then ends without success."""
    expected_epochs: float | None
    """Epochs this recipe usually needs to reach the target; used for the time estimate alone."""
    warmup_epochs: float | None
    """The rate rises linearly for so long."""
    warmup_steps: int | None
    """Wins over `warmup_epochs`."""
    momentum: float
    weight_decay: float
    label_smoothing: float
    lars_eta: float
    lars_epsilon: float
    gradient_accumulation_steps: int
    """Batches of a rank that make one step of the optimizer."""
    eval_period: int
    """Epochs between evaluations."""
    eval_offset: int
    """The epoch that the evaluations are counted from: epoch e is evaluated when e - offset is a multiple of the
    period."""
    target_accuracy: float
    """Top-1 share at which a run has converged; MLPerf's is 0.759."""
    batch_per_rank: int | None
    """null: from the published recipe, see docs/reference/configuration.md."""
    published_global_batch: int | None
    """Global batch at which `base_learning_rate` holds; null: no published recipe, the rate is used as it is."""
    min_batch_per_rank: int
    """Beyond the number of ranks that leaves each so much of the published batch, the batch grows with the ranks."""
    max_batch_per_rank: int | None
    """Largest per-GPU batch that the recipe was published with; above it the plan says so."""
    dtype: Dtype
    """float16 keeps float32 master weights; a CPU always takes float32."""
    layout: Layout
    """A CPU always takes NCHW."""
    batch_norm_momentum: float
    batch_norm_epsilon: float
    zero_init_last_gamma: bool
    """The last batch norm of each residual block starts at zero."""


@dataclass(kw_only=True, slots=True)
class LauncherConfig:
    """What starts the ranks, and where; conf/launcher fills it."""

    name: LauncherName
    hosts: list[str]
    """`host:slots`, as `launcher.hosts=[a:8,b:8]`; empty: this host, or what the scheduler gives."""
    hostfile: str | None
    """File with a host a line: `a`, `a:8` or `a slots=8`."""
    ssh_timeout_s: float
    rsh_agent: str | None
    """Command that starts a process on another host; null: ssh."""
    python: str | None
    """Python of the worker on every host; null: the one that runs mlbench."""
    transport: Transport
    """Horovod's controller; auto: Gloo with `launcher=local`, Open MPI with the others."""
    partition: str | None
    """Of Slurm, as the three that follow."""
    account: str | None
    gres: str | None
    exclusive: bool
    extra_args: list[str]
    """Handed to the launcher's program as they are."""
    rehearsal: RehearsalConfig


@dataclass(kw_only=True, slots=True)
class RehearsalConfig:
    """Faults and speed of the rehearsal launcher."""

    fault: RehearsalFault
    fault_in_run: int | None
    """Index of the run whose first attempt meets the fault; null: every run."""
    seconds_per_run: float
    epochs: int


@dataclass(kw_only=True, slots=True)
class ContainerConfig:
    """What each rank runs in; conf/container fills it."""

    name: ContainerName
    image: str | None
    """null: the hardware profile's."""
    digest: str | None


@dataclass(kw_only=True, slots=True)
class SubmissionConfig:
    """Who submits, and under which rules; conf/submission fills it."""

    org: str
    """The submitter's name, as logged."""
    platform: str | None
    """null: the host's or profile's system name."""
    division: Division
    status: SubmissionStatus
    ruleset: str
    """Rules of MLPerf Training that the run set is judged by, 0.7.0 to 4.0.0."""


@dataclass(kw_only=True, slots=True)
class LimitsConfig:
    """When a run that does not end by itself is ended."""

    max_minutes: float
    """One run may take this long."""
    no_record_s: float
    """One run may go this long without a new MLLOG record."""
    term_grace_s: float
    """Between TERM and KILL."""


@dataclass(kw_only=True, slots=True)
class DbConfig:
    url: str | None
    """null: MLBENCH_DB_URL, else sqlite in db/."""


@dataclass(kw_only=True, slots=True)
class Config:
    """The whole composed configuration; conf/config.yaml is its top."""

    gpus: int | None
    """Number of ranks; null: the sum of the hosts' slots, or the profile's `default_gpus`."""
    hosts: list[str]
    """Short spelling of `launcher.hosts`, as `hosts=[a:8,b:8]`; composition moves it there."""
    repeats: int
    """Runs of a run set; the closed division scores five."""
    warmup_runs: int
    """Runs before them, labelled and left out of every mean."""
    seed: int | None
    """null: a fresh seed per run. A number is the first run's; later runs add their index."""
    on_failure: OnFailure
    """Whether the other runs go on when one has failed."""
    cache: CacheMode
    telemetry: bool
    """Record CPU, memory, network, disks and GPUs of each host once a second."""
    runs_dir: str | None
    """null: runs/ of MLBENCH_HOME, else of the current folder."""
    hardware: Hardware
    benchmark: BenchmarkConfig
    data: DataConfig
    training: TrainingConfig
    launcher: LauncherConfig
    container: ContainerConfig
    submission: SubmissionConfig
    limits: LimitsConfig
    db: DbConfig
    extra: dict[str, Any] = field(default_factory=dict)
    """Free notes of the user, `+extra.rack=B7`; recorded, never interpreted."""
