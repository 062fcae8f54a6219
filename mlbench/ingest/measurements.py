"""What was measured beside training, from the files of a run folder to rows of the database."""

from __future__ import annotations

from mlbench.collect.allreduce import load_tables
from mlbench.collect.runfolder import AttemptFolder, RunFolder
from mlbench.collect.storage import load_rows
from mlbench.collect.telemetry import read_telemetry
from mlbench.ingest.build import note_rows
from mlbench.store.tables import AllReduceResult, NoteRow, StorageResult, TelemetrySeries


def allreduce_rows(folder: RunFolder) -> list[AllReduceResult]:
    """Rows of every good table; a table that failed is told by findings.json. Raises InputError."""
    if not folder.allreduce.is_file():
        return []
    return [
        AllReduceResult(
            backend=table.backend,
            transport=table.transport,
            num_ranks=table.num_ranks,
            hosts=list(table.hosts),
            in_place=row.in_place,
            size_bytes=row.size_bytes,
            time_us=row.time_us,
            algbw_gb_per_s=row.algbw_gb_per_s,
            busbw_gb_per_s=row.busbw_gb_per_s,
            num_wrong=row.num_wrong,
        )
        for table in load_tables(folder.allreduce)
        if table.failure is None
        for row in table.rows
    ]


def storage_rows(folder: RunFolder) -> list[StorageResult]:
    """Rows of storage.json, failed ones with their reason. Raises InputError."""
    if not folder.storage.is_file():
        return []
    return [
        StorageResult(
            tool=row.tool,
            host=row.host,
            endpoint=row.endpoint,
            pattern=row.pattern,
            cache=row.cache,
            block_bytes=row.block_bytes,
            num_readers=row.num_readers,
            file_set_bytes=row.file_set_bytes,
            total_bytes=row.total_bytes,
            runtime_s=row.runtime_s,
            bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
            iops=row.iops,
            latency_mean_s=row.latency_mean_s,
            latency_p99_s=row.latency_p99_s,
            status=row.status,
            reason=row.reason,
        )
        for row in load_rows(folder.storage)
    ]


def telemetry_rows(attempt: AttemptFolder, run_start_ms: float | None) -> tuple[list[TelemetrySeries], list[NoteRow]]:
    """Time lines of one attempt, in seconds since run_start, so that they lie over its epochs; none without a start."""
    if run_start_ms is None:
        return [], []
    found, notes = read_telemetry(attempt.telemetry)
    rows = [
        TelemetrySeries(
            host=series.host,
            metric=series.metric,
            num_points=len(series.values),
            mean=series.mean,
            min=series.min,
            max=series.max,
            times_s=[round((time_ms - run_start_ms) / 1e3, 3) for time_ms in series.times_ms],
            points=list(series.values),
        )
        for series in found
    ]
    return rows, note_rows(notes)
