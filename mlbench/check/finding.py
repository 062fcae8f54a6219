"""A finding: one rule, applied to one place, with its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    passed = "pass"
    failed = "fail"
    not_checked = "not_checked"


class Severity(Enum):
    """Only an `error` that failed, or was not checked, keeps a result from being compliant."""

    error = "error"
    warning = "warning"
    note = "note"


class Verdict(Enum):
    compliant = "compliant"
    not_compliant = "not_compliant"
    nothing_checked = "nothing_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line for the reader. `rule` is an id of docs/rules.md; `line` counts from 1 in `file`, which is relative
    to the folder that was checked."""

    rule: str
    status: Status
    severity: Severity
    file: str | None = None
    line: int | None = None
    found: str | None = None
    expected: str | None = None
    remedy: str | None = None


def verdict(findings: Sequence[Finding]) -> Verdict:
    """Fail closed: compliant only when something was checked and every applicable rule passed."""
    errors = [finding for finding in findings if finding.severity is Severity.error]
    if not any(finding.status is not Status.not_checked for finding in errors):
        return Verdict.nothing_checked
    if all(finding.status is Status.passed for finding in errors):
        return Verdict.compliant
    return Verdict.not_compliant
