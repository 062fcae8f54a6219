"""Everything that `mlbench check` does: find, read, apply the rules, ask mlperf_logging, come to a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlbench.analyse.score import RunSetScore
from mlbench.check import rcp
from mlbench.check.finding import Finding, Severity, Status, Verdict, verdict
from mlbench.check.judgement import Judged, judge, score
from mlbench.check.locate import locate
from mlbench.check.official import OfficialChecks, OfficialInput, OfficialReport
from mlbench.check.official_rules import COMPLIANCE, OFFICIAL_RULES, official_findings
from mlbench.check.own_rules import OWN_RULES
from mlbench.check.package_rules import PACKAGE_RULES
from mlbench.check.rule import Rule, RunContext, apply
from mlbench.check.rulesets import at_least, checks_seeds, knows, max_lost_runs
from mlbench.check.run_claim_rules import CLAIM_RULES
from mlbench.check.run_log_rules import LOG_RULES
from mlbench.check.set_rules import SET_RULES, SetContext
from mlbench.check.subject import Kind, ResultSet, Subject
from mlbench.check.system_rules import FIRST_CHECKED, SYSTEM_RULES
from mlbench.choices import BenchmarkKind

RUN_RULES: tuple[Rule[RunContext], ...] = tuple(sorted((*LOG_RULES, *CLAIM_RULES), key=lambda rule: rule.id))
ALL_RULES: tuple[Rule[Any], ...] = (
    *RUN_RULES, *SET_RULES, *OWN_RULES, *SYSTEM_RULES, *PACKAGE_RULES, *OFFICIAL_RULES,
)  # fmt: skip
_EXCUSED = {rule.id for rule in ALL_RULES if rule.excused}
_EXCUSE = "one run may be lost: it counts as the slowest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """One set of logs. `official` is None when mlperf_logging has nothing to say on this benchmark and ruleset."""

    item: ResultSet
    judged: Judged
    own: Verdict
    official: Verdict | None
    score: RunSetScore | None
    difference: str | None
    """Why the two verdicts differ; None when they agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings of one call, and what they come to."""

    subject: Subject
    findings: Sequence[Finding]
    sets: Sequence[SetReport]

    @property
    def verdict(self) -> Verdict:
        return verdict(self.findings)

    @property
    def own(self) -> Verdict:
        return verdict([finding for finding in self.findings if not finding.rule.startswith("OFF-")])

    @property
    def official(self) -> Verdict:
        """mlperf_logging's, over all sets: compliant only where it passed each of them."""
        asked = [item.official for item in self.sets]
        if not asked or all(answer is None for answer in asked):
            return Verdict.nothing_checked
        good = all(answer is Verdict.compliant for answer in asked)
        return Verdict.compliant if good else Verdict.not_compliant

    @property
    def rulesets(self) -> list[str]:
        return sorted({item.item.ruleset for item in self.sets})

    @property
    def score_s(self) -> float | None:
        """Of the one set there is; None when there are several, or it has no score."""
        scores = [item.score for item in self.sets]
        return scores[0].score_s if len(scores) == 1 and scores[0] is not None else None


def check(path: Path, *, ruleset: str | None = None, division: str | None = None) -> Report:
    """Check everything below a path; nothing in it is written.

    Args:
        ruleset: a known ruleset for all of it; None: each run set's own, or the round of the tree, else 4.0.0.
        division: the division that the results must be of; None: the one they log.
    Raises: InputError: the path cannot be read.
    """
    subject = locate(path, ruleset)
    asked = [item for item in subject.sets if _is_asked(item)]
    with OfficialChecks([_official_input(item) for item in asked]) as official:
        if asked:
            official.start()
        judged = [judge(item) for item in subject.sets]
        own = [_own_findings(item, verdicts, division) for item, verdicts in zip(subject.sets, judged, strict=True)]
        trees = [
            finding for tree in subject.trees for rule in PACKAGE_RULES for finding in apply(rule, tree, tree.name)
        ]
        reports = dict(zip((item.name for item in asked), official.reports(), strict=True)) if asked else {}
    findings: list[Finding] = []
    sets: list[SetReport] = []
    for item, verdicts, ours in zip(subject.sets, judged, own, strict=True):
        report = reports.get(item.name)
        theirs = _theirs(item, report)
        excused = _excuse(item, verdicts, [*ours, *theirs], report)
        findings += excused
        sets.append(_set_report(item, verdicts, excused, report))
    return Report(subject=subject, findings=[*findings, *trees], sets=sets)


def broken_rules(path: Path) -> list[str]:
    """Ids of our own rules that the run set of mlbench in `path` breaks under its own ruleset; mlperf_logging is not
    asked, which takes a second. Raises InputError: it cannot be read."""
    broken: set[str] = set()
    for item in locate(path, None).sets:
        judged = judge(item)
        broken |= _broken(_excuse(item, judged, _own_findings(item, judged, None), None))
    return sorted(broken)


def _broken(findings: Sequence[Finding]) -> set[str]:
    return {item.rule for item in findings if item.severity is Severity.error and item.status is Status.failed}


def _is_asked(item: ResultSet) -> bool:
    """Whether mlperf_logging has rules for it."""
    return bool(item.logs and item.benchmark and knows(item.ruleset, item.benchmark) and _is_result(item))


def _official_input(item: ResultSet) -> OfficialInput:
    return OfficialInput(
        ruleset=item.ruleset,
        benchmark=item.benchmark or "",
        system=item.system or "system",
        logs=[file.path for file in item.logs],
        description=item.description.path if item.description is not None else None,
        other_names=item.other_names if item.kind is Kind.tree else (),
        seeds=item.scored and checks_seeds(item.ruleset, item.division),
        rcp=item.scored and rcp.applies(item.ruleset, item.division),
    )


def _is_result(item: ResultSet) -> bool:
    """Whether the rules of MLPerf speak of it: not of throughput runs, nor of storage or all-reduce alone."""
    if item.own is None:
        return True
    identity = item.own.identity
    return identity.mlperf_name is not None and identity.benchmark_kind == BenchmarkKind.train.value


def _own_findings(item: ResultSet, judged: Judged, division: str | None) -> list[Finding]:
    findings: list[Finding] = []
    if not _is_result(item):
        return findings
    for file, target, why_lost in zip(item.logs, judged.targets, judged.why_lost, strict=True):
        run = RunContext(file=file, parent=item, target=target, why_lost=why_lost)
        for rule in RUN_RULES:
            findings += apply(rule, run, file.name)
    if item.scored:
        context = SetContext(item=item, judged=judged, division=division)
        for set_rule in SET_RULES:
            findings += apply(set_rule, context, item.name)
    if item.own is not None:
        for own_rule in OWN_RULES:
            findings += apply(own_rule, item, item.name)
    if item.kind is Kind.tree:
        for system_rule in SYSTEM_RULES:
            findings += apply(system_rule, item, item.description_expected)
    return findings


def _theirs(item: ResultSet, report: OfficialReport | None) -> list[Finding]:
    if report is None:
        return []
    return official_findings(item, report, softened=not at_least(item.ruleset, FIRST_CHECKED))


def _excuse(
    item: ResultSet, judged: Judged, findings: Sequence[Finding], report: OfficialReport | None
) -> list[Finding]:
    """Faults of the one run that a set may lose are warnings."""
    names: set[str] = set()
    official_only: set[str] = set()
    if item.scored and judged.may_lose(item.benchmark):
        names = {file.name for file, reason in zip(item.logs, judged.why_lost, strict=True) if reason is not None}
        if item.own is not None:
            names |= {run.name for run in item.own.runs.values() if not run.has_log}
            names |= {
                run.name for run in item.own.runs.values() if any(name.startswith(f"{run.name}/") for name in names)
            }
    if report is not None and report.passed:
        failed = [file.name for file, step in zip(item.logs, report.logs, strict=True) if step.ok is not True]
        if len(failed) <= max_lost_runs(item.benchmark or ""):
            official_only = set(failed)
    return [
        replace(finding, severity=Severity.warning, remedy=_EXCUSE)
        if finding.severity is Severity.error
        and finding.status is not Status.passed
        and (
            (finding.rule in _EXCUSED and finding.file in names)
            or (finding.rule == COMPLIANCE and finding.file in official_only)
        )
        else finding
        for finding in findings
    ]


def _set_report(
    item: ResultSet, judged: Judged, findings: Sequence[Finding], report: OfficialReport | None
) -> SetReport:
    ours = [finding for finding in findings if not finding.rule.startswith("OFF-")]
    broken = sorted(_broken(ours))
    own = verdict(ours)
    official: Verdict | None = None
    if report is not None:
        official = Verdict.compliant if report.passed else Verdict.not_compliant
    return SetReport(
        item=item,
        judged=judged,
        own=own,
        official=official,
        score=score(item, judged, [f"broken: {', '.join(broken)}"] if broken else []),
        difference=_difference(own, official, ours, [finding for finding in findings if finding not in ours]),
    )


def _difference(
    own: Verdict, official: Verdict | None, ours: Sequence[Finding], theirs: Sequence[Finding]
) -> str | None:
    """Why the two do not agree, in one sentence."""
    if official is None or official is own:
        return None
    if official is Verdict.compliant:
        rules = sorted({finding.rule for finding in _blocking(ours)})
        return f"mlperf_logging does not look at what {', '.join(rules)} found"
    reasons = [f"{finding.rule}: {finding.found}" for finding in _blocking(theirs)]
    return f"only mlperf_logging refuses it ({'; '.join(reasons[:3])})"


def _blocking(findings: Sequence[Finding]) -> list[Finding]:
    return [item for item in findings if item.severity is Severity.error and item.status is not Status.passed]
