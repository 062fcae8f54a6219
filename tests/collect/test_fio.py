"""fio's output: noise around the JSON, failed jobs, zeros, units (cases.md D10 to D12, P33, P37)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlbench.analyse.plausibility import storage_doubts
from mlbench.collect.fio import parse_fio


def _job(name: str = "read", **read: Any) -> dict[str, Any]:
    values = {"io_bytes": 10**10, "bw": 976562, "bw_bytes": 10**9, "iops": 953.7, "total_ios": 9537, "runtime": 10_000}
    return {"jobname": name, "error": 0, "read": {**values, **read}}


def _text(*jobs: dict[str, Any], **more: Any) -> str:
    return json.dumps({"fio version": "fio-3.33", "jobs": list(jobs), **more}, indent=2)


def test_bandwidth_is_bytes_and_not_kib() -> None:
    found = parse_fio(_text(_job()))
    assert found.bandwidth_bytes_per_s == 1_000_000_000  # D11: 1.000 GB/s = 0.931 GiB/s
    assert found.bandwidth_bytes_per_s / 2**30 == pytest.approx(0.931, abs=5e-4)


def test_two_jobs_without_group_reporting_add_up() -> None:
    assert parse_fio(_text(_job("a"), _job("b"))).bandwidth_bytes_per_s == 2_000_000_000  # D11


def test_old_fio_without_bw_bytes_is_converted_from_kib() -> None:
    job = _job()
    del job["read"]["bw_bytes"]
    assert parse_fio(_text(job)).bandwidth_bytes_per_s == 976562 * 1024


def test_job_that_read_nothing_is_failed_and_not_zero() -> None:
    found = parse_fio(_text(_job(bw_bytes=0, bw=0, total_ios=0, io_bytes=0)))  # P37
    assert found.bandwidth_bytes_per_s is None
    assert found.failure == "fio job 'read' read nothing: zero is not a measurement"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("", 1, "fio printed no JSON (exit status 1): it said nothing else"),
        ("fio: failed to open file\n", 1, "fio printed no JSON (exit status 1): fio: failed to open file"),
        ('{"jobs": []}', 0, "fio's JSON holds no job"),
        ('{"jobs": [{"jobname": "x"}]}', 0, "fio's JSON is not understood: KeyError: 'read'"),
        ('{"jobs": 3}', 0, "fio's JSON is not understood: TypeError: 'int' object is not iterable"),
        (_text(_job())[:-40], 0, "fio printed no JSON (exit status 0): {"),
    ],
)
def test_output_that_is_no_result_is_a_failure_with_its_reason(text: str, status: int, said: str) -> None:
    assert parse_fio(text, exit_status=status).failure == said


def test_disk_reads_are_summed_and_unknown_without_disks() -> None:
    assert (
        parse_fio(_text(_job(), disk_util=[{"name": "a", "read_ios": 3}, {"name": "b", "read_ios": 4}])).disk_reads == 7
    )
    assert parse_fio(_text(_job())).disk_reads is None


@pytest.mark.fio
def test_note_ahead_of_the_json_is_a_note_of_a_good_result(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (1 << 20))
    command = ["fio", "--name=j", f"--filename={tmp_path / 'f'}", "--rw=read", "--bs=64k", "--ioengine=psync",
               "--iodepth=32", "--output-format=json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stdout.startswith("{"), "this fio puts no note ahead of its JSON"
    found = parse_fio(done.stdout, exit_status=done.returncode)
    assert found.failure is None
    assert found.total_bytes == 1 << 20
    assert found.notes[0].startswith("note:")


@pytest.mark.fio
def test_second_job_that_cannot_open_its_file_fails_the_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (1 << 20))
    command = ["fio", "--output-format=json", "--rw=read", "--bs=64k", "--name=good", f"--filename={tmp_path / 'f'}",
               "--name=bad", f"--filename={tmp_path / 'none' / 'f'}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    found = parse_fio(done.stdout, exit_status=done.returncode)
    assert found.failure is not None
    assert found.bandwidth_bytes_per_s is None


def _doubts(**changed: Any) -> list[str]:
    values: dict[str, Any] = {
        "bandwidth_bytes_per_s": 1e9,
        "total_bytes": 10 * 2**30,
        "file_set_bytes": None,
        "memory_bytes": None,
        "link_bytes_per_s": None,
        "disk_reads": None,
        "direct": True,
    }
    return [doubt.rule for doubt in storage_doubts(**{**values, **changed})]


def test_rate_above_the_line_is_doubted() -> None:
    assert _doubts(bandwidth_bytes_per_s=45e9, link_bytes_per_s=25e9) == ["STORAGE-LINK"]  # D12 (a)


def test_reads_that_never_reached_the_disk_are_likely_cached() -> None:
    assert _doubts(disk_reads=0) == ["STORAGE-CACHED"]  # D12 (b)


def test_small_file_set_and_short_run_are_doubted() -> None:
    found = _doubts(file_set_bytes=5 * 2**30, memory_bytes=512 * 2**30, runtime_s=25.0, asked_s=30.0)  # D12 (c)
    assert found == ["STORAGE-MEMORY", "STORAGE-SHORT"]


def test_plausible_rate_raises_no_doubt() -> None:
    assert _doubts(link_bytes_per_s=25e9, disk_reads=100, file_set_bytes=2**40, memory_bytes=2**30) == []
