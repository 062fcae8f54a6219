"""What the machine did while it trained, judged after the last repetition: telemetry and the papers' cross-check.

For every run that came to its end: findings of each host's time lines, and samples/s times mean image size in the
first epoch (when the data still come from storage) against what disks and networks moved and what the storage stage
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mlbench.analyse.consistency import Consistency, consistency
from mlbench.analyse.telemetry import Evidence, bytes_in_per_s, findings_of_host
from mlbench.check.finding import Severity
from mlbench.collect.mllog import read_log
from mlbench.collect.runfolder import AttemptFolder, RunFolder, last_attempts
from mlbench.collect.runlog import RunLog
from mlbench.collect.storage import load_rows
from mlbench.collect.telemetry import Series, read_telemetry
from mlbench.errors import InputError
from mlbench.plan.data import mean_image_bytes
from mlbench.runner.context import StageContext
from mlbench.runner.findings import drop_findings, put_finding

RULES = ("TELEMETRY-INPUT", "TELEMETRY-THROTTLE", "TELEMETRY-SLOW-GPU", "CONSISTENCY")
_MIN_SAMPLES = 3
"""Fewer seconds than this say nothing about a mean rate."""
_TOO_LITTLE = 0.8
"""Less than this share of the expected bytes from disks and networks: the data came from memory."""


def observe(context: StageContext) -> None:
    """Put findings of the finished runs into findings.json. Raises OSError, InputError."""
    drop_findings(context.folder, RULES)
    for attempt in last_attempts(context.folder.attempts()):
        log = _finished_log(attempt)
        if log is None:
            continue
        series, _ = read_telemetry(attempt.telemetry, max_points=_ALL_POINTS)
        name = f"run {attempt.index}"
        for evidence in _evidence(log, series):
            where = f"{name}, {evidence.host}"
            put_finding(context.folder, evidence.rule, Severity.warning, f"{where}: {evidence.text}", file=where)
        found = _consistency(context, log, series)
        if found is not None:
            severity, text = _judged(found)
            put_finding(context.folder, "CONSISTENCY", severity, f"{name}, first epoch: {text}", file=name)


_ALL_POINTS = 1 << 30
"""Judged before thinning."""


def _finished_log(attempt: AttemptFolder) -> RunLog | None:
    try:
        log = read_log(attempt.mllog)
    except InputError:
        return None
    return log if log.run_start_ms is not None and log.run_stop_ms is not None else None


def _evidence(log: RunLog, series: Iterable[Series]) -> Iterator[Evidence]:
    for host, metrics in _within(series, log.run_start_ms or 0.0, log.run_stop_ms or 0.0).items():
        yield from findings_of_host(host, metrics)


def _within(series: Iterable[Series], start_ms: float, stop_ms: float) -> dict[str, dict[str, list[float]]]:
    """host -> metric -> values between two moments."""
    found: dict[str, dict[str, list[float]]] = {}
    for item in series:
        values = [
            value for time_ms, value in zip(item.times_ms, item.values, strict=True) if start_ms < time_ms <= stop_ms
        ]
        if len(values) >= _MIN_SAMPLES:
            found.setdefault(item.host, {})[item.metric] = values
    return found


def _consistency(context: StageContext, log: RunLog, series: Iterable[Series]) -> Consistency | None:
    mean_bytes = mean_image_bytes(context.plan.config.data)
    first = min(log.epochs, key=lambda span: span.start_ms, default=None)
    if mean_bytes is None or first is None or not log.train_samples or first.stop_ms <= first.start_ms:
        return None
    rates = [bytes_in_per_s(metrics) for metrics in _within(series, first.start_ms, first.stop_ms).values()]
    measured = [rate for rate in rates if rate is not None]
    return consistency(
        log.train_samples * first.num_epochs / (first.stop_ms - first.start_ms) * 1e3,
        mean_bytes,
        measured_bytes_per_s=sum(measured) if measured else None,
        ceiling_bytes_per_s=_ceiling(context.folder),
    )


def _ceiling(folder: RunFolder) -> float | None:
    """The storage stage's rate in the pattern of training, cold, over all hosts."""
    try:
        rows = load_rows(folder.storage) if folder.storage.is_file() else ()
    except InputError:
        return None
    rates = [
        row.bandwidth_bytes_per_s
        for row in rows
        if row.pattern == "training" and row.cache != "warm" and row.bandwidth_bytes_per_s is not None
    ]
    return max(rates, default=None)  # the sum over hosts is the largest


def _judged(found: Consistency) -> tuple[Severity, str]:
    expected = f"samples/s x mean image size is {found.expected_bytes_per_s / 1e6:,.2f} MB/s"
    parts = [expected]
    severity = Severity.note
    if found.measured_bytes_per_s is None:
        parts.append("what disks and networks moved was not measured")
    else:
        parts.append(f"disks and networks moved {found.measured_bytes_per_s / 1e6:,.2f} MB/s")
        if found.measured_bytes_per_s < found.expected_bytes_per_s * _TOO_LITTLE:
            severity = Severity.warning
            parts.append("the data came from memory, not from storage")
    share = found.share_of_ceiling
    if share is None:
        parts.append("the storage stage measured no ceiling")
    else:
        parts.append(f"{share:.1%} of what the storage stage measured in this pattern")
        if share > 1.05:
            severity = Severity.warning
    return severity, "; ".join(parts)
