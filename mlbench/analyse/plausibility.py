"""Is a measured rate possible? A flattering number is a finding, not a result to be proud of."""

from __future__ import annotations

from dataclasses import dataclass

LINK_OVERSHOOT = 1.05
"""A rate may exceed the nominal line rate by measuring error; beyond 5 % it did not cross that line."""
MEMORY_FACTOR = 2.0
"""A file set below this many times the memory can be served from memory even when caches started cold."""
MIN_RUNTIME_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Doubt:
    """`rule` is an id of docs/rules.md."""

    rule: str
    found: str
    expected: str
    remedy: str


def allreduce_doubts(peak_gb_per_s: float, link_gb_per_s: float | None, *, half_matters: bool = True) -> list[Doubt]:
    """A peak bus bandwidth above the profile's link rate, or below half of it. No link rate, no doubt."""
    if link_gb_per_s is None:
        return []
    if peak_gb_per_s > link_gb_per_s * LINK_OVERSHOOT:
        return [
            Doubt(
                "ALLREDUCE-LINK",
                f"peak busbw {peak_gb_per_s:.1f} GB/s",
                f"at most the link's {link_gb_per_s:.1f} GB/s",
                "check the profile's link rate; in-switch reduction and shared memory can exceed it",
            )
        ]
    if half_matters and peak_gb_per_s < link_gb_per_s / 2:
        return [
            Doubt(
                "ALLREDUCE-SLOW",
                f"peak busbw {peak_gb_per_s:.1f} GB/s",
                f"at least half of the link's {link_gb_per_s:.1f} GB/s",
                "check the fabric, the interface that NCCL chose and the binding of ranks before training",
            )
        ]
    return []


def storage_doubts(
    *,
    bandwidth_bytes_per_s: float,
    total_bytes: int | None,
    file_set_bytes: int | None,
    memory_bytes: int | None,
    link_bytes_per_s: float | None,
    disk_reads: int | None,
    direct: bool,
    runtime_s: float | None = None,
    asked_s: float | None = None,
) -> list[Doubt]:
    """Rates that memory, not storage, delivered. Unknown quantities raise no doubt of their own."""
    found: list[Doubt] = []
    if link_bytes_per_s is not None and bandwidth_bytes_per_s > link_bytes_per_s * LINK_OVERSHOOT:
        found.append(
            Doubt(
                "STORAGE-LINK",
                f"{bandwidth_bytes_per_s / 1e9:.1f} GB/s",
                f"at most the line rate of {link_bytes_per_s / 1e9:.1f} GB/s",
                "the reads came from memory, or the profile's storage_link_gb_per_s is too low",
            )
        )
    if disk_reads == 0 and total_bytes:
        found.append(
            Doubt(
                "STORAGE-CACHED",
                f"{total_bytes / 1e9:.1f} GB read, 0 reads on the disk",
                "reads that reach the disk",
                "likely cached: use direct I/O and a file set larger than memory",
            )
        )
    if file_set_bytes and memory_bytes and file_set_bytes < memory_bytes * MEMORY_FACTOR:
        served = "direct I/O passes the client's memory, not the server's" if direct else "memory can serve it all"
        found.append(
            Doubt(
                "STORAGE-MEMORY",
                f"a file set of {file_set_bytes / 1e9:.1f} GB; {served}",
                f"at least {MEMORY_FACTOR:g} times the memory of {memory_bytes / 1e9:.1f} GB",
                "raise benchmark.storage.file_size_gb, or read with direct I/O",
            )
        )
    if runtime_s is not None and asked_s is not None and runtime_s < asked_s * MIN_RUNTIME_SHARE:
        found.append(
            Doubt(
                "STORAGE-SHORT",
                f"read for {runtime_s:.1f} s",
                f"{asked_s:.1f} s",
                "the file set ended before the time did; raise benchmark.storage.file_size_gb",
            )
        )
    return found
