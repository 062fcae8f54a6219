"""The exit status and the last line of a run set always agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlbench.check.finding import Verdict
from mlbench.choices import Stage
from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.runfolder import RunFolder
from mlbench.runner.context import StageReport
from mlbench.runner.events import StageState
from mlbench.runner.outcome import Official, SeriesResult
from mlbench.store.tables import Run, RunSet
from tests.runner.test_facts import PROVENANCE

IDENTITY = RunSetFile(
    schema_version=1,
    run_set="20261201-x",
    created_at="2026-12-01T10:00:00+00:00",
    command_line=["mlbench"],
    rehearsal=False,
    repeats=5,
    warmup_runs=1,
    stages=["train"],
    launcher="local",
    system_name="Bench 1",
    org="Lab",
    platform="1xBench 1",
    division="open",
    submission_status="onprem",
    ruleset="4.0.0",
    benchmark="resnet50",
    benchmark_kind="train",
    mlperf_name="resnet",
    model="resnet50",
    framework="MXNet 1.9.1",
    device="cpu",
    hosts={"localhost": 2},
    num_nodes=1,
    num_accelerators=0,
    num_ranks=2,
    global_batch_size=32,
    target_accuracy=0.759,
    train_samples=640,
    eval_samples=1157,
    data_name="digits",
    data_path="/data/digits",
    data_path_given="./data/digits",
    cache="auto",
    environment={},
    notes=[],
    provenance=PROVENANCE,
)


def a_row(**fields: Any) -> RunSet:
    given: dict[str, Any] = {
        "run_set": "20261201-x",
        "num_runs": 5,
        "num_converged": 5,
        "score_status": "valid",
        "score_s": 41.5,
        "score_reason": None,
    }
    return RunSet(**given | fields)


def a_result(**fields: Any) -> SeriesResult:
    given: dict[str, Any] = {
        "folder": RunFolder(Path("/runs/20261201-x")),
        "identity": IDENTITY,
        "reports": {Stage.train: StageReport(StageState.measured, "5 of 5")},
        "row": a_row(),
        "official": Official(verdict=Verdict.compliant, ruleset="4.0.0"),
        "num_missing": 0,
        "interrupted": False,
    }
    return SeriesResult(**given | fields)


FAILED_STAGE = {
    Stage.storage: StageReport(StageState.failed, "fio ended with status 1"),
    Stage.train: StageReport(StageState.measured, "5 of 5"),
}


@pytest.mark.parametrize(
    ("fields", "status", "line"),
    [
        ({}, 0, "Good: score 41.500 s."),
        (
            {"row": a_row(score_status="raw", score_s=None, score_reason="3 runs of 5 asked")},
            0,
            "Done. Raw, not a score: 3 runs of 5 asked.",
        ),
        (
            {"num_missing": 2},
            3,
            "Failed: 4 of 6 runs are finished and stored, 2 missing; "
            "`mlbench resume 20261201-x` runs what is missing.",
        ),
        ({"fault": "/runs/x: cannot be written"}, 3, "Failed: /runs/x: cannot be written."),
        ({"row": None}, 3, "Failed: the files of the run set cannot be read."),
        ({"reports": FAILED_STAGE}, 3, "Failed: stage storage."),
        (
            {"row": a_row(score_status="invalid", score_s=None, score_reason="3 of 5 converged", num_converged=3)},
            4,
            "Not good: the run set is invalid: 3 of 5 converged.",
        ),
        (
            {"row": a_row(score_status="raw", score_s=None, num_runs=2, num_converged=0)},
            4,
            "Not good: 0 of 2 runs converged.",
        ),
        (
            {"official": Official(verdict=Verdict.not_compliant, ruleset="4.0.0")},
            4,
            "Not good: not compliant with ruleset 4.0.0.",
        ),
        ({"official": Official(verdict=None, ruleset="4.0.0", reason="it crashed")}, 0, "Good: score 41.500 s."),
        (
            {"interrupted": True, "num_missing": 4},
            130,
            "Interrupted: 2 of 6 runs are finished and stored, 4 missing; "
            "`mlbench resume 20261201-x` runs what is missing.",
        ),
    ],
    ids=[
        "valid", "raw", "missing", "disk", "unreadable", "stage", "invalid", "none converged", "official",
        "official not asked", "interrupted",
    ],
)  # fmt: skip
def test_exit_status_and_last_line_agree(fields: dict[str, Any], status: int, line: str) -> None:
    result = a_result(**fields)
    assert result.exit_status == status
    assert result.last_line == line


def test_interrupted_stage_alone_does_not_speak_of_runs() -> None:
    identity = replace(IDENTITY, stages=["allreduce", "storage"])
    reports = {Stage.allreduce: StageReport(StageState.measured, "ten sizes")}
    result = a_result(identity=identity, reports=reports, interrupted=True)
    assert result.exit_status == 130
    assert result.last_line == (
        "Interrupted: 1 of 2 stages are finished, missing is storage; `mlbench resume 20261201-x` runs what is missing."
    )


def test_run_whose_log_is_gone_is_no_good_set() -> None:
    runs = [
        Run(index=0, attempt=0, warmup=False, status="crashed"),
        Run(index=0, attempt=1, warmup=False, status="success"),
        Run(index=1, attempt=0, warmup=False, status="incomplete"),
    ]
    result = a_result(row=a_row(runs=runs))
    assert result.exit_status == 3
    assert result.last_line.startswith("Failed: the log of run 1 no longer holds what its record says; put the file")


def test_one_of_five_lost_is_still_good() -> None:
    assert a_result(row=a_row(num_converged=4)).exit_status == 0


def test_throughput_set_needs_no_target() -> None:
    identity = replace(IDENTITY, benchmark_kind="throughput", mlperf_name=None)
    row = a_row(score_status="raw", score_s=None, num_converged=0, score_reason="not a time to train")
    assert a_result(identity=identity, row=row).exit_status == 0


def test_measured_stages_alone_are_done() -> None:
    reports = {Stage.allreduce: StageReport(StageState.not_measured, "one rank")}
    result = a_result(reports=reports, row=a_row(score_status="raw", score_s=None, num_runs=0, num_converged=0))
    assert (result.exit_status, result.last_line) == (0, "Done.")
