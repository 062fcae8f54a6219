"""The seam to mlperf_logging: crashes, time-outs, limits, and messages in short."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from mlbench.check import official
from mlbench.check.official import Message, OfficialChecks, OfficialInput, OfficialReport, RecordFinder, Step, summaries
from tests.support.run_logs import run_lines, write_log
from tests.support.submissions import lab, results

RECORD = ':::MLLOG {"key": "global_batch_size", "value": -1}'


def given(submitter: Path, **changes: object) -> OfficialInput:
    values = {
        "ruleset": "4.0.0",
        "benchmark": "resnet",
        "system": "sysA",
        "logs": sorted(results(submitter).glob("result_*.txt")),
        "description": submitter / "systems" / "sysA.json",
        "seeds": True,
        "rcp": True,
        **changes,
    }
    return OfficialInput(**values)  # type: ignore[arg-type]


def ask(item: OfficialInput, **settings: float) -> OfficialReport:
    with OfficialChecks([item], **settings) as checks:
        checks.start()
        return checks.reports()[0]


def assert_nothing_passed(report: OfficialReport, reason: str) -> None:
    steps = [*report.logs, report.system, report.seeds, report.rcp, report.package]
    assert all(step is not None and step.ok is None and reason in (step.crash or "") for step in steps)
    assert not report.passed


@pytest.mark.slow
def test_official_checks_that_take_too_long_are_no_pass(tmp_path: Path) -> None:
    assert_nothing_passed(ask(given(lab(tmp_path)), timeout_s=0.01), "did not end within 0 s")


@pytest.mark.slow
def test_official_process_that_dies_is_no_pass_and_its_last_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "yaml.py").write_text("raise RuntimeError('no yaml today')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    assert_nothing_passed(ask(given(lab(tmp_path))), "RuntimeError: no yaml today")


@pytest.mark.slow
def test_official_log_over_the_limit_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitter = lab(tmp_path)
    with (results(submitter) / "result_1.txt").open("a", encoding="utf-8") as stream:
        stream.write("x" * 100_000 + "\n")
    monkeypatch.setattr(official, "MAX_LOG_BYTES", 90_000)
    report = ask(given(submitter))
    assert [step.ok for step in report.logs] == [True, None, True, True, True]
    assert report.package is not None
    assert report.package.ok is None
    assert not report.passed


@pytest.mark.slow
def test_official_checks_leave_no_copy_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    report = ask(given(lab(tmp_path)))
    assert report.passed
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_official_checks_take_names_that_its_patterns_would_not(tmp_path: Path) -> None:
    """The official tool puts folder names into glob patterns."""
    report = ask(given(lab(tmp_path), system="a[b]*c d"))
    assert report.passed
    assert all(step.ok for step in report.logs)


@pytest.mark.slow
def test_official_checks_of_several_sets_do_not_mix(tmp_path: Path) -> None:
    good, bad = given(lab(tmp_path / "good")), given(lab(tmp_path / "bad", accuracy=0.7))
    with OfficialChecks([bad, good, bad]) as checks:
        checks.start()
        assert [report.passed for report in checks.reports()] == [False, True, False]


@pytest.mark.parametrize(
    ("steps", "passed"),
    [
        ([True] * 5, True),
        ([True] * 4 + [False], True),  # package_checker accepts one file of a set under olympic scoring
        ([True] * 3 + [False] * 2, False),
        ([True] * 4 + [None], True),
        ([False], False),
        ([], False),
    ],
)
def test_official_verdict_without_a_package_is_that_of_its_logs(steps: list[bool | None], passed: bool) -> None:
    assert OfficialReport(logs=tuple(Step(ok) for ok in steps)).passed is passed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"CHECK for 'global_batch_size' failed in line 3:\n{RECORD}\nfailed test:  v['value'] > 0\ncurrent context",
            [Message("global_batch_size: failed test v['value'] > 0", RECORD)],
        ),
        (
            f"Failed executing CHECK code:\n v['x'] \ntriggered by line:\n{RECORD}",
            [Message("rule could not be evaluated: v['x']", RECORD)],
        ),
        (
            "Required EXACTLY_ONE occurrence of 'seed' but found 0\n" + "-" * 30 + "\nNo log lines detected",
            [Message("Required EXACTLY_ONE occurrence of 'seed' but found 0"), Message("No log lines detected")],
        ),
        ("failed test: s['a']\ncurrent context[s]={}", [Message("failed test s['a']")]),
        (RECORD, [Message("record cannot be parsed", RECORD)]),
        ("", []),
    ],
)
def test_summaries_keep_the_complaint_and_leave_the_dump(text: str, expected: list[Message]) -> None:
    assert summaries(text) == expected


def test_record_finder_gives_the_line_in_the_file(tmp_path: Path) -> None:
    lines = run_lines()
    log = write_log(tmp_path / "a.txt", ["text", *lines[:3], "prefix " + lines[3]])
    finder = RecordFinder(log)
    assert finder.line(lines[2]) == 4
    assert finder.line(lines[3]) == 5
    assert finder.line(RECORD) is None
