"""What mlperf_logging says, as findings, so that one list holds every verdict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlbench.check.finding import Finding, Severity, Status
from mlbench.check.official import Message, OfficialReport, RecordFinder, Step
from mlbench.check.rule import Rule
from mlbench.check.subject import ResultSet

COMPLIANCE, SEEDS, SYSTEM, RCP, PACKAGE = "OFF-01", "OFF-02", "OFF-03", "OFF-04", "OFF-05"


def _never(_: object) -> Iterable[object]:
    """Official rules are not functions of ours; `official_findings` fills them."""
    return ()


OFFICIAL_RULES: tuple[Rule[object], ...] = (
    Rule(id=COMPLIANCE, title="Official compliance checker, each log", severity=Severity.error,
         source="mlperf_logging compliance_checker", remedy="log what the rule file of the ruleset asks", check=_never,  # type: ignore[arg-type]
         excused=True),
    Rule(id=SEEDS, title="Official seed checker", severity=Severity.error, source="mlperf_logging seed_checker",
         remedy="draw a fresh seed for each run and log it with MLLOG", check=_never),  # type: ignore[arg-type]
    Rule(id=SYSTEM, title="Official system description checker", severity=Severity.error,
         source="mlperf_logging system_desc_checker (a warning before 1.0.0, where package_checker does not call it)",
         remedy="see the findings of SYS rules", check=_never),  # type: ignore[arg-type]
    Rule(id=RCP, title="Official RCP test", severity=Severity.error, source="mlperf_logging rcp_checker",
         remedy="see the finding of SET-09", check=_never),  # type: ignore[arg-type]
    Rule(id=PACKAGE, title="Official package checker", severity=Severity.error,
         source="mlperf_logging package_checker, judged by its log", remedy="see the findings above", check=_never),  # type: ignore[arg-type]
)  # fmt: skip
_BY_ID = {rule.id: rule for rule in OFFICIAL_RULES}


def official_findings(item: ResultSet, report: OfficialReport, *, softened: bool) -> list[Finding]:
    """Findings of one set.

    Args: softened: the official system description check is a warning here, as nobody calls it in this round.
    """
    findings: list[Finding] = []
    for file, step in zip(item.logs, report.logs, strict=True):
        findings += _step(COMPLIANCE, step, file.name, file.path)
    findings += _whole(SEEDS, report.seeds, item)
    system_file = item.description.name if item.description is not None else None
    if report.system is not None:
        severity = Severity.warning if softened else None
        findings += _step(SYSTEM, report.system, system_file, None, severity=severity)
    findings += _whole(RCP, report.rcp, item)
    if report.package is not None:
        findings += _step(PACKAGE, report.package, item.name, None)
        findings += [
            _finding(PACKAGE, Status.failed, Message(text), item.name, None, Severity.note)
            for text in report.package_warnings
        ]
    return findings


def _whole(rule: str, step: Step | None, item: ResultSet) -> list[Finding]:
    return [] if step is None else _step(rule, step, item.name, None)


def _step(
    rule: str, step: Step, file: str | None, path: Path | None, *, severity: Severity | None = None
) -> list[Finding]:
    severity = severity or _BY_ID[rule].severity
    if step.ok is None:
        message = Message(f"official checker crashed: {step.crash or 'it gave no answer'}")
        return [_finding(rule, Status.not_checked, message, file, None, severity)]
    finder = RecordFinder(path) if path is not None else None
    located = [
        (message, finder.line(message.record) if finder is not None and message.record else None)
        for message in step.messages
    ]
    if step.ok:
        what = located.pop(0)[0].text if rule == RCP and located else None
        passed = Finding(rule=rule, status=Status.passed, severity=severity, file=file, found=what)
        return [
            passed,
            *[_finding(rule, Status.failed, message, file, line, Severity.note) for message, line in located],
        ]
    if not located:
        located = [(Message("it says no, without a reason"), None)]
    return [_finding(rule, Status.failed, message, file, line, severity) for message, line in located]


def _finding(
    rule: str, status: Status, message: Message, file: str | None, line: int | None, severity: Severity
) -> Finding:
    return Finding(
        rule=rule,
        status=status,
        severity=severity,
        file=file,
        line=line,
        found=message.text,
        expected=None if severity is Severity.note else "no complaint",
        remedy=_BY_ID[rule].remedy,
    )
