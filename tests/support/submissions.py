"""Submission trees and run folders of our own making, whole and valid, for tests to break."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from mlbench.check.system_rules import REQUIRED_FIELDS
from mlbench.collect.runfiles import AttemptFile, Provenance, RunSetFile, write_json
from mlbench.collect.runfolder import RunFolder
from mlbench.worker.job import (
    Augmentation,
    Data,
    Files,
    Job,
    Model,
    Optimizer,
    Schedule,
    Submission,
    dump,
)
from tests.support.run_logs import BASE_MINUTES, BASE_SEEDS, START_MS, base_set, run_lines, write_log

RUN_SET = "20261201-101032-resnet50-5f21c09a"
HOST = "node-a"


def description(**changes: Any) -> dict[str, Any]:
    """A full system description of the base set's system, that every ruleset takes."""
    fields: dict[str, Any] = dict.fromkeys(REQUIRED_FIELDS, "N/A")
    fields |= {
        "submitter": "LabX",
        "division": "closed",
        "status": "Available on-premise",
        "system_name": "sysA",
        "number_of_nodes": "1",
        "accelerators_per_node": "8",
        "framework": "MXNet 1.9.1",
    }
    return {**fields, **changes}


def lab(root: Path, **logs: Any) -> Path:
    """The base set as a submission, `root`/LabX, as cases.md section 4 lays it out; returns the submitter's folder."""
    submitter = root / "LabX"
    base_set(submitter / "results" / "sysA" / "resnet", **logs)
    (submitter / "systems").mkdir()
    (submitter / "systems" / "sysA.json").write_text(json.dumps(description(), indent=1), encoding="utf-8")
    (submitter / "benchmarks" / "resnet").mkdir(parents=True)
    return submitter


def results(submitter: Path) -> Path:
    return submitter / "results" / "sysA" / "resnet"


def edit(path: Path, old: str, new: str, count: int = 1) -> None:
    """Replace text in a log; the text must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def edit_record(path: Path, key: str, old: str, new: str, which: int = 0) -> int:
    """Replace text in one record of a key (`which` counts them, -1 is the last); returns its line in the file."""
    lines = path.read_text(encoding="utf-8").split("\n")
    numbers = [number for number, line in enumerate(lines) if f'"key": "{key}"' in line]
    number = numbers[which]
    assert old in lines[number], (key, old, lines[number])
    lines[number] = lines[number].replace(old, new)
    path.write_text("\n".join(lines), encoding="utf-8")
    return number + 1


def hashes(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def run_set_file(**changes: Any) -> RunSetFile:
    identity = RunSetFile(
        schema_version=1,
        run_set=RUN_SET,
        created_at="2026-12-01T10:10:32.000+00:00",
        command_line=["mlbench", "gpus=2"],
        rehearsal=False,
        repeats=5,
        warmup_runs=0,
        stages=["train"],
        launcher="local",
        system_name="Standard PC",
        org="unnamed",
        platform="1xStandard PC",
        division="open",
        submission_status="onprem",
        ruleset="4.0.0",
        benchmark="resnet50",
        benchmark_kind="train",
        mlperf_name="resnet",
        model="resnet50",
        framework="MXNet 1.9.1",
        device="cpu",
        hosts={HOST: 2},
        num_nodes=1,
        num_accelerators=0,
        num_ranks=2,
        global_batch_size=3264,
        target_accuracy=0.759,
        train_samples=1_281_167,
        eval_samples=50_000,
        data_name="digits",
        data_path="/data/digits",
        data_path_given="data/digits",
        cache="evict",
        environment={"OMP_NUM_THREADS": "1"},
        notes=[],
        provenance=Provenance(
            mlbench_version="0.1.0",
            git_commit="0123456789abcdef",
            git_dirty=False,
            python="3.11.7",
            packages={"mxnet": "1.9.1", "horovod": "0.28.1"},
            container_image=None,
            container_digest=None,
            data_mount={"device": "/dev/sda1", "mount_point": "/", "type": "ext4", "options": "rw"},
            clock_offsets_s={},
        ),
    )
    return dataclasses.replace(identity, **changes)


def job(identity: RunSetFile, index: int, seed: int) -> Job:
    return Job(
        schema_version=1,
        kind="train",
        job_id=f"{identity.run_set}/run_{index}/attempt_0",
        num_ranks=identity.num_ranks,
        device=identity.device,
        seed=seed,
        cache_clear=True,
        threads_per_rank=1,
        environment=dict(identity.environment),
        files=Files(mllog="result.txt", rank_log_dir=".", result=""),
        submission=Submission(
            benchmark="resnet",
            org=identity.org,
            division=identity.division,
            status=identity.submission_status,
            platform=identity.platform,
        ),
        model=Model("resnet50", 10, "NCHW", "float32", 0.8, 1e-5, True),
        data=Data(
            "digits", ["t.rec"], ["t.idx"], ["v.rec"], ["v.idx"], 640, 1000, 32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0),
            Augmentation(False, (1.0, 1.0), (1.0, 1.0), 2, False, 32), "native", 1, 2, [],
        ),
        optimizer=Optimizer("sgd", 0.05, 0.0001, 2.0, 1000, 20, 0.5, 0.9, 0.00005, 0.0, 0.001, 0.0, 1),
        schedule=Schedule(20, 1, 1, 0.759, 16, 16, 0, 0),
        allreduce=None,
    )  # fmt: skip


def own_log(identity: RunSetFile, **settings: Any) -> list[str]:
    """A log as the worker writes it for a run set; `run_logs` makes the course, this the identity."""
    values = {
        '"submission_org", "value": "LabX"': f'"submission_org", "value": "{identity.org}"',
        '"submission_division", "value": "closed"': f'"submission_division", "value": "{identity.division}"',
        '"submission_platform", "value": "1xDSS8440"': f'"submission_platform", "value": "{identity.platform}"',
    }
    lines = run_lines(**{"target": 0.759, **settings})
    for old, new in values.items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def attempt_file(identity: RunSetFile, index: int, seed: int, **changes: Any) -> AttemptFile:
    record = AttemptFile(
        schema_version=1,
        job_id=f"{identity.run_set}/run_{index}/attempt_0",
        index=index,
        attempt=0,
        warmup=False,
        rehearsal=identity.rehearsal,
        status="success",
        reason=None,
        exit_status=0,
        seed=seed,
        cache_clear=True,
        launched_at="2026-12-01T10:11:00.000+00:00",
        ended_at="2026-12-01T10:12:00.000+00:00",
        lifetime_s=60.0,
        argv=["horovodrun", "--gloo", "-np", "2", "python", "-m", "mlbench_worker", "job.json"],
        last_record=None,
        last_lines=[],
        log=None,
        num_strays=0,
    )
    return dataclasses.replace(record, **changes)


def own_run_set(runs: Path, *, name: str = RUN_SET, logs: dict[str, Any] | None = None, **changes: Any) -> RunFolder:
    """A run folder as the runner leaves it, with the base set's five runs in the open division."""
    identity = run_set_file(run_set=name, **changes)
    folder = RunFolder(runs / name)
    for index, (minutes, seed) in enumerate(zip(BASE_MINUTES, BASE_SEEDS, strict=True)):
        attempt = folder.attempt(index, 0)
        settings = {"minutes": minutes, "seed": seed, "start_ms": START_MS + (index + 1) * 3_600_000, **(logs or {})}
        write_log(attempt.mllog, own_log(identity, **settings))
        attempt.job.write_text(dump(job(identity, index, seed)), encoding="utf-8")
        write_json(attempt.outcome, attempt_file(identity, index, seed))
        attempt.launcher_log.write_text("", encoding="utf-8")
    write_json(folder.identity, identity)
    write_json(folder.hosts, {HOST: {"cpu_model": "Processor 1 @ 2.50GHz", "num_sockets": "1", "num_cores": "2",
                                     "num_cpus": "2", "memory_bytes": "24000000000", "kernel": "6.1.0",
                                     "operating_system": "Debian GNU/Linux 12"}})  # fmt: skip
    folder.config.write_text("hardware:\n  compute: null\n  storage: null\n", encoding="utf-8")
    return folder
