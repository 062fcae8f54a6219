"""The choices that settings offer, as typed on a command line and written in conf/: members match by name."""

from __future__ import annotations

from enum import Enum


class Division(Enum):
    closed = "closed"
    open = "open"


class CacheMode(Enum):
    """How the page cache is made cold before each run; see docs/worker.md, page cache."""

    auto = "auto"
    drop = "drop"
    evict = "evict"
    none = "none"


OnFailure = Enum("OnFailure", {"continue": "continue", "stop": "stop"})


class Stage(Enum):
    allreduce = "allreduce"
    storage = "storage"
    train = "train"


class BenchmarkKind(Enum):
    """What the main stage does: train to the target, a fixed number of batches, or no training."""

    train = "train"
    throughput = "throughput"
    measure = "measure"


class Device(Enum):
    cpu = "cpu"
    gpu = "gpu"


class Pipeline(Enum):
    auto = "auto"
    mxnet = "mxnet"
    native = "native"
    dali = "dali"


class LauncherName(Enum):
    local = "local"
    mpirun = "mpirun"
    slurm = "slurm"
    rehearsal = "rehearsal"


class Transport(Enum):
    """Horovod's controller. auto: Gloo on one host with `launcher=local`, Open MPI with the other launchers."""

    auto = "auto"
    gloo = "gloo"
    mpi = "mpi"


class Binding(Enum):
    """What a rank is bound to, `--bind-to` of mpirun."""

    none = "none"
    core = "core"
    socket = "socket"
    numa = "numa"


class RehearsalFault(Enum):
    """Accidents that the rehearsal launcher can play; `mlbench/worker/rehearsal.py` says what each does."""

    none = "none"
    crash = "crash"
    no_run_stop = "no_run_stop"
    hang = "hang"
    slow_init = "slow_init"
    stubborn_child = "stubborn_child"
    stubborn_hang = "stubborn_hang"
    many_writers = "many_writers"
    aborted = "aborted"
    low_accuracy = "low_accuracy"
    disk_full = "disk_full"
    torn_line = "torn_line"


class ContainerName(Enum):
    none = "none"
    docker = "docker"
    enroot = "enroot"
    apptainer = "apptainer"


class AllReduceBackend(Enum):
    auto = "auto"
    nccl_tests = "nccl_tests"
    horovod = "horovod"
    mpi = "mpi"


class OptimizerName(Enum):
    sgd = "sgd"
    lars = "lars"


class Dtype(Enum):
    float32 = "float32"
    float16 = "float16"


class Layout(Enum):
    NCHW = "NCHW"
    NHWC = "NHWC"


class SubmissionStatus(Enum):
    """As the log's `submission_status` wants it."""

    onprem = "onprem"
    cloud = "cloud"
    preview = "preview"
    research = "research"


class StorageKind(Enum):
    nas = "nas"
    s3 = "s3"
