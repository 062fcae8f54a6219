"""What a rule is, and how its outcomes become findings.

A rule is one function over one thing: a run, a run set, a system description or a submission tree. It yields a
`Problem` for each fault it sees and an `Unknown` where there is nothing to judge by. It yields nothing when all is
well, and raises `NotApplicable` when it does not apply. Silence is only a pass because every rule has a test that
makes it speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mlbench.analyse.score import Target
from mlbench.check.finding import Finding, Severity, Status
from mlbench.check.subject import LogFile, ResultSet

T = TypeVar("T")


class NotApplicable(Exception):
    """The rule says nothing about this thing; there is no finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault. `severity` and `remedy` are the rule's unless given; `file` is that of the thing unless given."""

    found: str
    expected: str
    line: int | None = None
    file: str | None = None
    severity: Severity | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """There is nothing to judge by, which is not a pass."""

    reason: str
    expected: str | None = None
    severity: Severity | None = None


Outcome = Problem | Unknown


def logged_problem(file: LogFile, key: str, *, found: str, expected: str) -> Problem:
    """A fault in what a log says under `key`, at the line of its first record."""
    record = file.records.first(key)
    return Problem(found=found, expected=expected, file=file.name, line=record.line if record is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One log, in its set."""

    file: LogFile
    parent: ResultSet
    target: Target | None
    why_lost: str | None
    """None when the run converged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[T]):
    """One rule with its reason and its remedy; `check` yields what is wrong with a thing of kind T."""

    id: str
    title: str
    severity: Severity
    source: str
    """Where the rule comes from: a rule file of mlperf_logging, the training rules, or mlbench's own."""
    remedy: str
    check: Callable[[T], Iterable[Outcome]]
    excused: bool = False
    """The one run that a set may lose is allowed to break this rule: it is the slowest then, not a fault."""


def apply(rule: Rule[T], thing: T, file: str | None) -> list[Finding]:
    """The findings of one rule on one thing; a pass is a finding too, so that it can be counted."""
    try:
        outcomes = list(rule.check(thing))
    except NotApplicable:
        return []
    if not outcomes:
        return [Finding(rule=rule.id, status=Status.passed, severity=rule.severity, file=file)]
    return [_finding(rule, outcome, file) for outcome in outcomes]


def _finding(rule: Rule[Any], outcome: Outcome, file: str | None) -> Finding:
    severity = outcome.severity or rule.severity
    if isinstance(outcome, Unknown):
        return Finding(
            rule=rule.id,
            status=Status.not_checked,
            severity=severity,
            file=file,
            found=outcome.reason,
            expected=outcome.expected,
            remedy=rule.remedy,
        )
    return Finding(
        rule=rule.id,
        status=Status.failed,
        severity=severity,
        file=outcome.file or file,
        line=outcome.line,
        found=outcome.found,
        expected=outcome.expected,
        remedy=outcome.remedy or rule.remedy,
    )


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Names for one line: the first few, and how many more."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
