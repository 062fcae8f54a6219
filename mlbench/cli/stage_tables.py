"""The tables of the all-reduce and storage stages as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlbench.analyse.units import size_text
from mlbench.collect.allreduce import average_busbw_gb_per_s, peak_row
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.store.tables import AllReduceResult, StorageResult

_MAX_ROWS = 12
_ALLREDUCE_KEYS = (
    "backend", "transport", "num_ranks", "hosts", "in_place", "size_bytes", "time_us", "algbw_gb_per_s",
    "busbw_gb_per_s", "num_wrong",
)  # fmt: skip
_STORAGE_KEYS = (
    "tool", "host", "endpoint", "pattern", "cache", "block_bytes", "num_readers", "file_set_bytes", "total_bytes",
    "runtime_s", "bandwidth_bytes_per_s", "iops", "latency_mean_s", "latency_p99_s", "status", "reason",
)  # fmt: skip


def allreduce_lines(rows: Sequence[AllReduceResult], *, all_sizes: bool = False) -> list[str]:
    """One table a backend: sizes, time, algbw, busbw, wrong values; peak at large sizes and average, both labelled.

    Without `all_sizes` every second or fourth size is left out, but the largest stays."""
    lines: list[str] = []
    for backend in dict.fromkeys((row.backend, row.transport) for row in rows):
        group = [row for row in rows if (row.backend, row.transport) == backend]
        lines += _one_backend(group, all_sizes=all_sizes)
    return lines


def _one_backend(rows: list[AllReduceResult], *, all_sizes: bool) -> list[str]:
    first = rows[0]
    hosts = ", ".join(first.hosts)
    lines = [f"All-reduce: {first.backend} over {first.transport}, {count_of(first.num_ranks, 'rank')} on {hosts}"]
    titles = ("size", "place", "time, us", "algbw, GB/s", "busbw, GB/s", "wrong")
    lines.append(_cells(titles, _ALLREDUCE_WIDTHS))
    for row in rows if all_sizes else _some(rows):
        wrong = "not verified" if row.num_wrong is None else str(row.num_wrong)
        place = "in" if row.in_place else "out of"
        cells = (size_text(row.size_bytes), place, f"{row.time_us:,.1f}", f"{row.algbw_gb_per_s:.3f}")
        lines.append(_cells((*cells, f"{row.busbw_gb_per_s:.3f}", wrong), _ALLREDUCE_WIDTHS))
    peak, average = peak_row(rows), average_busbw_gb_per_s(rows)
    if peak is not None and average is not None:
        lines.append(
            f"peak busbw {peak.busbw_gb_per_s:.2f} GB/s at {size_text(peak.size_bytes)}; "
            f"average over all {count_of(len(rows), 'row')} {average:.2f} GB/s"
        )
    return lines


_ALLREDUCE_WIDTHS = (10, 7, 13, 13, 13, 14)
_STORAGE_WIDTHS = (15, 11, 7, 9, 8, 9, 10, 10)


def _some(rows: list[AllReduceResult]) -> list[AllReduceResult]:
    step = -(-len(rows) // _MAX_ROWS)
    return rows[::-1][::step][::-1] if step > 1 else rows


def storage_lines(rows: Sequence[StorageResult]) -> list[str]:
    """One row a pattern and host: GB/s (1e9), operations/s, latency. A failed one says why."""
    if not rows:
        return []
    lines = [f"Storage: {rows[0].tool}"]
    lines.append(_cells(("where", "pattern", "cache", "block", "readers", "GB/s", "op/s", "p99, ms"), _STORAGE_WIDTHS))
    for row in rows:
        where = row.endpoint or row.host or "all together"
        cells = [where, row.pattern, row.cache, size_text(row.block_bytes), str(row.num_readers)]
        if row.bandwidth_bytes_per_s is None:
            lines.append(_cells((*cells, "-", "-", "-"), _STORAGE_WIDTHS))
            lines.append(f"  failed: {row.reason}")
            continue
        iops = "-" if row.iops is None else f"{row.iops:,.0f}"
        p99 = "-" if row.latency_p99_s is None else f"{row.latency_p99_s * 1e3:.2f}"
        lines.append(_cells((*cells, f"{row.bandwidth_bytes_per_s / 1e9:.3f}", iops, p99), _STORAGE_WIDTHS))
    return lines


def allreduce_json(rows: Sequence[AllReduceResult]) -> list[dict[str, Any]]:
    return [{key: getattr(row, key) for key in _ALLREDUCE_KEYS} for row in rows]


def storage_json(rows: Sequence[StorageResult]) -> list[dict[str, Any]]:
    return [{key: getattr(row, key) for key in _STORAGE_KEYS} for row in rows]


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "".join([first[0][: first[1]].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()
