"""fio's JSON, with whatever text fio puts around it.

One base unit: bytes/s. fio's `bw` is KiB/s, so `bw_bytes` is read and `bw` only where an old fio has nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_TEXT = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """The read side of one job (or one group)."""

    name: str
    error: int
    total_bytes: int
    num_ios: int
    bandwidth_bytes_per_s: float
    iops: float
    runtime_s: float
    latency_mean_s: float | None
    latency_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FioResult:
    """`failure` is None for a good result. Sums are over jobs; `disk_reads` is None when fio saw no disk of its own
    (a network mount), else the read operations that reached the disks."""

    jobs: tuple[FioJob, ...]
    version: str | None
    disk_reads: int | None
    notes: tuple[str, ...]
    failure: str | None

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        return sum(job.bandwidth_bytes_per_s for job in self.jobs) if self.jobs and self.failure is None else None

    @property
    def iops(self) -> float | None:
        return sum(job.iops for job in self.jobs) if self.jobs and self.failure is None else None

    @property
    def total_bytes(self) -> int | None:
        return sum(job.total_bytes for job in self.jobs) if self.jobs and self.failure is None else None

    @property
    def runtime_s(self) -> float | None:
        return max((job.runtime_s for job in self.jobs), default=None) if self.failure is None else None

    @property
    def latency_mean_s(self) -> float | None:
        """Mean over operations, so each job counts with its number of them."""
        known = [job for job in self.jobs if job.latency_mean_s is not None]
        total = sum(job.num_ios for job in known)
        if self.failure is not None or not total:
            return None
        return sum((job.latency_mean_s or 0.0) * job.num_ios for job in known) / total

    @property
    def latency_p99_s(self) -> float | None:
        """The worst job's 99th percentile: percentiles of several jobs do not add up."""
        if self.failure is not None:
            return None
        return max((job.latency_p99_s for job in self.jobs if job.latency_p99_s is not None), default=None)


def parse_fio(text: str, *, exit_status: int = 0) -> FioResult:
    """Read what `fio --output-format=json` printed.

    Text ahead of or behind the JSON becomes notes. A failure is: a non-zero exit status, a job with an error, no job,
    no JSON, or a job that read nothing (zero is not a measurement). Never raises.
    """
    value, notes = _find_json(text[:_MAX_TEXT])
    if value is None:
        return _failed(notes, f"fio printed no JSON (exit status {exit_status}): {_said(notes)}")
    try:
        jobs = tuple(_job(item) for item in value.get("jobs") or value.get("client_stats") or ())
        disk_reads = _disk_reads(value.get("disk_util"))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        return _failed(notes, f"fio's JSON is not understood: {type(error).__name__}: {error}")
    version = value.get("fio version")
    return FioResult(
        jobs=jobs,
        version=str(version) if version else None,
        disk_reads=disk_reads,
        notes=notes,
        failure=_failure(jobs, exit_status, notes),
    )


def _find_json(text: str) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    decoder = json.JSONDecoder()
    position = 0
    while (start := text.find("{", position)) >= 0:
        if start == 0 or text[start - 1] == "\n":
            try:
                value, end = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                position = start + 1
                continue
            if isinstance(value, dict) and ("jobs" in value or "client_stats" in value):
                return value, _lines(text[:start]) + _lines(text[end:])
        position = start + 1
    return None, _lines(text)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip()[:500] for line in text.splitlines() if line.strip())[:20]


def _job(item: Mapping[str, Any]) -> FioJob:
    read = item["read"]
    bandwidth = read["bw_bytes"] if "bw_bytes" in read else float(read["bw"]) * 1024
    latency = read.get("lat_ns") or read.get("clat_ns") or {}
    percentiles = (read.get("clat_ns") or {}).get("percentile") or {}
    mean_ns, p99_ns = latency.get("mean"), percentiles.get("99.000000")
    return FioJob(
        name=str(item.get("jobname", "")),
        error=int(item.get("error", 0)),
        total_bytes=int(read["io_bytes"]) if "io_bytes" in read else 0,
        num_ios=int(read.get("total_ios", 0)),
        bandwidth_bytes_per_s=float(bandwidth),
        iops=float(read.get("iops", 0.0)),
        runtime_s=float(read.get("runtime", 0)) / 1e3,
        latency_mean_s=float(mean_ns) / 1e9 if mean_ns else None,
        latency_p99_s=float(p99_ns) / 1e9 if p99_ns else None,
    )


def _disk_reads(disks: Any) -> int | None:
    if not disks:
        return None
    return sum(int(disk.get("read_ios", 0)) for disk in disks)


def _failure(jobs: tuple[FioJob, ...], exit_status: int, notes: tuple[str, ...]) -> str | None:
    for job in jobs:
        if job.error:
            return f"fio job {job.name!r} ended with error {job.error}: {_said(notes)}"
    if exit_status:
        return f"fio ended with status {exit_status}: {_said(notes)}"
    if not jobs:
        return "fio's JSON holds no job"
    for job in jobs:
        if job.bandwidth_bytes_per_s <= 0 or job.num_ios <= 0:
            return f"fio job {job.name!r} read nothing: zero is not a measurement"
    return None


def _failed(notes: tuple[str, ...], reason: str) -> FioResult:
    return FioResult(jobs=(), version=None, disk_reads=None, notes=notes, failure=reason)


def _said(notes: tuple[str, ...]) -> str:
    return notes[0] if notes else "it said nothing else"
