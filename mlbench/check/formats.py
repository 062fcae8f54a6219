"""A report as text for people, and as JSON, JUnit XML or workflow commands for machines. All are pure functions.

Text from logs and file names is escaped by whoever prints it (cli/console.py), except where a format has rules of its
own, which are kept here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from mlbench.check.checker import Report, SetReport
from mlbench.check.finding import Finding, Severity, Status, Verdict
from mlbench.wording import count_of

_WORDS = {
    Verdict.compliant: "compliant",
    Verdict.not_compliant: "not compliant",
    Verdict.nothing_checked: "nothing checked",
}


class Format(Enum):
    text = "text"
    json = "json"
    junit = "junit"
    github = "github"


def is_shown(finding: Finding) -> bool:
    """Whether a finding has a line of its own; passes are counted."""
    return finding.status is not Status.passed


def place(finding: Finding) -> str:
    if finding.file is None:
        return ""
    return f"{finding.file}:{finding.line}" if finding.line is not None else finding.file


def sentence(finding: Finding) -> str:
    """What was found, what was expected, what to do."""
    parts = [finding.found or "no reason given"]
    if finding.expected:
        parts.append(f"expected {finding.expected}")
    if finding.remedy and finding.severity is not Severity.note:
        parts.append(finding.remedy)
    return "; ".join(part.replace("\n", " ") for part in parts)


def summary(report: Report) -> str:
    """The last line: the verdict and what it rests on."""
    errors = [item for item in report.findings if item.severity is Severity.error]
    passed = sum(item.status is Status.passed for item in errors)
    failed = sum(item.status is Status.failed for item in errors)
    unchecked = sum(item.status is Status.not_checked for item in errors)
    warnings = sum(item.severity is Severity.warning and is_shown(item) for item in report.findings)
    rulesets = ", ".join(report.rulesets) or "none"
    counts = f"{count_of(passed, 'check')} passed, {failed} failed, {unchecked} could not be made, warnings: {warnings}"
    return f"{_WORDS[report.verdict]}: {counts} (ruleset {rulesets})"


def text_lines(report: Report) -> Iterator[tuple[str, Severity | None]]:
    """Lines for people, each with the severity that colours it."""
    for item in report.sets:
        yield from _set_lines(item, report)
    elsewhere = [item for item in report.findings if not _belongs(item, report.sets)]
    if any(is_shown(item) for item in elsewhere) or (elsewhere and report.subject.trees):
        yield "submission tree", None
        yield from _finding_lines(elsewhere)
        yield "", None
    if not report.sets:
        yield "no MLLOG log was found", None
    yield summary(report), None


def _set_lines(item: SetReport, report: Report) -> Iterator[tuple[str, Severity | None]]:
    own = [finding for finding in report.findings if _set_of(finding, report.sets) is item]
    what = item.item
    total = len(what.logs) + item.judged.num_missing
    head = f"{what.name}: {what.benchmark or 'unknown benchmark'}, {what.division or 'no'} division"
    yield f"{head}, ruleset {what.ruleset}, {total - item.judged.num_lost} of {total} converged", None
    yield from _finding_lines(own)
    if item.score is not None:
        yield f"  score: {score_text(item)}", None
    if item.own is Verdict.nothing_checked and what.own is not None:
        yield f"  no rules of MLPerf speak of {what.own.identity.benchmark}", None
    official = _WORDS[item.official] if item.official is not None else "not asked"
    yield f"  mlperf_logging: {official}; mlbench: {_WORDS[item.own]}", None
    if item.difference:
        yield f"  they differ: {item.difference}", None
    yield "", None


def score_text(item: SetReport) -> str:
    score = item.score
    if score is None:
        return "none"
    if score.score_s is not None:
        return f"{score.score_s / 60:.5f} min ({score.formula})"
    return f"none, {score.score_status.value}: {score.score_reason} ({score.formula})"


def _finding_lines(findings: Sequence[Finding]) -> Iterator[tuple[str, Severity | None]]:
    order = {Severity.error: 0, Severity.warning: 1, Severity.note: 2}
    for finding in sorted((item for item in findings if is_shown(item)), key=lambda item: order[item.severity]):
        word = finding.severity.value if finding.status is Status.failed else f"{finding.severity.value}, not checked"
        where = place(finding)
        yield f"  {where}{': ' if where else ''}{finding.rule} {word}: {sentence(finding)}", finding.severity
    counts = Counter(finding.rule for finding in findings if finding.status is Status.passed)
    if counts:
        passed = ", ".join(rule if count == 1 else f"{rule} x{count}" for rule, count in sorted(counts.items()))
        yield f"  passed: {passed}", None


def _set_of(finding: Finding, sets: Sequence[SetReport]) -> SetReport | None:
    """The set that a finding speaks of: by its files, by its folder, or by its system description."""
    for item in sets:
        what = item.item
        names = {what.name, what.description_expected, *(file.name for file in what.logs), *what.unread}
        if what.own is not None:
            names |= {"run_set.json", *what.own.stray_names, *(run.name for run in what.own.runs.values())}
        if finding.file in names and not finding.rule.startswith("PKG-"):
            return item
    return None


def _belongs(finding: Finding, sets: Sequence[SetReport]) -> bool:
    return _set_of(finding, sets) is not None


def json_value(report: Report) -> dict[str, Any]:
    """Stable keys: those of the design, and beside them each set with both verdicts."""
    rulesets = report.rulesets
    return {
        "verdict": report.verdict.value,
        "ruleset": rulesets[0] if len(rulesets) == 1 else (", ".join(rulesets) or None),
        "score_s": report.score_s,
        "official_verdict": report.official.value,
        "own_verdict": report.own.value,
        "sets": [_set_value(item) for item in report.sets],
        "findings": [
            {
                "rule": item.rule,
                "status": item.status.value,
                "severity": item.severity.value,
                "file": item.file,
                "line": item.line,
                "found": item.found,
                "expected": item.expected,
                "remedy": item.remedy,
            }
            for item in report.findings
        ],
    }


def _set_value(item: SetReport) -> dict[str, Any]:
    score = item.score
    return {
        "name": item.item.name,
        "ruleset": item.item.ruleset,
        "benchmark": item.item.benchmark,
        "division": item.item.division,
        "num_runs": len(item.item.logs) + item.judged.num_missing,
        "num_converged": len(item.item.logs) + item.judged.num_missing - item.judged.num_lost,
        "score_s": score.score_s if score is not None else None,
        "score_status": score.score_status.value if score is not None else None,
        "score_reason": score.score_reason if score is not None else None,
        "olympic_mean_s": score.olympic_mean_s if score is not None else None,
        "rcp_factor": item.judged.rcp.factor if item.judged.rcp is not None else None,
        "official_verdict": item.official.value if item.official is not None else None,
        "own_verdict": item.own.value,
        "difference": item.difference,
    }


def github_lines(report: Report, start: Path) -> Iterator[str]:
    """Workflow commands of GitHub Actions; paths are relative to `start`, the checked-out folder.

    Source: docs.github.com, workflow commands for GitHub Actions (`%`, CR and LF are escaped, in properties also `:`
    and `,`).
    """
    base = report.subject.root if report.subject.root.is_dir() else report.subject.root.parent
    commands = {Severity.error: "error", Severity.warning: "warning", Severity.note: "notice"}
    for finding in report.findings:
        if not is_shown(finding):
            continue
        properties = [f"title={_property(finding.rule)}"]
        if finding.line is not None:
            properties.insert(0, f"line={finding.line}")
        if finding.file is not None:
            path = os.path.relpath(base / finding.file, start).replace(os.sep, "/")
            properties.insert(0, f"file={_property(path)}")
        prefix = "not checked: " if finding.status is Status.not_checked else ""
        yield f"::{commands[finding.severity]} {','.join(properties)}::{_data(prefix + sentence(finding))}"
    yield summary(report)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit_xml(report: Report) -> str:
    """One test case for a rule on a file. Errors that failed are failures, those not checked are errors; warnings and
    notes stand in the output of their case."""
    root = ElementTree.Element("testsuites", name="mlbench check")
    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        owner = _set_of(finding, report.sets)
        groups.setdefault(owner.item.name if owner is not None else "submission tree", []).append(finding)
    for name, findings in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(name), tests=str(len(findings)))
        blocking = [item for item in findings if item.severity is Severity.error]
        suite.set("failures", str(sum(item.status is Status.failed for item in blocking)))
        suite.set("errors", str(sum(item.status is Status.not_checked for item in blocking)))
        for finding in findings:
            _junit_case(suite, finding)
    verdict_suite = ElementTree.SubElement(root, "testsuite", name="verdict", tests="1", errors="0")
    case = ElementTree.SubElement(verdict_suite, "testcase", classname="mlbench", name="verdict")
    good = report.verdict is Verdict.compliant
    verdict_suite.set("failures", "0" if good else "1")
    if not good:
        ElementTree.SubElement(case, "failure", message=_xml(summary(report)))
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(summary(report))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _junit_case(suite: ElementTree.Element, finding: Finding) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=finding.rule, name=_xml(place(finding) or finding.rule))
    if not is_shown(finding):
        return
    text = _xml(sentence(finding))
    if finding.severity is not Severity.error:
        ElementTree.SubElement(case, "system-out").text = f"{finding.severity.value}: {text}"
    elif finding.status is Status.failed:
        ElementTree.SubElement(case, "failure", message=text)
    else:
        ElementTree.SubElement(case, "error", message=text)


def _xml(text: str) -> str:
    """XML 1.0 cannot hold most control characters, not even escaped."""
    return "".join(
        letter
        if letter in "\t\n" or letter.isprintable()
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )
