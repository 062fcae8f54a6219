"""A cold cache is claimed only where every host proved it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlbench.choices import CacheMode
from mlbench.collect.runfolder import AttemptFolder
from mlbench.compose import compose
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from mlbench.preflight.reach import Conversation, Reach
from mlbench.runner.cold import chosen_mode, clear_cache, read_report
from tests.runner.conftest import MACHINE

PROVEN = {"host": "a", "mode": "evict", "proven": True, "method": "mincore", "reason": None}
WARM = {"host": "b", "mode": "evict", "proven": False, "method": "sample", "reason": "3 pages are still resident"}


def said(*reports: dict[str, Any], **fields: Any) -> Conversation:
    lines = [(0.0, "Welcome to node a"), *((0.0, json.dumps(report)) for report in reports)]
    num_hosts = fields.pop("num_hosts", 1)
    return Conversation(reach=Reach(name="a", num_hosts=num_hosts), started_at_s=0.0, lines=lines, **fields)


def test_read_report_takes_the_helpers_line_and_passes_over_the_banner() -> None:
    assert read_report(said(PROVEN)) == PROVEN


def test_read_report_not_proven_keeps_the_reason() -> None:
    assert read_report(said(WARM))["reason"] == "3 pages are still resident"


def test_read_report_of_several_hosts_is_proven_only_when_all_are() -> None:
    both = read_report(said(PROVEN, WARM, num_hosts=2))
    assert both["proven"] is False
    assert both["reason"] == "b: 3 pages are still resident"
    assert read_report(said(PROVEN, PROVEN, num_hosts=2))["proven"] is True


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": 127, "errors": b"sh: python3: not found\n"}, "sh: python3: not found"),
        ({"timed_out": True}, "no answer in time"),
        ({"start_error": "ssh: No such file or directory"}, "ssh: No such file or directory"),
        ({"status": 1}, "status 1"),
    ],
    ids=["status", "time", "start", "silent"],
)
def test_read_report_of_a_silent_host_is_not_proven(fields: dict[str, Any], reason: str) -> None:
    assert read_report(said(**fields)) == {"proven": False, "reason": f"0 of 1 helper answered: {reason}"}


def test_read_report_fewer_hosts_than_expected_is_not_proven() -> None:
    assert read_report(said(PROVEN, num_hosts=2, status=0))["proven"] is False


def plan_with(tmp_path: Path, *overrides: str) -> Plan:
    return make_plan(compose([f"runs_dir={tmp_path / 'runs'}", f"data.path={tmp_path / 'data'}", *overrides]), MACHINE)


def test_chosen_mode_on_a_machine_that_is_not_ours_alone_is_evict(tmp_path: Path) -> None:
    assert chosen_mode(plan_with(tmp_path)) is CacheMode.evict


def test_chosen_mode_on_a_dedicated_profile_as_root_is_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with(tmp_path, "+hardware=dgxa100", "gpus=8")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert chosen_mode(plan) is CacheMode.drop
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert chosen_mode(plan) is CacheMode.evict


def clear(plan: Plan, tmp_path: Path) -> tuple[bool, str | None, dict[str, Any]]:
    folder = AttemptFolder(tmp_path, False, 0, 0)
    proven, reason = clear_cache(plan, folder)
    return proven, reason, json.loads(folder.cache.read_text())


def test_clear_cache_none_claims_nothing(tmp_path: Path) -> None:
    proven, reason, record = clear(plan_with(tmp_path, "cache=none"), tmp_path)
    assert (proven, reason) == (False, "cache=none")
    assert record["cache_clear"] is False


def test_clear_cache_of_slurm_nodes_not_known_yet_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    plan = plan_with(tmp_path, "launcher=slurm", "+hardware=dgxa100", "gpus=16")
    proven, reason, _ = clear(plan, tmp_path)
    assert proven is False
    assert reason is not None
    assert "not known before the job runs" in reason


def test_clear_cache_evicts_real_files_and_proves_it(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("train.rec", "val.rec"):
        (tmp_path / "data" / name).write_bytes(os.urandom(300_000))
        (tmp_path / "data" / name).read_bytes()
    proven, reason, record = clear(plan, tmp_path)
    [report] = record["hosts"].values()
    # A file system in memory cannot be evicted; then it must not be claimed.
    assert proven is (report["resident_bytes_after"] == 0)
    assert record["cache_clear"] is proven
    assert (reason is None) is proven


def test_clear_cache_of_a_missing_file_is_not_proven(tmp_path: Path) -> None:
    proven, reason, _ = clear(plan_with(tmp_path), tmp_path)
    assert proven is False
    assert reason is not None
    assert "train.rec" in reason


def test_clear_cache_of_object_storage_needs_no_host(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    in_s3 = replace(plan, data=replace(plan.data, path="s3://imagenet/train"))
    proven, _, record = clear(in_s3, tmp_path)
    assert proven is True
    assert record["hosts"] == {}
