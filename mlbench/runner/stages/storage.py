"""The storage stage: what can the data set's own mount deliver, in the patterns that training reads in?

fio on every host at the same time: large sequential and 128 KiB random reads with direct I/O, and the pattern of
RecordIO training (one record at a random place, as many readers as ranks) with a cold and with a warm page cache. Data
in S3 are measured with ranged GETs by runner/stages/s3_storage.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

from mlbench.analyse.plausibility import Doubt, storage_doubts
from mlbench.check.finding import Severity
from mlbench.choices import LauncherName
from mlbench.collect.fio import FioResult, parse_fio
from mlbench.collect.runfiles import write_json
from mlbench.collect.storage import StorageRow, dump_rows, summed
from mlbench.errors import RunFailedError
from mlbench.launch.base import Launch
from mlbench.launch.command import BARE, ISLAND
from mlbench.launch.factory import worker_python
from mlbench.launch.local import LOCALHOST
from mlbench.launch.supervisor import EndedBy, Outcome
from mlbench.plan.types import Host, Plan
from mlbench.runner.context import StageContext, StageReport
from mlbench.runner.events import Said, StageState
from mlbench.runner.findings import drop_findings, put_finding
from mlbench.runner.stages.fio_tests import FioTest, fio_tests
from mlbench.runner.stages.folders import new_folder
from mlbench.runner.stages.launching import run_to_end
from mlbench.runner.tail import last_lines
from mlbench.wording import count_of

INSTALL = "fio is not installed here: apt-get install fio"
_SLACK_S = 300.0
_RULES = ("STORAGE-LINK", "STORAGE-CACHED", "STORAGE-MEMORY", "STORAGE-SHORT", "STORAGE-FAILED")


class StorageStage:
    """Measures every pattern on every host; what failed is a row with its reason and a finding."""

    def is_done(self, context: StageContext) -> bool:
        return context.folder.storage.is_file()

    def run(self, context: StageContext) -> StageReport:
        """Raises RunFailedError: the disk does not take the files, or a process could not be ended."""
        plan = context.plan
        if plan.config.launcher.name is LauncherName.rehearsal:
            return StageReport(StageState.not_measured, "a rehearsal reads no storage")
        if plan.data.path.startswith("s3://"):
            from mlbench.runner.stages.s3_storage import measure_s3

            rows, doubts = measure_s3(context)
        else:
            if shutil.which("fio") is None:
                return StageReport(StageState.not_measured, INSTALL)
            rows, doubts = _measure_fio(context)
        drop_findings(context.folder, _RULES)
        try:
            write_json(context.folder.storage, dump_rows(rows))
        except OSError as error:
            raise RunFailedError(f"{context.folder.storage}: cannot be written ({error.strerror})") from error
        _judge(context, rows, doubts)
        context.keeper.keep()
        return _report(rows)


def _measure_fio(context: StageContext) -> tuple[list[StorageRow], list[tuple[str, Doubt]]]:
    plan = context.plan
    folder = new_folder(context.folder.path / "storage", "attempt")
    target = _existing(Path(plan.config.benchmark.storage.path or plan.data.path).absolute())
    files = target / f".mlbench-fio-{context.folder.run_set}"
    tests = fio_tests(plan, target, own_files=os.access(target, os.W_OK))
    patterns = count_of(len(tests), "pattern")
    context.listener(Said(f"storage: fio on {target}, {patterns} of {plan.config.benchmark.storage.runtime_s:g} s"))
    spec = {
        "folder": str(folder),
        "files": str(files) if os.access(target, os.W_OK) else None,
        "tests": [{"name": test.name, "arguments": list(test.arguments)} for test in tests],
    }
    try:
        write_json(folder / "spec.json", spec)
        outcome = run_to_end(context, plan, _launch(context, folder, len(tests)))
    except OSError as error:
        raise RunFailedError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(files, ignore_errors=True)
    return read_hosts(plan, tests, folder, outcome)


def _existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there: the same mount, before the data set is made."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _launch(context: StageContext, folder: Path, num_tests: int) -> Launch:
    """One fio a host, outside any container: the images of frameworks hold no fio."""
    plan = context.plan
    hosts = plan.placement.hosts
    if plan.config.launcher.name is LauncherName.local:
        hosts = (Host(name=LOCALHOST, slots=1),)
    settings = plan.config.benchmark.storage
    return Launch(
        command=(worker_python(plan.config), *BARE, str(ISLAND / "start.py"), "fio_host", str(folder / "spec.json")),
        num_ranks=len(hosts),
        hosts=tuple(dataclasses.replace(host, slots=1) for host in hosts),
        environment={},
        mark=f"{context.folder.run_set}.storage.{folder.name}",
        cwd=folder,
        log=folder / "launcher.log",
        # Laying out the files counts too; a slow disk writes its own size in this time at 10 MB/s.
        time_limit_s=num_tests * settings.runtime_s * 2 + settings.max_file_gb * 100 + _SLACK_S,
    )


def read_hosts(
    plan: Plan, tests: list[FioTest], folder: Path, outcome: Outcome
) -> tuple[list[StorageRow], list[tuple[str, Doubt]]]:
    """Rows of every host and pattern, their sums, and the doubts about them."""
    rows: list[StorageRow] = []
    doubts: list[tuple[str, Doubt]] = []
    reports = [report for path in sorted(folder.glob("*.json")) if (report := _host_report(path)) is not None]
    missing = _why_missing(plan, reports, folder, outcome)
    for test in tests:
        of_test: list[StorageRow] = []
        for report in reports:
            result = _result(report, test.name)
            of_test.append(_row(test, str(report["host"]), result))
            if result.failure is None:
                doubts += [(f"{test.name} on {report['host']}", doubt) for doubt in _doubts(plan, test, report, result)]
        if missing is not None:
            of_test.append(
                dataclasses.replace(_row(test, "other hosts" if reports else "all hosts", None), reason=missing)
            )
        total = summed(of_test)
        rows += [*of_test, *([total] if total is not None else [])]
    return rows, doubts


def _host_report(path: Path) -> dict[str, Any] | None:
    if path.name == "spec.json":
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and "host" in value and isinstance(value.get("tests"), list) else None


def _why_missing(plan: Plan, reports: list[dict[str, Any]], folder: Path, outcome: Outcome) -> str | None:
    expected = plan.placement.num_nodes
    if len(reports) >= expected and outcome.succeeded:
        return None
    if outcome.ended_by is EndedBy.interrupted:
        return "stopped by the user"
    said = next(
        (line.strip() for line in reversed(last_lines(folder / "launcher.log", 5)) if line.strip()), "nothing said"
    )
    hosts = count_of(expected, "host")
    return f"{len(reports)} of {hosts} answered; the launcher ended with {outcome.exit_status}: {said[:300]}"


def _result(report: dict[str, Any], name: str) -> FioResult:
    test = next((item for item in report["tests"] if item.get("name") == name), None)
    if test is None:
        return FioResult(jobs=(), version=None, disk_reads=None, notes=(), failure="fio was not run")
    result = parse_fio(str(test.get("stdout", "")), exit_status=int(test.get("exit_status", 1)))
    if result.failure is not None and (said := str(test.get("stderr", "")).strip()):
        return dataclasses.replace(result, failure=f"{result.failure}; {said.splitlines()[-1][:300]}")
    return result


def _row(test: FioTest, host: str, result: FioResult | None) -> StorageRow:
    return StorageRow(
        tool="fio",
        host=host,
        endpoint=None,
        pattern=test.pattern,
        cache=test.cache,
        block_bytes=test.block_bytes,
        num_readers=test.num_readers,
        file_set_bytes=test.file_set_bytes,
        total_bytes=result.total_bytes if result else None,
        runtime_s=result.runtime_s if result else None,
        bandwidth_bytes_per_s=result.bandwidth_bytes_per_s if result else None,
        iops=result.iops if result else None,
        latency_mean_s=result.latency_mean_s if result else None,
        latency_p99_s=result.latency_p99_s if result else None,
        reason=result.failure if result else "not measured",
    )


def _doubts(plan: Plan, test: FioTest, report: dict[str, Any], result: FioResult) -> list[Doubt]:
    bandwidth = result.bandwidth_bytes_per_s
    if bandwidth is None or test.cache == "warm":  # warm reads come from memory by intent
        return []
    compute = plan.config.hardware.compute
    link = compute.storage_link_gb_per_s if compute is not None else None
    return storage_doubts(
        bandwidth_bytes_per_s=bandwidth,
        total_bytes=result.total_bytes,
        file_set_bytes=test.file_set_bytes,
        memory_bytes=report.get("memory_bytes"),
        link_bytes_per_s=link * 1e9 if link is not None else None,
        disk_reads=result.disk_reads,
        direct=test.cache == "direct",
        runtime_s=result.runtime_s,
        # The cold pattern reads each block once; when all are read it is complete, however short.
        asked_s=None if test.cache == "cold" else plan.config.benchmark.storage.runtime_s,
    )


def _judge(context: StageContext, rows: list[StorageRow], doubts: list[tuple[str, Doubt]]) -> None:
    for row in rows:
        if row.reason is not None:
            where = f"{row.pattern} ({row.cache}) on {row.host or row.endpoint or 'all'}"
            put_finding(context.folder, "STORAGE-FAILED", Severity.error, f"{where}: {row.reason}", file=where)
    for where, doubt in doubts:
        # A file set smaller than memory matters little when direct I/O passes the client's memory by.
        severity = Severity.note if doubt.rule == "STORAGE-MEMORY" else Severity.warning
        text = f"{where}: {doubt.found}, expected {doubt.expected}; {doubt.remedy}"
        put_finding(context.folder, doubt.rule, severity, text, file=where)


def _report(rows: list[StorageRow]) -> StageReport:
    """The sums where there are several hosts, else the host's own rows."""
    several = any(row.host is None and row.endpoint is None for row in rows)
    shown = [row for row in rows if (row.host is None and row.endpoint is None) or not several]
    good = [row for row in shown if row.bandwidth_bytes_per_s is not None and row.reason is None]
    texts = [
        f"{row.pattern} ({row.cache}) {row.bandwidth_bytes_per_s / 1e9:.2f} GB/s"
        for row in good
        if row.bandwidth_bytes_per_s
    ]
    failed = [f"{row.pattern} ({row.cache}) failed: {row.reason}" for row in shown if row.reason is not None]
    state = StageState.failed if failed or not good else StageState.measured
    return StageReport(state, "; ".join(texts + failed) or "nothing was measured")
