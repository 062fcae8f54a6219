"""Records of run sets for tests of the store, small and complete: every table has rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from mlbench.store.tables import (
    AllReduceResult,
    Epoch,
    EvaluationRow,
    HostFact,
    Hyperparameter,
    NoteRow,
    Run,
    RunSet,
    StorageResult,
    System,
    TelemetrySeries,
)

STARTED = datetime(2024, 5, 1, 9, 30, tzinfo=UTC)


def make_run_set(name: str = "set-a", *, num_runs: int = 2, **changes: Any) -> RunSet:
    """A run set with a row in every table; `changes` are columns of the run set."""
    fields: dict[str, Any] = {
        "run_set": name,
        "origin": "run",
        "org": "LabX",
        "system": "DSS8440",
        "division": "closed",
        "benchmark": "resnet",
        "framework": "MXNet 1.9.1",
        "num_nodes": 1,
        "num_accelerators": 8,
        "num_ranks": 8,
        "num_runs": num_runs,
        "num_converged": num_runs,
        "score_s": 2190.0,
        "score_status": "valid",
        "samples_per_s": 20711.5,
        "global_batch_size": 3264,
        "started_at": STARTED,
        "content_hash": f"hash of {name}",
        "config": {"gpus": 8},
        "provenance": {"git_commit": "a" * 40},
        "description": System(origin="run", org="LabX", name="DSS8440", description={"nodes": 1}),
        "allreduce": [
            AllReduceResult(
                backend="horovod",
                transport="Gloo",
                num_ranks=8,
                hosts=["a", "b"],
                in_place=False,
                size_bytes=2**33,
                time_us=1.5,
                algbw_gb_per_s=1.0,
                busbw_gb_per_s=1.75,
                num_wrong=0,
            )
        ],
        "storage": [
            StorageResult(
                tool="fio",
                pattern="sequential",
                cache="direct",
                block_bytes=1 << 20,
                num_readers=4,
                bandwidth_bytes_per_s=1e9,
                status="measured",
            )
        ],
        "notes": [NoteRow(severity="note", file="result_0.txt", line=3, text="an oddity")],
        "host_facts": [HostFact(host="a", key="kernel", value="5.3.0")],
        "runs": [make_run(index) for index in range(num_runs)],
    }
    return RunSet(**{**fields, **changes})


def make_run(index: int, **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "index": index,
        "status": "success",
        "converged": True,
        "time_to_train_s": 2190.0 + index,
        "epochs": 35.0,
        "final_accuracy": 0.7602,
        "seed": 11 + index,
        "started_at": STARTED + timedelta(hours=index),
        "epoch_rows": [Epoch(kind="epoch", epoch_num=1.0, num_epochs=1.0, start_s=0.0, duration_s=62.5)],
        "evaluations": [EvaluationRow(epoch_num=1.0, accuracy=0.1, time_s=62.6)],
        "hyperparameters": [Hyperparameter(key="opt_name", value='"lars"')],
        "telemetry": [
            TelemetrySeries(
                host="a",
                metric="cpu_share",
                num_points=3,
                mean=0.5,
                min=0.25,
                max=0.75,
                times_s=[0.0, 1.0, 2.0],
                points=[0.25, None, 0.75],
            )
        ],
    }
    return Run(**{**fields, **changes})
