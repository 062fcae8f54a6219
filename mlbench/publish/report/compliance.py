"""The verdict of `mlbench check` on the files of a run set, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlbench.check.checker import check
from mlbench.check.finding import Finding, Severity, Status, Verdict
from mlbench.errors import InputError
from mlbench.publish.report.blocks import Tone
from mlbench.store.tables import RunSet
from mlbench.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Compliance:
    """`verdict` is None when nothing was checked; `sentence` says why. `findings` are those that did not pass."""

    verdict: Verdict | None
    sentence: str
    findings: tuple[Finding, ...] = ()

    @property
    def tone(self) -> Tone:
        if self.verdict is Verdict.compliant:
            return Tone.good
        return Tone.bad if self.verdict is Verdict.not_compliant else Tone.warn


def not_checked(reason: str) -> Compliance:
    return Compliance(verdict=None, sentence=f"Compliance not checked: {reason}.")


def compliance_of(run_set: RunSet) -> Compliance:
    """Check the files of a run set against its ruleset. Never raises: what cannot be checked is said."""
    if run_set.rehearsal:
        return not_checked("a rehearsal is not a result")
    if run_set.path is None or not Path(run_set.path).exists():
        return not_checked("the files of this run set are not here")
    try:
        found = check(Path(run_set.path), ruleset=run_set.ruleset)
    except InputError as error:
        return not_checked(str(error))
    ruleset = ", ".join(found.rulesets) or run_set.ruleset or "unknown"
    failed = [finding for finding in found.findings if finding.status is Status.failed]
    errors = sum(finding.severity is Severity.error for finding in failed)
    words = {
        Verdict.compliant: f"Compliant with ruleset {ruleset}",
        Verdict.not_compliant: f"NOT compliant with ruleset {ruleset}: {count_of(errors, 'check')} failed",
        Verdict.nothing_checked: "Compliance not checked: nothing applied",
    }
    warnings = len(failed) - errors
    more = f", {count_of(warnings, 'warning')}" if warnings else ""
    shown = tuple(finding for finding in found.findings if finding.status is not Status.passed)
    return Compliance(verdict=found.verdict, sentence=f"{words[found.verdict]}{more}.", findings=shown)
