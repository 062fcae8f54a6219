"""The 33 fields, from a profile, from host facts, and from neither."""

from __future__ import annotations

from typing import Any

import pytest

from mlbench.check.system_rules import REQUIRED_FIELDS
from mlbench.errors import ConfigError
from mlbench.publish.system_description import describe, system_folder_name
from tests.support.submissions import run_set_file

DGX: dict[str, Any] = {
    "name": "dgxa100",
    "host_processor_model": "AMD EPYC 7742",
    "host_processors_per_node": 2,
    "host_processor_cores": 64,
    "host_memory_gb": 1000,
    "accelerator_model": "NVIDIA A100-SXM4-40GB",
    "accelerator_memory_gb": 40,
    "accelerator_interconnect": "NVSwitch",
    "compute_nics": ["8 x ConnectX-6"],
    "storage_nics": ["2 x ConnectX-6"],
    "interconnect": "HDR InfiniBand",
    "software": {"operating_system": "Ubuntu 18.04.5", "kernel": "5.3.0-59"},
}
F800: dict[str, Any] = {"system_name": "Isilon F800", "protocol": "NFS", "raw_capacity_tb": 96.0, "num_chassis": 2}


def test_describe_takes_the_profile_first() -> None:
    identity = run_set_file(device="gpu", num_ranks=32, num_accelerators=32, num_nodes=4, system_name="NVIDIA DGX A100")
    found = describe(identity, {"compute": DGX, "storage": F800}, {"a": {"cpu_model": "another"}}, org="X", given={})
    expected = {
        "system_name": "NVIDIA_DGX_A100_x32gpu",
        "number_of_nodes": "4",
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA A100-SXM4-40GB",
        "accelerator_memory_capacity": "40 GB",
        "host_processor_model_name": "AMD EPYC 7742",
        "host_processor_core_count": "64",
        "host_memory_capacity": "1000 GB",
        "host_storage_type": "Isilon F800, NFS",
        "host_storage_capacity": "192 TB",
        "host_networking": "compute: 8 x ConnectX-6; storage: 2 x ConnectX-6",
        "host_networking_topology": "HDR InfiniBand",
        "operating_system": "Ubuntu 18.04.5, kernel 5.3.0-59",
    }
    assert {name: found[name] for name in expected} == expected


def test_describe_without_profile_and_facts_guesses_nothing() -> None:
    found = describe(run_set_file(), {"compute": None, "storage": None}, {}, org="X", given={})
    assert tuple(found) == REQUIRED_FIELDS
    assert found["host_processor_model_name"] == "not recorded"
    assert found["host_memory_capacity"] == "not recorded"
    assert found["accelerator_model_name"] == "N/A"


@pytest.mark.parametrize(
    ("logged", "described"),
    # the four words of system_desc_checker.py for those of common.yaml
    [
        ("onprem", "Available on-premise"),
        ("cloud", "Available cloud"),
        ("research", "Research, Development, or Internal (RDI)"),
        ("preview", "Preview"),
    ],
)
def test_describe_status_is_the_word_of_the_rules(logged: str, described: str) -> None:
    found = describe(run_set_file(submission_status=logged), {}, {}, org="X", given={})
    assert found["status"] == described


@pytest.mark.parametrize("name", ["status", "submitter", "nonsense"])
def test_describe_refuses_fields_that_are_not_to_be_given(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--field {name}"):
        describe(run_set_file(), {}, {}, org="X", given={name: "y"})


def test_system_folder_name_is_one_that_a_repository_takes() -> None:
    assert system_folder_name(run_set_file(system_name=" .Wide/ open\tname ")) == "Wide_open_name_x2cpu"
    assert system_folder_name(run_set_file(system_name="…")) == "system_x2cpu"
