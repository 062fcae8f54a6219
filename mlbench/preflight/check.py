"""One preflight check, and what to do with many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mlbench.errors import PreflightError


class Outcome(Enum):
    passed = "pass"
    failed = "fail"
    not_checked = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`found` says what was seen; `remedy` what to do when it failed, or what is lost when it was not checked.

    Only a check that is `required` keeps a run from starting; the others cost a measurement, which is said."""

    name: str
    outcome: Outcome
    found: str
    remedy: str | None = None
    required: bool = True


def passed(name: str, found: str, *, required: bool = True) -> Check:
    return Check(name=name, outcome=Outcome.passed, found=found, required=required)


def failed(name: str, found: str, remedy: str, *, required: bool = True) -> Check:
    return Check(name=name, outcome=Outcome.failed, found=found, remedy=remedy, required=required)


def not_checked(name: str, found: str, remedy: str | None = None, *, required: bool = True) -> Check:
    return Check(name=name, outcome=Outcome.not_checked, found=found, remedy=remedy, required=required)


def require(checks: Sequence[Check]) -> None:
    """Raise PreflightError with the first required check that failed; the others are counted, `doctor` shows them."""
    faults = [check for check in checks if check.required and check.outcome is Outcome.failed]
    if not faults:
        return
    first = faults[0]
    more = f" ({len(faults) - 1} more; see mlbench doctor)" if len(faults) > 1 else ""
    raise PreflightError(f"{first.found}; {first.remedy}{more}")
