"""Clean logs of our own making, for tests to break. The numbers are those of the base set of cases.md, section 4:

five runs of 36.5, 36.0, 37.0, 36.2 and 36.8 minutes, seeds 11 to 15, 35 epochs at batch 3264; olympic mean 36.5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BASE_MINUTES = (36.5, 36.0, 37.0, 36.2, 36.8)
BASE_SEEDS = (11, 12, 13, 14, 15)
START_MS = 1_700_000_000_000


def record(key: str, value: Any, time_ms: float, kind: str = "POINT_IN_TIME", **metadata: Any) -> str:
    body = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 10, **metadata},
    }
    return ":::MLLOG " + json.dumps(body)


def run_lines(
    *,
    minutes: float = 36.5,
    seed: int = 11,
    epochs: int = 35,
    accuracy: float = 0.7602,
    status: str = "success",
    batch: int = 3264,
    start_ms: int = START_MS,
    benchmark: str = "resnet",
    target: float | None = None,
) -> list[str]:
    """One clean run, a record a line: evaluated after epochs 3, 7, ... and the last."""
    return list(_records(minutes, seed, epochs, accuracy, status, batch, start_ms, benchmark, target))


def _records(
    minutes: float,
    seed: int,
    epochs: int,
    accuracy: float,
    status: str,
    batch: int,
    start_ms: int,
    benchmark: str,
    target: float | None,
) -> Iterator[str]:
    for number, (key, value) in enumerate(
        {
            "submission_benchmark": benchmark,
            "submission_org": "LabX",
            "submission_division": "closed",
            "submission_status": "onprem",
            "submission_platform": "1xDSS8440",
            "cache_clear": True,
        }.items()
    ):
        yield record(key, value, start_ms + number)
    yield record("init_start", None, start_ms + 10, "INTERVAL_START")
    yield record("seed", seed, start_ms + 11)
    yield record("global_batch_size", batch, start_ms + 12)
    if target is not None:
        yield record("quality_target", target, start_ms + 12)
    settings = {
        "gradient_accumulation_steps": 1,
        "opt_name": "lars",
        "lars_opt_base_learning_rate": 10.5,
        "lars_opt_end_learning_rate": 0.0001,
        "lars_opt_learning_rate_decay_poly_power": 2,
        "lars_opt_learning_rate_decay_steps": epochs + 2,
        "lars_epsilon": 0,
        "lars_opt_learning_rate_warmup_epochs": 2,
        "lars_opt_momentum": 0.9,
        "lars_opt_weight_decay": 0.00005,
    }
    for number, (key, value) in enumerate(settings.items()):
        yield record(key, value, start_ms + 13 + number)
    yield record("init_stop", None, start_ms + 30_000, "INTERVAL_END")
    begin = start_ms + 30_001
    end = begin + round(minutes * 60_000)
    yield record("run_start", None, begin, "INTERVAL_START")
    yield record("train_samples", 1_281_167, begin)
    yield record("eval_samples", 50_000, begin)
    now = begin
    for epoch in range(1, epochs + 1):
        yield record("epoch_start", None, now, "INTERVAL_START", epoch_num=epoch)
        now = begin + round(minutes * 60_000 / epochs * epoch) - 2
        yield record("epoch_stop", None, now, "INTERVAL_END", epoch_num=epoch)
        if epoch % 4 == 3 or epoch == epochs:
            yield record("eval_start", None, now, "INTERVAL_START", epoch_num=epoch)
            reached = accuracy if epoch == epochs else min(0.01 * epoch, 0.7)
            yield record("eval_accuracy", reached, now + 1, epoch_num=epoch)
            now += 1
            yield record("eval_stop", None, now, "INTERVAL_END", epoch_num=epoch)
    yield record("run_stop", None, end, "INTERVAL_END", status=status, epoch_num=epochs)


def write_log(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def base_set(folder: Path, **changes: Any) -> list[Path]:
    """The base set's five files in `folder`, each with the same changes to `run_lines`."""
    paths = []
    for index, (minutes, seed) in enumerate(zip(BASE_MINUTES, BASE_SEEDS, strict=True)):
        given = {"minutes": minutes, "seed": seed, "start_ms": START_MS + (index + 1) * 3_600_000, **changes}
        paths.append(write_log(folder / f"result_{index}.txt", run_lines(**given)))
    return paths


def submission(root: Path, *, org: str = "Lab", system: str = "sysA", benchmark: str = "resnet") -> Path:
    """The base set in the layout of a submission below `root`; returns the folder of the five logs."""
    folder = root / org / "results" / system / benchmark
    base_set(folder)
    description = {
        "submitter": "Lab of X",
        "division": "closed",
        "status": "Available on-premise",
        "system_name": system,
        "number_of_nodes": "1",
        "accelerators_per_node": "8",
        "accelerator_model_name": "Accelerator 1",
        "host_processors_per_node": "2",
        "host_processor_model_name": "Processor 1",
        "framework": "MXNet 1.9.1",
    }
    path = root / org / "systems" / f"{system}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(description, indent=2), encoding="utf-8")
    return folder
