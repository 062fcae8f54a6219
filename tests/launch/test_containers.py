"""Whole command lines of the container engines; none of them runs here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlbench.errors import ConfigError
from mlbench.launch.base import Launch
from mlbench.launch.command import ISLAND, container_worker_command
from mlbench.launch.containers import (
    RANK_VARIABLES,
    Apptainer,
    Common,
    Docker,
    Enroot,
    Image,
    check_enroot_image,
    check_image,
    worker_mounts,
)
from mlbench.plan.types import Host

DIGEST = "sha256:" + "ab" * 32
IMAGE = Image(name="nvcr.io/nvidia/mxnet:21.05-py3", digest=DIGEST)
COMMON = Common(
    image=IMAGE,
    gpus=True,
    user="1000:100",
    mounts=worker_mounts(Path("/venv/site/mlperf_logging")),
    devices=("/dev/infiniband",),
)
LAUNCH = Launch(
    command=container_worker_command(Path("/runs/s/job.json"), Path("/runs/s")),
    num_ranks=8,
    hosts=(Host(name="a", slots=8),),
    environment={"NCCL_BUFFSIZE": "2097152"},
    mark="s.run_0.0",
    cwd=Path("/runs/s"),
    log=Path("/runs/s/launcher.log"),
    time_limit_s=60,
    mounts=((Path("/data/imagenet"), Path("/data/imagenet"), True), (Path("/runs"), Path("/runs"), False)),
)
INSIDE = (
    *("python", "-I", "-S", "/opt/mlbench_worker/start.py", "parent", "--log-dir", "/runs/s", "--"),
    *("python", "-m", "mlbench_worker", "/runs/s/job.json"),
)


def names() -> list[str]:
    return sorted({*RANK_VARIABLES, "NCCL_BUFFSIZE", "MLBENCH_JOB"})


def test_docker_gpu_image_by_digest_whole_command() -> None:
    assert Docker(common=COMMON).wrap(LAUNCH) == (
        *("docker", "run", "--rm", "--init", "--network=host", "--ipc=host"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--gpus", "all", "--device", "/dev/infiniband", "--user", "1000:100"),
        *("--env", "PYTHONPATH=/opt", "--entrypoint", ""),
        *("--label", "mlbench.job=s.run_0.0", "--workdir", "/runs/s"),
        *("--volume", "/data/imagenet:/data/imagenet:ro", "--volume", "/runs:/runs:rw"),
        *("--volume", f"{ISLAND}:/opt/mlbench_worker:ro"),
        *("--volume", "/venv/site/mlperf_logging:/opt/mlperf_logging:ro"),
        *(word for name in names() for word in ("--env", name)),
        f"nvcr.io/nvidia/mxnet:21.05-py3@{DIGEST}",
        *INSIDE,
    )


def test_docker_no_gpu_asks_for_none() -> None:
    assert "--gpus" not in Docker(common=replace(COMMON, gpus=False)).wrap(LAUNCH)


def test_docker_digest_question_whole_command() -> None:
    assert Docker(common=COMMON).digest_argv() == [
        *("docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}"),
        f"nvcr.io/nvidia/mxnet:21.05-py3@{DIGEST}",
    ]


def test_apptainer_registry_image_whole_command() -> None:
    assert Apptainer(common=COMMON).wrap(LAUNCH) == (
        *("apptainer", "exec", "--contain", "--no-home", "--nv", "--env", "PYTHONPATH=/opt", "--pwd", "/runs/s"),
        *("--bind", "/data/imagenet:/data/imagenet:ro", "--bind", "/runs:/runs:rw"),
        *("--bind", f"{ISLAND}:/opt/mlbench_worker:ro"),
        *("--bind", "/venv/site/mlperf_logging:/opt/mlperf_logging:ro", "--bind", "/dev/infiniband"),
        f"docker://nvcr.io/nvidia/mxnet:21.05-py3@{DIGEST}",
        *INSIDE,
    )


@pytest.mark.parametrize("name", ["/images/mxnet.sif", "./mxnet.sif", "mxnet.sif", "oras://host/mxnet:1"])
def test_apptainer_image_that_is_no_registry_name_is_taken_as_it_is(name: str) -> None:
    words = Apptainer(common=replace(COMMON, image=Image(name=name))).wrap(LAUNCH)
    assert words[-len(INSIDE) - 1] == name


def test_enroot_imported_image_whole_command() -> None:
    assert Enroot(common=replace(COMMON, image=Image(name="/images/mxnet.sqsh"))).wrap(LAUNCH) == (
        *("enroot", "start", "--env", "PYTHONPATH=/opt"),
        *("--mount", "/dev/infiniband:/dev/infiniband:none:x-create=auto,bind"),
        *("--env", "NVIDIA_VISIBLE_DEVICES=all"),
        *("--mount", "/data/imagenet:/data/imagenet:none:x-create=dir,bind,ro"),
        *("--mount", "/runs:/runs:none:x-create=dir,bind"),
        *("--mount", f"{ISLAND}:/opt/mlbench_worker:none:x-create=dir,bind,ro"),
        *("--mount", "/venv/site/mlperf_logging:/opt/mlperf_logging:none:x-create=dir,bind,ro"),
        *(word for name in names() for word in ("--env", name)),
        "/images/mxnet.sqsh",
        *("sh", "-c", 'cd "$0" && exec "$@"', "/runs/s"),
        *INSIDE,
    )


@pytest.mark.parametrize("engine", [Docker, Apptainer, Enroot])
def test_container_mounts_data_runs_island_and_mllog_and_nothing_else(
    engine: type[Docker | Apptainer | Enroot],
) -> None:
    words = engine(common=replace(COMMON, devices=())).wrap(LAUNCH)
    flags = {"--volume", "--bind", "--mount", "-v", "-B", "-m"}
    mounted = [words[index + 1].split(":")[1] for index, word in enumerate(words[: -len(INSIDE)]) if word in flags]
    assert mounted == ["/data/imagenet", "/runs", "/opt/mlbench_worker", "/opt/mlperf_logging"]


@pytest.mark.parametrize("tag", ["20.06-py3", "20.12-py3", "21.04-py3", "19.07-py3"])
def test_check_image_older_than_21_05_is_refused_with_the_reason(tag: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_image(Image(name=f"nvcr.io/nvidia/mxnet:{tag}"))
    assert str(refused.value) == (
        f"container.image nvcr.io/nvidia/mxnet:{tag}: it is older than 21.05, the first NGC MXNet image that has the "
        f"Python the worker needs (3.8; images before 2021 have 3.6); take nvcr.io/nvidia/mxnet:21.05-py3 or later"
    )


@pytest.mark.parametrize(
    "name", ["nvcr.io/nvidia/mxnet:21.05-py3", "nvcr.io/nvidia/mxnet:22.05-py3", "mine/mxnet:1", "/images/mxnet.sqsh"]
)
def test_check_image_new_or_unknown_passes(name: str) -> None:
    check_image(Image(name=name, digest=DIGEST))


@pytest.mark.parametrize("digest", ["sha256:12", "ab" * 32, "sha1:" + "a" * 40, f"{DIGEST} --privileged"])
def test_check_image_digest_that_is_none_is_refused(digest: str) -> None:
    with pytest.raises(ConfigError, match=r"container\.digest: found .*, expected sha256: and 64 hexadecimal digits"):
        check_image(Image(name="x", digest=digest))


def test_check_enroot_image_in_a_registry_names_the_import() -> None:
    with pytest.raises(ConfigError) as refused:
        check_enroot_image(Image(name="nvcr.io/nvidia/mxnet:21.05-py3"))
    assert "`enroot import -o mxnet.sqsh docker://nvcr.io#nvidia/mxnet:21.05-py3`" in str(refused.value)
    assert "container.image=/path/of/mxnet.sqsh" in str(refused.value)


@pytest.mark.parametrize("name", ["/images/mxnet.sqsh", "mxnet"])
def test_check_enroot_image_file_or_container_name_passes(name: str) -> None:
    check_enroot_image(Image(name=name))
