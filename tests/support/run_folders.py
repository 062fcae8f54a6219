"""Run folders of mlbench written by hand: the same files as the runner writes, without running anything."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mlbench.collect.runfiles import AttemptFile, Provenance, RunSetFile, write_json
from mlbench.collect.runfolder import RunFolder
from tests.support.run_logs import BASE_MINUTES, BASE_SEEDS, START_MS, run_lines, write_log

CREATED = datetime(2024, 5, 1, 9, 30, tzinfo=UTC)
CONFIG = """\
gpus: 8
hardware:
  compute:
    name: dss8440
    accelerator_model: A100
    environment: {NCCL_DEBUG: WARN}
"""


def identity(run_set: str, **changes: Any) -> RunSetFile:
    """What run_set.json says of a closed ResNet-50 run set on one DSS 8440."""
    provenance = Provenance(
        mlbench_version="0.1",
        git_commit="a" * 40,
        git_dirty=False,
        python="3.11.2",
        packages={"mxnet": "1.9.1"},
        container_image=None,
        container_digest=None,
        data_mount={"type": "nfs4"},
        clock_offsets_s={"n0": 0.001},
    )
    fields: dict[str, Any] = {
        "schema_version": 1,
        "run_set": run_set,
        "created_at": CREATED.isoformat(),
        "command_line": ["mlbench", "+hardware=dss8440"],
        "rehearsal": False,
        "repeats": 5,
        "warmup_runs": 0,
        "stages": ["train"],
        "launcher": "local",
        "system_name": "DSS8440",
        "org": "LabX",
        "platform": "1xDSS8440",
        "division": "closed",
        "submission_status": "onprem",
        "ruleset": "4.0.0",
        "benchmark": "resnet50",
        "benchmark_kind": "train",
        "mlperf_name": "resnet",
        "model": "resnet50",
        "framework": "MXNet 1.9.1",
        "device": "gpu",
        "hosts": {"localhost": 8},
        "num_nodes": 1,
        "num_accelerators": 8,
        "num_ranks": 8,
        "global_batch_size": 3264,
        "target_accuracy": 0.759,
        "train_samples": 1281167,
        "eval_samples": 50000,
        "data_name": "imagenet",
        "data_path": "/data/imagenet",
        "data_path_given": "imagenet",
        "cache": "auto",
        "environment": {"NCCL_DEBUG": "WARN"},
        "notes": [],
        "provenance": provenance,
    }
    return RunSetFile(**{**fields, **changes})


def write_attempt(
    folder: RunFolder,
    index: int,
    attempt: int = 0,
    *,
    warmup: bool = False,
    status: str = "success",
    record: bool = True,
    **log: Any,
) -> None:
    """One attempt with its log; `record` False leaves attempt.json out, as a killed mlbench does."""
    place = folder.attempt(index, attempt, warmup=warmup)
    given = {"minutes": BASE_MINUTES[index % 5], "seed": BASE_SEEDS[index % 5] + 100 * attempt} | log
    given.setdefault("start_ms", START_MS + (index + 1) * 3_600_000)
    write_log(place.mllog, run_lines(**given))
    if not record:
        return
    ended = CREATED + timedelta(hours=index + 1)
    outcome = AttemptFile(
        schema_version=1,
        job_id=f"{folder.run_set}-{index}-{attempt}",
        index=index,
        attempt=attempt,
        warmup=warmup,
        rehearsal=False,
        status=status,
        reason=None if status == "success" else f"{status}, as the test asks",
        exit_status=0 if status == "success" else 1,
        seed=given["seed"],
        cache_clear=True,
        launched_at=CREATED.isoformat(),
        ended_at=ended.isoformat(),
        lifetime_s=60.0,
        argv=["horovodrun"],
        last_record=None,
        last_lines=[],
        log=None,
        num_strays=0,
    )
    write_json(place.outcome, outcome)


def write_run_folder(runs_dir: Path, run_set: str = "20240501-093000-resnet50-0001", **changes: Any) -> RunFolder:
    """The base set of cases.md, section 4, as a run folder: five converged runs, olympic mean 36.5 minutes."""
    folder = RunFolder(runs_dir / run_set)
    folder.path.mkdir(parents=True)
    number_of_runs = changes.pop("num_written", 5)
    log = changes.pop("log", {})
    write_json(folder.identity, identity(run_set, **changes))
    folder.config.write_text(CONFIG, encoding="utf-8")
    write_json(folder.hosts, {"localhost": {"cpu_model": "Xeon", "kernel": "5.3.0"}})
    folder.findings.write_text(json.dumps([]), encoding="utf-8")
    for index in range(number_of_runs):
        write_attempt(folder, index, **log)
    return folder
