"""Which facts make two calls one run set, and how a difference is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.collect.runfiles import Provenance
from mlbench.errors import InputError
from mlbench.runner.facts import differences, hardware_facts, read_hosts, software_facts

PROVENANCE = Provenance(
    mlbench_version="1.0",
    git_commit="abc",
    git_dirty=False,
    python="3.11.7",
    packages={"mxnet": "1.9.1", "numpy": "1.23.5"},
    container_image=None,
    container_digest=None,
    data_mount={},
    clock_offsets_s={"a": 0.001},
    worker_sha256="0123456789abcdef",
)


def test_software_facts_leave_out_what_is_not_known() -> None:
    assert software_facts(PROVENANCE) == {
        "mlbench": "1.0",
        "worker code": "0123456789ab",
        "python": "3.11.7",
        "package mxnet": "1.9.1",
        "package numpy": "1.23.5",
    }


def test_hardware_facts_leave_out_what_changes_by_itself() -> None:
    hosts = {"a": {"cpu_model": "X", "nics": "eth0"}}
    assert hardware_facts(hosts, frozenset({"nics"})) == {"a: cpu_model": "X"}


def test_differences_name_both_sides_in_order() -> None:
    before = {"package numpy": "1.23.5", "driver": "450.51.06", "same": "1"}
    now = {"package numpy": "1.23.4", "same": "1", "container digest": "sha256:1"}
    assert differences(before, now) == [
        "container digest: not known, now 'sha256:1'",
        "driver: '450.51.06', now not known",
        "package numpy: '1.23.5', now '1.23.4'",
    ]


def test_differences_of_equal_facts_is_empty() -> None:
    assert differences({"a": "1"}, {"a": "1"}) == []


def test_read_hosts_missing_file_is_no_facts(tmp_path: Path) -> None:
    assert read_hosts(tmp_path / "hosts.json") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "text"}'])
def test_read_hosts_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"hosts\.json"):
        read_hosts(path)
