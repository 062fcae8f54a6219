"""One all-reduce table, whatever measured it: nccl-tests, Horovod or plain MPI.

Bandwidths follow nccl-tests: algbw = size / time, busbw = algbw x 2 (n - 1) / n for n ranks, in GB/s (1e9 bytes).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mlbench.errors import InputError

SCHEMA_VERSION = 1
LARGE_BYTES = 1 << 20
"""Sizes from here on count for the peak: below, latency decides and caches can flatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceRow:
    """One size. `num_wrong` None means that the result was not verified."""

    size_bytes: int
    in_place: bool
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    num_wrong: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceTable:
    """Rows in the order measured. `failure` is None for a good table; else why it is none."""

    backend: str
    transport: str
    num_ranks: int
    hosts: tuple[str, ...]
    rows: tuple[AllReduceRow, ...]
    failure: str | None = None
    notes: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    """Fusion threshold, cycle time, versions: what the reader must know to compare."""

    @property
    def average_busbw_gb_per_s(self) -> float | None:
        return average_busbw_gb_per_s(self.rows)

    @property
    def peak(self) -> AllReduceRow | None:
        return peak_row(self.rows)


class Measured(Protocol):
    """A row of a table here, or of the database."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def busbw_gb_per_s(self) -> float: ...


MeasuredT = TypeVar("MeasuredT", bound=Measured)


def peak_row(rows: Sequence[MeasuredT]) -> MeasuredT | None:
    """The row with the highest bus bandwidth among large sizes; the largest size when none is large.

    Args: rows: of one table; peaks over several backends or transports answer no question."""
    large = [row for row in rows if row.size_bytes >= LARGE_BYTES]
    if large:
        return max(large, key=lambda row: row.busbw_gb_per_s)
    return max(rows, key=lambda row: row.size_bytes, default=None)


def average_busbw_gb_per_s(rows: Sequence[Measured]) -> float | None:
    """Mean over all sizes and both places, as nccl-tests prints it; small sizes pull it down."""
    return math.fsum(row.busbw_gb_per_s for row in rows) / len(rows) if rows else None


def bus_factor(num_ranks: int) -> float:
    """busbw / algbw of an all-reduce. Source: NVIDIA/nccl-tests doc/PERFORMANCE.md, AllReduce."""
    return 2 * (num_ranks - 1) / num_ranks


def row_of_time(
    size_bytes: int, time_us: float, num_ranks: int, num_wrong: int | None, *, in_place: bool
) -> AllReduceRow:
    """A row from a measured time."""
    algbw = size_bytes / time_us / 1e3
    return AllReduceRow(
        size_bytes=size_bytes,
        in_place=in_place,
        time_us=time_us,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=algbw * bus_factor(num_ranks),
        num_wrong=num_wrong,
    )


def fault_of_rows(rows: Sequence[AllReduceRow], num_ranks: int) -> str | None:
    """Why these rows are no measurement, or None."""
    if not rows:
        return "no size was measured"
    if num_ranks < 2:
        return f"{num_ranks} rank moves nothing over the fabric"
    for row in rows:
        where = f"{row.size_bytes} B"
        if row.num_wrong:
            return f"{row.num_wrong} wrong values at {where}, expected 0"
        if not math.isfinite(row.time_us) or row.time_us <= 0:
            return f"time {row.time_us:g} us at {where}: zero is not a measurement"
        if row.size_bytes >= LARGE_BYTES and row.busbw_gb_per_s <= 0:
            return f"bus bandwidth {row.busbw_gb_per_s:g} GB/s at {where}: zero is not a measurement"
    return None


def dump_tables(tables: Sequence[AllReduceTable]) -> dict[str, Any]:
    """The content of allreduce.json: one table a backend, the one that training uses first."""
    return {"schema_version": SCHEMA_VERSION, "tables": [asdict(table) for table in tables]}


def load_tables(path: Path) -> tuple[AllReduceTable, ...]:
    """Read allreduce.json. Raises InputError: not this format or version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("schema_version") != SCHEMA_VERSION:
            raise InputError(f"{path}: schema_version {value.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        return tuple(_table(item) for item in value["tables"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not an all-reduce table of mlbench ({error})") from error


def load_worker_result(path: Path) -> AllReduceTable:
    """The table that the worker wrote (worker/allreduce.py). Raises InputError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        num_ranks = int(value["num_ranks"])
        rows = tuple(
            row_of_time(int(row["size_bytes"]), float(row["time_us"]), num_ranks, int(row["num_wrong"]), in_place=True)
            for row in value["rows"]
        )
        return AllReduceTable(
            backend=str(value["backend"]),
            transport=str(value["transport"]),
            num_ranks=num_ranks,
            hosts=tuple(str(host) for host in value["hosts"]),
            rows=rows,
            failure=fault_of_rows(rows, num_ranks),
            settings={str(key): str(item) for key, item in value["settings"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: not a result of the worker's all-reduce ({error})") from error


def _table(value: dict[str, Any]) -> AllReduceTable:
    rows = tuple(AllReduceRow(**row) for row in value["rows"])
    return AllReduceTable(**{**value, "rows": rows, "hosts": tuple(value["hosts"]), "notes": tuple(value["notes"])})
