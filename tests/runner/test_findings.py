"""findings.json: added, replaced, taken back, never half written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.check.finding import Severity
from mlbench.collect.runfolder import RunFolder
from mlbench.errors import InputError
from mlbench.runner.findings import drop_findings, put_finding, read_findings


def test_put_finding_replaces_the_one_of_the_same_rule_and_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    put_finding(folder, "STAGE-storage", Severity.note, "not measured: fio is not installed")
    put_finding(folder, "FIO", Severity.warning, "slow", file="a")
    put_finding(folder, "STAGE-storage", Severity.error, "failed: fio ended with status 1")
    assert [(item["rule"], item["severity"], item["text"]) for item in read_findings(folder)] == [
        ("FIO", "warning", "slow"),
        ("STAGE-storage", "error", "failed: fio ended with status 1"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["findings.json"]


def test_drop_findings_takes_back_the_named_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    put_finding(folder, "A", Severity.note, "a")
    put_finding(folder, "B", Severity.note, "b")
    drop_findings(folder, ["A", "C"])
    assert [item["rule"] for item in read_findings(folder)] == ["B"]


def test_read_findings_of_a_new_run_set_is_empty(tmp_path: Path) -> None:
    assert read_findings(RunFolder(tmp_path)) == []


@pytest.mark.parametrize("text", ["{", "{}"])
def test_read_findings_of_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "findings.json").write_text(text)
    with pytest.raises(InputError, match=r"findings\.json"):
        read_findings(RunFolder(tmp_path))
