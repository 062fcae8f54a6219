"""The storage stage for data in S3: parallel ranged GETs from every rank, each at its own endpoint."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from mlbench.analyse.plausibility import Doubt, storage_doubts
from mlbench.choices import LauncherName
from mlbench.collect.runfiles import write_json
from mlbench.collect.storage import StorageRow
from mlbench.errors import RunFailedError
from mlbench.launch.base import Launch
from mlbench.launch.command import ISLAND
from mlbench.launch.factory import worker_python
from mlbench.launch.local import LOCALHOST
from mlbench.launch.supervisor import EndedBy, Outcome
from mlbench.plan.data import mean_image_bytes
from mlbench.plan.types import Host, Plan
from mlbench.runner.context import StageContext
from mlbench.runner.events import Said
from mlbench.runner.stages.fio_tests import record_bytes
from mlbench.runner.stages.folders import new_folder
from mlbench.runner.stages.launching import run_to_end
from mlbench.runner.tail import last_lines
from mlbench.wording import count_of

REQUESTS_PER_RANK = 16
_SLACK_S = 120.0


def measure_s3(context: StageContext) -> tuple[list[StorageRow], list[tuple[str, Doubt]]]:
    """Rows of each pattern: one an endpoint, one for all together. Raises RunFailedError."""
    plan = context.plan
    folder = new_folder(context.folder.path / "storage", "attempt")
    tests = _tests(plan)
    endpoints = list(plan.data.worker.s3_endpoints)
    where, patterns = count_of(len(endpoints) or 1, "endpoint"), count_of(len(tests), "pattern")
    context.listener(Said(f"storage: ranged GETs from {where}, {patterns}"))
    settings = plan.config.benchmark.storage
    spec = {
        "folder": str(folder),
        "endpoints": endpoints,
        "objects": list(plan.data.worker.train_rec),
        "tests": tests,
        "runtime_s": settings.runtime_s,
        "num_requests": REQUESTS_PER_RANK,
    }
    try:
        write_json(folder / "spec.json", spec)
    except OSError as error:
        raise RunFailedError(f"{folder}: cannot be written ({error.strerror})") from error
    return read_ranks(plan, tests, folder, run_to_end(context, plan, _launch(context, folder, len(tests))))


def _tests(plan: Plan) -> list[dict[str, Any]]:
    settings = plan.config.benchmark.storage
    return [
        {"name": "sequential", "pattern": "sequential", "block_bytes": settings.block_sequential_bytes},
        {"name": "random", "pattern": "random", "block_bytes": settings.block_random_bytes},
        {"name": "training", "pattern": "training", "block_bytes": record_bytes(mean_image_bytes(plan.config.data))},
    ]


def _launch(context: StageContext, folder: Path, num_tests: int) -> Launch:
    plan = context.plan
    hosts = plan.placement.hosts
    if plan.config.launcher.name is LauncherName.local:
        hosts = (Host(name=LOCALHOST, slots=plan.num_ranks),)
    storage = plan.config.hardware.storage
    return Launch(
        # Not -S: boto3 lies in site-packages.
        command=(worker_python(plan.config), "-I", str(ISLAND / "start.py"), "s3_host", str(folder / "spec.json")),
        num_ranks=plan.num_ranks,
        hosts=hosts,
        environment=dict(storage.environment) if storage is not None else {},
        mark=f"{context.folder.run_set}.storage.{folder.name}",
        cwd=folder,
        log=folder / "launcher.log",
        time_limit_s=num_tests * plan.config.benchmark.storage.runtime_s * 2 + _SLACK_S,
    )


def read_ranks(
    plan: Plan, tests: list[dict[str, Any]], folder: Path, outcome: Outcome
) -> tuple[list[StorageRow], list[tuple[str, Doubt]]]:
    """Rows and doubts from the files of all ranks; a missing rank fails every sum."""
    ranks = [value for path in sorted(folder.glob("rank_*.json")) if (value := _read(path)) is not None]
    missing = _why_missing(plan, ranks, folder, outcome)
    rows: list[StorageRow] = []
    doubts: list[tuple[str, Doubt]] = []
    for test in tests:
        results = [item for rank in ranks for item in rank["tests"] if item["name"] == test["name"]]
        size = max((int(rank["object_bytes"]) for rank in ranks), default=None)
        rows += [_endpoint_row(test, url, results, size) for url in plan.data.worker.s3_endpoints]
        total = _total_row(test, results, size, missing)
        rows.append(total)
        if total.bandwidth_bytes_per_s is not None:
            doubts += [(f"{test['name']} over all endpoints", doubt) for doubt in _doubts(plan, total)]
    return rows, doubts


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("tests"), list) else None


def _why_missing(plan: Plan, ranks: list[dict[str, Any]], folder: Path, outcome: Outcome) -> str | None:
    if len(ranks) >= plan.num_ranks and outcome.succeeded:
        return None
    if outcome.ended_by is EndedBy.interrupted:
        return "stopped by the user"
    if importlib.util.find_spec("boto3") is None:
        return "boto3 is not installed here: pip install boto3"
    lines = [line.strip() for line in last_lines(folder / "launcher.log", 40) if "s3_host:" in line]
    said = lines[-1] if lines else "nothing said"
    return f"{len(ranks)} of {count_of(plan.num_ranks, 'rank')} measured; {said[:300]}"


def _endpoint_row(test: dict[str, Any], url: str, results: list[dict[str, Any]], size: int | None) -> StorageRow:
    """An endpoint's share: what it delivered to all ranks over the time of the test."""
    shares = [share for item in results for share in item["shares"] if share["endpoint"] == url]
    num_bytes = sum(int(share["num_bytes"]) for share in shares)
    num_requests = sum(int(share["num_requests"]) for share in shares)
    seconds = max((float(item["seconds"]) for item in results), default=0.0)
    readers = sum(1 for item in results if any(s["endpoint"] == url and s["num_bytes"] for s in item["shares"]))
    failures = sum(int(share["num_failures"]) for share in shares)
    reason = None
    if not num_bytes or not seconds:
        reason = f"delivered nothing, {failures} failures" if failures else "no rank reads from it"
    return _row(test, url, readers, size, num_bytes, num_requests, seconds, reason, latencies=(None, None))


def _total_row(
    test: dict[str, Any], results: list[dict[str, Any]], size: int | None, missing: str | None
) -> StorageRow:
    faults = [str(item["fault"]) for item in results if item.get("fault")]
    num_bytes = sum(int(item["num_bytes"]) for item in results)
    num_requests = sum(int(item["num_requests"]) for item in results)
    seconds = max((float(item["seconds"]) for item in results), default=0.0)
    reason = missing or (faults[0] if faults else None)
    if reason is None and (not num_bytes or not seconds):
        reason = "nothing was read: zero is not a measurement"
    mean = None
    if num_requests:
        weighted = [(item["latency_mean_s"], item["num_requests"]) for item in results if item["latency_mean_s"]]
        mean = sum(latency * count for latency, count in weighted) / num_requests
    p99 = max((item["latency_p99_s"] for item in results if item["latency_p99_s"] is not None), default=None)
    return _row(test, None, len(results), size, num_bytes, num_requests, seconds, reason, latencies=(mean, p99))


def _row(
    test: dict[str, Any],
    endpoint: str | None,
    num_readers: int,
    size: int | None,
    num_bytes: int,
    num_requests: int,
    seconds: float,
    reason: str | None,
    *,
    latencies: tuple[float | None, float | None],
) -> StorageRow:
    good = reason is None
    return StorageRow(
        tool="s3",
        host=None,
        endpoint=endpoint,
        pattern=test["pattern"],
        cache="cold",
        block_bytes=int(test["block_bytes"]),
        num_readers=num_readers,
        file_set_bytes=size,
        total_bytes=num_bytes if good else None,
        runtime_s=seconds if good else None,
        bandwidth_bytes_per_s=num_bytes / seconds if good else None,
        iops=num_requests / seconds if good else None,
        latency_mean_s=latencies[0] if good else None,
        latency_p99_s=latencies[1] if good else None,
        reason=reason,
    )


def _doubts(plan: Plan, total: StorageRow) -> list[Doubt]:
    compute = plan.config.hardware.compute
    link = compute.storage_link_gb_per_s if compute is not None else None
    return storage_doubts(
        bandwidth_bytes_per_s=total.bandwidth_bytes_per_s or 0.0,
        total_bytes=total.total_bytes,
        file_set_bytes=None,
        memory_bytes=None,
        link_bytes_per_s=link * 1e9 * plan.placement.num_nodes if link is not None else None,
        disk_reads=None,
        direct=False,
        runtime_s=total.runtime_s,
        asked_s=plan.config.benchmark.storage.runtime_s,
    )
