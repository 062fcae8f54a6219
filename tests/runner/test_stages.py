"""Stages: loaded when reached, absent ones said, failed ones remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.check.finding import Severity
from mlbench.choices import Stage
from mlbench.compose import compose
from mlbench.plan.estimate import NUM_STORAGE_PATTERNS
from mlbench.plan.make import make_plan
from mlbench.preflight.machine import probe_machine
from mlbench.runner import series
from mlbench.runner.context import StageContext, StageReport
from mlbench.runner.events import StageEnded, StageState
from mlbench.runner.findings import read_findings
from mlbench.runner.stages import REGISTRY, load_stage
from mlbench.runner.stages.fio_tests import fio_tests
from tests.runner.conftest import Rehearsal


class Broken:
    """A stage that fails, and leaves a result all the same."""

    def is_done(self, context: StageContext) -> bool:
        return context.folder.storage.is_file()

    def run(self, context: StageContext) -> StageReport:
        context.folder.storage.write_text("[]")
        return StageReport(StageState.failed, "fio ended with status 1")


def test_every_stage_of_the_configuration_has_a_runner() -> None:
    assert set(REGISTRY) == set(Stage)
    for stage in Stage:
        runner = load_stage(stage)
        assert runner is not None
        assert callable(runner.run)


def test_load_stage_without_entry_is_none() -> None:
    assert load_stage(Stage.train, {}) is None


def test_stage_without_a_runner_is_not_measured_and_leaves_a_finding(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "load_stage", lambda stage: None)
    result = rehearsal.start("benchmark.stages=[storage]")
    assert result.exit_status == 0
    assert result.reports[Stage.storage].state is StageState.not_measured
    [finding] = read_findings(result.folder)
    assert (finding["rule"], finding["severity"]) == ("STAGE-storage", Severity.note.value)


def test_stage_that_failed_ends_with_3_and_stays_failed_when_resumed(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "load_stage", lambda stage: Broken())
    first = rehearsal.start("benchmark.stages=[storage]")
    assert (first.exit_status, first.last_line) == (3, "Failed: stage storage.")
    second = rehearsal.resume(first.identity.run_set)
    assert second.exit_status == 3
    ended = [event for event in rehearsal.events if isinstance(event, StageEnded)]
    assert [event.state for event in ended] == [StageState.failed, StageState.failed]
    assert ended[1].text.startswith("in an earlier call: failed: fio ended with status 1")


def test_time_estimate_counts_the_patterns_that_the_storage_stage_measures(tmp_path: Path) -> None:
    plan = make_plan(compose(["benchmark=storage"]), probe_machine())
    assert len(fio_tests(plan, tmp_path, own_files=True)) == NUM_STORAGE_PATTERNS
