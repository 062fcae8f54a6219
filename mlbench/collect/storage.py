"""The table of the storage stage: one row an access pattern and host (or S3 endpoint), and one row for all together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlbench.errors import InputError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """`host` None is the sum over hosts, `endpoint` an S3 endpoint. `cache` is `direct` (O_DIRECT: no page cache),
    `cold` (page cache evicted first) or `warm`. Rates are None when the measurement failed; `reason` says why."""

    tool: str
    host: str | None
    endpoint: str | None
    pattern: str
    cache: str
    block_bytes: int
    num_readers: int
    file_set_bytes: int | None
    total_bytes: int | None
    runtime_s: float | None
    bandwidth_bytes_per_s: float | None
    iops: float | None
    latency_mean_s: float | None
    latency_p99_s: float | None
    reason: str | None = None

    @property
    def status(self) -> str:
        return "measured" if self.reason is None else "failed"


def dump_rows(rows: Sequence[StorageRow]) -> dict[str, Any]:
    """The content of storage.json."""
    return {"schema_version": SCHEMA_VERSION, "rows": [asdict(row) for row in rows]}


def load_rows(path: Path) -> tuple[StorageRow, ...]:
    """Read storage.json. Raises InputError: not this format or version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("schema_version") != SCHEMA_VERSION:
            raise InputError(f"{path}: schema_version {value.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        return tuple(StorageRow(**row) for row in value["rows"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not a storage table of mlbench ({error})") from error


def summed(rows: Sequence[StorageRow]) -> StorageRow | None:
    """All hosts of one pattern together, as they ran at the same time; None for fewer than two.

    A sum with a failed host would be too small and look like a slow system, so it fails too.
    """
    if len(rows) < 2:
        return None
    first = rows[0]
    failed = [f"{row.host or row.endpoint}: {row.reason}" for row in rows if row.reason is not None]
    return StorageRow(
        tool=first.tool,
        host=None,
        endpoint=None,
        pattern=first.pattern,
        cache=first.cache,
        block_bytes=first.block_bytes,
        num_readers=sum(row.num_readers for row in rows),
        file_set_bytes=_sum(rows, "file_set_bytes"),
        total_bytes=_sum(rows, "total_bytes"),
        runtime_s=max((row.runtime_s for row in rows if row.runtime_s is not None), default=None),
        bandwidth_bytes_per_s=_sum(rows, "bandwidth_bytes_per_s"),
        iops=_sum(rows, "iops"),
        latency_mean_s=_weighted_latency(rows),
        latency_p99_s=max((row.latency_p99_s for row in rows if row.latency_p99_s is not None), default=None),
        reason="; ".join(failed) if failed else None,
    )


def _sum(rows: Sequence[StorageRow], name: str) -> Any:
    values = [getattr(row, name) for row in rows]
    return None if any(value is None for value in values) else sum(values)


def _weighted_latency(rows: Sequence[StorageRow]) -> float | None:
    pairs = [(row.latency_mean_s, row.iops) for row in rows]
    known = [(latency, iops) for latency, iops in pairs if latency is not None and iops]
    total = sum(iops for _, iops in known)
    return sum(latency * iops for latency, iops in known) / total if len(known) == len(rows) and total else None
