"""`container=docker|enroot|apptainer`: each rank's command in a container, around any launcher.

    contained = container.wrap(launch)        # what each rank executes instead of launch.command

Mounted are the folders that `Launch.mounts` names (data, runs) and, read-only, the worker island and mlperf_logging's
own package below /opt; nothing else of the host. Pure: no engine is asked anything. Preflight sends its questions (the
versions of Python, MXNet and Horovod) through the same `wrap`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlbench.errors import ConfigError
from mlbench.launch.base import Launch
from mlbench.launch.command import CONTAINER_ISLAND, CONTAINER_ROOT, ISLAND
from mlbench.preflight.hardware import is_too_old
from mlbench.worker.processes import MARK_VARIABLE

Mount = tuple[Path, Path, bool]
"""(host path, container path, read only)."""

_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")

# What tells a process which rank it is, and how it finds the others. Docker and enroot pass no variable that is not
# named; apptainer passes all there are.
RANK_VARIABLES = (
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK"),
    *("HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_IFACE"),
    *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "NCCL_SOCKET_IFNAME"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("OMPI_COMM_WORLD_NODE_RANK", "OMPI_UNIVERSE_SIZE", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS"),
    *("OMPI_APP_CTX_NUM_PROCS", "OMPI_MCA_pmix", "OMPI_MCA_ess", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_ess_base_vpid"),
    *("OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_orte_ess_node_rank", "OMPI_MCA_orte_num_nodes"),
    *("OMPI_MCA_orte_app_num", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_launch"),
    *("OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_shmem_RUNTIME_QUERY_hint"),
    *("PMIX_NAMESPACE", "PMIX_RANK", "PMIX_ID", "PMIX_VERSION", "PMIX_HOSTNAME", "PMIX_SECURITY_MODE"),
    *("PMIX_BFROP_BUFFER_TYPE", "PMIX_GDS_MODULE", "PMIX_MCA_gds", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21"),
    *("PMIX_SERVER_URI3", "PMIX_SERVER_URI4", "PMIX_SERVER_URI41"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)

# The PMIx server keeps its data in files of the host, which a container does not see; `hash` hands them over by socket.
MPI_ENVIRONMENT = {"PMIX_MCA_gds": "hash"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`name` as the engine takes it; `digest` is `sha256:...` or None."""

    name: str
    digest: str | None = None

    @property
    def reference(self) -> str:
        return self.name if self.digest is None else f"{self.name}@{self.digest}"


def check_image(image: Image) -> None:
    """Refuse what cannot run the worker. Raises ConfigError."""
    if image.digest is not None and not _DIGEST.match(image.digest):
        raise ConfigError(f"container.digest: found {image.digest!r}, expected sha256: and 64 hexadecimal digits")
    if is_too_old(image.name):
        raise ConfigError(
            f"container.image {image.name}: it is older than 21.05, the first NGC MXNet image that has the Python the "
            f"worker needs (3.8; images before 2021 have 3.6); take nvcr.io/nvidia/mxnet:21.05-py3 or later"
        )


class Container(Protocol):
    """A container engine."""

    @property
    def name(self) -> str:
        """The value of `container=`."""
        ...

    def wrap(self, launch: Launch) -> tuple[str, ...]:
        """What each rank executes so that `launch.command` runs inside."""
        ...

    def digest_argv(self) -> list[str] | None:
        """The command that prints the digest of the image as it lies on a host; None where the engine keeps none."""
        ...


def worker_mounts(mlperf_logging: Path | None) -> tuple[Mount, ...]:
    """The island, and the orchestrator's copy of mlperf_logging, whose mllog is standard library only."""
    island = (ISLAND, CONTAINER_ISLAND, True)
    if mlperf_logging is None:
        return (island,)
    return (island, (mlperf_logging, CONTAINER_ROOT / "mlperf_logging", True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """`mounts` are those of every container; `user` is `uid:gid`; `devices` are device files to hand through."""

    image: Image
    gpus: bool
    user: str
    mounts: tuple[Mount, ...]
    devices: tuple[str, ...] = ()
    limits: tuple[str, ...] = field(default=("memlock=-1", "stack=67108864"))
    """RDMA pins memory; MXNet's threads need deep stacks."""

    def all_mounts(self, launch: Launch) -> tuple[Mount, ...]:
        return (*launch.mounts, *self.mounts)

    def variables(self, launch: Launch) -> list[str]:
        """Names, sorted, that go inside: set by mlbench, and by the launcher for each rank."""
        return sorted({*launch.environment, MARK_VARIABLE, *RANK_VARIABLES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """`docker run` around each rank."""

    common: Common
    name: str = "docker"

    def wrap(self, launch: Launch) -> tuple[str, ...]:
        words = [*self._run(), "--label", f"mlbench.job={launch.mark}", "--workdir", str(launch.cwd)]
        for mount in self.common.all_mounts(launch):
            words += ["--volume", _colons(mount)]
        for name in self.common.variables(launch):
            words += ["--env", name]
        return (*words, self.common.image.reference, *launch.command)

    def digest_argv(self) -> list[str] | None:
        return ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", self.common.image.reference]

    def _run(self) -> list[str]:
        # --ipc=host: ranks share memory with each other (NCCL, MPI); --init reaps what a rank leaves behind.
        words = ["docker", "run", "--rm", "--init", "--network=host", "--ipc=host"]
        for limit in self.common.limits:
            words += ["--ulimit", limit]
        if self.common.gpus:
            words += ["--gpus", "all"]
        for device in self.common.devices:
            words += ["--device", device]
        # The entry point of NGC images prints a banner; the command is executed as it stands.
        return [*words, "--user", self.common.user, "--env", f"PYTHONPATH={CONTAINER_ROOT}", "--entrypoint", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apptainer:
    """`apptainer exec` around each rank: a .sif file, or an image that it fetches."""

    common: Common
    name: str = "apptainer"

    def wrap(self, launch: Launch) -> tuple[str, ...]:
        words = [*self._exec(), "--pwd", str(launch.cwd)]
        for mount in self.common.all_mounts(launch):
            words += ["--bind", _colons(mount)]
        for device in self.common.devices:
            words += ["--bind", device]
        return (*words, self._image(), *launch.command)

    def digest_argv(self) -> list[str] | None:
        return None

    def _exec(self) -> list[str]:
        # --contain keeps home, /tmp and the current folder of the host out.
        words = ["apptainer", "exec", "--contain", "--no-home"]
        if self.common.gpus:
            words.append("--nv")
        return [*words, "--env", f"PYTHONPATH={CONTAINER_ROOT}"]

    def _image(self) -> str:
        reference = self.common.image.reference
        is_file = reference.startswith(("/", "./", "../")) or reference.endswith(".sif")
        return reference if is_file or "://" in reference else f"docker://{reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enroot:
    """enroot starts an imported image: a .sqsh file, or the name of a container made from one."""

    common: Common
    name: str = "enroot"

    def wrap(self, launch: Launch) -> tuple[str, ...]:
        words = self._start()
        for source, target, read_only in self.common.all_mounts(launch):
            options = "x-create=dir,bind,ro" if read_only else "x-create=dir,bind"
            words += ["--mount", f"{source}:{target}:none:{options}"]
        for name in self.common.variables(launch):
            words += ["--env", name]
        # enroot has no working-directory option.
        change = ("sh", "-c", 'cd "$0" && exec "$@"', str(launch.cwd))
        return (*words, self.common.image.name, *change, *launch.command)

    def digest_argv(self) -> list[str] | None:
        return None

    def _start(self) -> list[str]:
        words = ["enroot", "start", "--env", f"PYTHONPATH={CONTAINER_ROOT}"]
        for device in self.common.devices:
            words += ["--mount", f"{device}:{device}:none:x-create=auto,bind"]
        return [*words, "--env", f"NVIDIA_VISIBLE_DEVICES={'all' if self.common.gpus else 'void'}"]


def check_enroot_image(image: Image) -> None:
    """Raises ConfigError for a name in a registry, which enroot has to import first."""
    if "/" in image.name and not image.name.endswith(".sqsh"):
        source = image.name.replace("/", "#", 1) if "." in image.name.partition("/")[0] else image.name
        tag = f"@{image.digest}" if image.digest else ""
        raise ConfigError(
            f"container.image {image.name}: enroot starts an imported image; run "
            f"`enroot import -o mxnet.sqsh docker://{source}{tag}` and say container.image=/path/of/mxnet.sqsh"
        )


def _colons(mount: Mount) -> str:
    source, target, read_only = mount
    return f"{source}:{target}:{'ro' if read_only else 'rw'}"
