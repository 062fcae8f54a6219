"""The official compliance checker over the logs of a run set that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlbench.check.finding import Finding, Severity, Status, Verdict
from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder, last_attempts
from mlbench.errors import MlbenchError
from mlbench.runner.outcome import Official

if TYPE_CHECKING:
    from mlbench.check.official import OfficialReport, Step

RULE = "OFFICIAL"


def official_verdict(folder: RunFolder, identity: RunSetFile) -> Official:
    """What mlperf_logging says of the run set, or why it was not asked. Never raises for what the logs hold."""
    ruleset = identity.ruleset
    if identity.rehearsal:
        return Official(verdict=None, ruleset=ruleset, reason="a rehearsal is not a result")
    if identity.mlperf_name is None:
        return Official(
            verdict=None, ruleset=ruleset, reason=f"{identity.benchmark} is not a benchmark of the MLPerf rules"
        )
    logs = [item.mllog for item in last_attempts(folder.attempts()) if item.mllog.is_file()]
    if not logs:
        return Official(verdict=None, ruleset=ruleset, reason="there is no log to check")
    try:
        report = _ask(identity, logs)
    except (OSError, MlbenchError) as error:
        return Official(verdict=None, ruleset=ruleset, reason=f"the checker could not be asked: {error}")
    findings = tuple(
        finding
        for path, step in zip(logs, report.logs, strict=True)
        for finding in _findings(str(path.relative_to(folder.path)), step)
    )
    if any(step.ok is None for step in report.logs):
        crash = next((step.crash for step in report.logs if step.ok is None), None)
        return Official(verdict=None, ruleset=ruleset, findings=findings, reason=crash or "it gave no answer")
    passed = report.passed
    return Official(verdict=Verdict.compliant if passed else Verdict.not_compliant, ruleset=ruleset, findings=findings)


def _ask(identity: RunSetFile, logs: list[Path]) -> OfficialReport:
    # The checker starts a process of its own and is needed only here, at the end.
    from mlbench.check.official import OfficialChecks, OfficialInput

    item = OfficialInput(
        ruleset=identity.ruleset,
        benchmark=identity.mlperf_name or identity.benchmark,
        system=identity.system_name,
        logs=logs,
        description=None,
    )
    with OfficialChecks([item]) as checks:
        checks.start()
        return checks.reports()[0]


def _findings(file: str, step: Step) -> list[Finding]:
    if step.ok:
        return [Finding(rule=RULE, status=Status.passed, severity=Severity.error, file=file)]
    status = Status.not_checked if step.ok is None else Status.failed
    texts = [message.text for message in step.messages] or [step.crash or "no reason given"]
    return [Finding(rule=RULE, status=status, severity=Severity.error, file=file, found=text) for text in texts]
