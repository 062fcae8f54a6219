"""The four formats of a report; what machines read is compared whole."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlbench.check.checker import Report
from mlbench.check.finding import Finding, Severity, Status
from mlbench.check.formats import github_lines, json_value, junit_xml, sentence, summary, text_lines
from mlbench.check.locate import locate
from tests.support.run_logs import run_lines, write_log

FINDINGS = (
    Finding(rule="RUN-01", status=Status.passed, severity=Severity.error, file="a.txt"),
    Finding(
        rule="RUN-07",
        status=Status.failed,
        severity=Severity.error,
        file="a,b:c.txt",
        line=7,
        found="100% wrong\nreally",
        expected="right",
        remedy="mend it",
    ),
    Finding(rule="RUN-10", status=Status.not_checked, severity=Severity.error, file="a.txt", found="no init_stop"),
    Finding(rule="RUN-13", status=Status.failed, severity=Severity.warning, file="a.txt", found="warm \x1b[2J"),
    Finding(rule="PKG-09", status=Status.failed, severity=Severity.note, found="in force"),
)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    log = write_log(tmp_path / "results" / "a.txt", run_lines())
    subject = dataclasses.replace(locate(log), sets=[])
    return Report(subject=subject, findings=FINDINGS, sets=[])


def test_github_lines_are_workflow_commands_with_escapes(report: Report, tmp_path: Path) -> None:
    assert list(github_lines(report, tmp_path)) == [
        "::error file=results/a%2Cb%3Ac.txt,line=7,title=RUN-07::100%25 wrong really; expected right; mend it",
        "::error file=results/a.txt,title=RUN-10::not checked: no init_stop",
        "::warning file=results/a.txt,title=RUN-13::warm \x1b[2J",
        "::notice title=PKG-09::in force",
        "not compliant: 1 check passed, 1 failed, 1 could not be made, warnings: 1 (ruleset none)",
    ]


def test_junit_counts_failures_and_unchecked_rules(report: Report) -> None:
    root = ElementTree.fromstring(junit_xml(report))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "100% wrong really; expected right; mend it"
    last = root.findall("testsuite")[-1]
    assert (last.get("name"), last.get("failures")) == ("verdict", "1")


def test_junit_holds_no_control_characters(report: Report) -> None:
    assert "\x1b" not in junit_xml(report)
    assert r"warm \x1b[2J" in junit_xml(report)


def test_json_has_the_stable_keys(report: Report) -> None:
    value = json_value(report)
    assert {"verdict", "ruleset", "score_s", "findings"} <= set(value)
    assert list(value["findings"][1]) == [
        "rule", "status", "severity", "file", "line", "found", "expected", "remedy",
    ]  # fmt: skip
    assert value["findings"][1]["status"] == "fail"
    assert value["verdict"] == "not_compliant"
    json.dumps(value, allow_nan=False)


def test_text_counts_passes_and_ends_with_the_verdict(report: Report) -> None:
    lines = [text for text, _ in text_lines(report)]
    assert lines[-1] == summary(report)
    assert lines[-1].startswith("not compliant")


def test_sentence_of_a_note_gives_no_advice() -> None:
    note = Finding(rule="X", status=Status.failed, severity=Severity.note, found="a", expected="b", remedy="c")
    assert sentence(note) == "a; expected b"
