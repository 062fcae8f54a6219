"""The shipped profiles: the facts they hold, and a source for each value."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mlbench.compose import compose, describe, options, shipped_conf
from mlbench.config import ComputeProfile, StorageProfile

NO_SOURCE_NEEDED = {"name", "sources"}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def profile(name: str) -> ComputeProfile | StorageProfile:
    hardware = compose([f"+hardware={name}"]).hardware
    found = hardware.compute or hardware.storage
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["dgxa100", "dss8440", "dss8440_a100", "dss8440_a30", "f800", "ecs"])
def test_profile_every_value_has_a_source(name: str) -> None:
    found = profile(name)
    empty: tuple[Any, ...] = (None, [], {})

    values = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    given = {key for key, value in values.items() if value not in empty} - NO_SOURCE_NEEDED

    assert given - set(found.sources) == set()
    assert set(found.sources) - given == set()


# White paper H18597.
DGXA100 = {
    "num_nodes": 4,
    "gpus_per_node": 8,
    "accelerator_model": "NVIDIA A100-SXM4-40GB",
    "host_processor_model": "AMD EPYC 7742",
    "host_processors_per_node": 2,
    "host_processor_cores": 64,
    "host_memory_gb": 1000,
    "compute_link_gb_per_s": 200,  # 8 ports of 200 Gb/s
    "container_image_as_tested": "nvcr.io/nvidia/mxnet:20.06-py3",
    "container_image": "nvcr.io/nvidia/mxnet:21.05-py3",  # NVIDIA's round v1.0
}
# DSS8440.json of Dell EMC in training_results_v0.7.
DSS8440 = {
    "accelerator_model": "NVIDIA V100S-PCIe-32GB",
    "host_processor_model": "Intel Xeon Gold 6248",
    "host_memory_gb": 384,
    "gpus_per_node": 8,
    "num_nodes": 8,  # the object-storage test: dl-worker-01 to 08
}
# White paper H18597 and the Ready Solutions guide, per chassis.
F800 = {
    "nodes_per_chassis": 4,
    "disks_per_chassis": 60,
    "front_end_links": 8,
    "front_end_link_gb_per_s": 5,  # 40 GbE
    "throughput_gb_per_s": 15,
    "iops": 250000,
    "raw_capacity_tb": 96,
    "max_chassis": 63,
}
# The object-storage test.
ECS = {
    "s3_endpoints": [f"http://10.1.2.{number}" for number in range(1, 6)],
    "s3_bucket": "imagenet",
    "s3_prefix": "train",
    "environment": {"AWS_LOG_LEVEL": "0", "S3_USE_HTTPS": "0", "S3_VERIFY_SSL": "0"},
}


@pytest.mark.parametrize(
    ("name", "facts"), [("dgxa100", DGXA100), ("dss8440", DSS8440), ("f800", F800), ("ecs", ECS)], ids=str
)
def test_profile_holds_the_published_facts(name: str, facts: dict[str, Any]) -> None:
    found = profile(name)

    assert {key: getattr(found, key) for key in facts} == facts


def test_profile_cluster_limits_of_f800_follow_from_its_chassis() -> None:
    found = profile("f800")
    assert isinstance(found, StorageProfile)
    limits = [found.max_chassis, found.throughput_gb_per_s, found.iops]

    # 945 GB/s and 15.75 million IOPS of 63 chassis: white paper H18597.
    assert limits == [63, 945 / 63, 15_750_000 / 63]


def test_profile_environment_of_dgxa100_is_the_published_one() -> None:
    found = profile("dgxa100")

    # training_results_v0.7, NVIDIA's settings of the DGX A100.
    assert found.environment == {
        "HOROVOD_FUSION_THRESHOLD": "67108864",
        "HOROVOD_CYCLE_TIME": "0.1",
        "HOROVOD_NUM_NCCL_STREAMS": "1",
        "NCCL_SOCKET_IFNAME": "ib0",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_BUFFSIZE": "2097152",
    }


def test_recipe_of_imagenet_is_the_published_one() -> None:
    training = compose(["data=imagenet"]).training

    # training_results_v0.7, NVIDIA, one and two nodes of DGX A100.
    assert (training.optimizer.value, training.momentum, training.base_learning_rate) == ("sgd", 0.9, 6)
    assert (training.decay_power, training.end_learning_rate, training.warmup_epochs) == (2, 1e-4, 5)
    assert (training.max_epochs, training.weight_decay, training.label_smoothing) == (42, 2.5e-5, 0.1)
    assert (training.eval_period, training.eval_offset, training.target_accuracy) == (4, 1, 0.759)
    assert (training.dtype.value, training.layout.value) == ("float16", "NHWC")
    assert training.published_global_batch == 3264


def test_describe_is_the_first_sentence_of_the_comment() -> None:
    files = options("hardware", [shipped_conf()])

    assert describe(files["dss8440_a100"]) == "DSS 8440 with eight A100-PCIe-40GB, as submitted by Dell in round v1.0"
    assert all(describe(file) for file in files.values())
