"""A run set with everything a report can show: 32 GPUs on four nodes, one hour, all stages, telemetry once a second.

The proportions are those of the white paper (78,454 images/s overall, 76,714 in the first epoch); the numbers around
them are drawn from a fixed seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import timedelta
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
from tests.support.run_sets import STARTED

TRAIN_SAMPLES = 1_281_167
NUM_EPOCHS = 40
HOUR_S = 3600.0
OVERALL, FIRST = 78_454.0, 76_714.0  # white paper H18597, figure 5, 32 GPUs
MAX_POINTS = 1200  # docs/reference/telemetry.md


def full_run_set(
    name: str = "20240501-093000-resnet50-0000000f", *, num_hosts: int = 4, num_points: int = MAX_POINTS, **changes: Any
) -> RunSet:
    """`changes` are columns of the run set; telemetry has `num_points` a series, for every run."""
    draw = random.Random(name)
    hosts = [f"dgx-{number + 1:02d}" for number in range(num_hosts)]
    runs = [_run(index, draw, hosts, num_points) for index in range(5)]
    times = sorted(run.time_to_train_s or 0.0 for run in runs)
    olympic = sum(times[1:4]) / 3
    fields: dict[str, Any] = {
        "run_set": name,
        "origin": "run",
        "org": "LabX",
        "system": "NVIDIA DGX A100",
        "division": "closed",
        "benchmark": "resnet",
        "model": "resnet50",
        "framework": "MXNet 1.9.1",
        "ruleset": "4.0.0",
        "launcher": "slurm",
        "num_nodes": num_hosts,
        "num_accelerators": 8 * num_hosts,
        "num_ranks": 8 * num_hosts,
        "global_batch_size": 3264,
        "repeats_asked": 5,
        "num_runs": 5,
        "num_converged": 5,
        "score_s": olympic,
        "score_status": "valid",
        "olympic_mean_s": olympic,
        "mean_s": sum(times) / 5,
        "min_s": times[0],
        "max_s": times[-1],
        "cv": 0.0021,
        "samples_per_s": OVERALL,
        "samples_per_s_first_epoch": FIRST,
        "throughput_method": "epochs",
        "cache": "cold",
        "started_at": STARTED,
        "finished_at": STARTED + timedelta(hours=6),
        "content_hash": f"hash of {name}",
        "config": {"gpus": 8 * num_hosts, "data": {"mean_image_bytes": 115_000, "num_train": TRAIN_SAMPLES}},
        "provenance": {
            "command_line": ["mlbench", "+hardware=[dgxa100,f800]", f"gpus={8 * num_hosts}"],
            "environment": {"NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": "4"},
            "packages": {"mxnet": "1.9.1", "horovod": "0.28.1"},
            "git_commit": "a" * 40,
        },
        "description": System(
            origin="run",
            org="LabX",
            name="NVIDIA DGX A100",
            description={"system_name": "NVIDIA DGX A100", "accelerator_model_name": "NVIDIA A100-SXM4-40GB"},
        ),
        "allreduce": list(_allreduce(hosts)),
        "storage": list(_storage(hosts)),
        "notes": [NoteRow(severity="warning", rule="TELEMETRY-INPUT", file="run 2, dgx-03", text="GPUs 61 % in use")],
        "host_facts": [
            HostFact(host=host, key=key, value=value)
            for host in hosts
            for key, value in (("kernel", "5.3.0-59"), ("driver", "450.51.06"), ("hostname", host))
        ],
        "runs": runs,
    }
    return RunSet(**{**fields, **changes})


def _run(index: int, draw: random.Random, hosts: list[str], num_points: int) -> Run:
    time_s = HOUR_S * draw.uniform(0.997, 1.003)
    epoch_s = time_s / (NUM_EPOCHS + 1)
    epochs = [
        Epoch(
            kind="epoch",
            epoch_num=float(number + 1),
            num_epochs=1.0,
            start_s=number * epoch_s,
            duration_s=epoch_s * (1.02 if number == 0 else 1.0),
            samples_per_s=FIRST if number == 0 else OVERALL * draw.uniform(0.995, 1.005),
        )
        for number in range(NUM_EPOCHS)
    ]
    return Run(
        index=index,
        attempt=0,
        warmup=False,
        status="success",
        converged=True,
        time_to_train_s=time_s,
        epochs=float(NUM_EPOCHS),
        final_accuracy=0.7595,
        best_accuracy=0.7595,
        quality_target=0.759,
        seed=draw.randrange(2**31),
        samples_per_s=OVERALL * draw.uniform(0.998, 1.002),
        samples_per_s_first_epoch=FIRST * draw.uniform(0.99, 1.01),
        train_samples=TRAIN_SAMPLES,
        global_batch_size=3264,
        cache_clear=True,
        started_at=STARTED + timedelta(hours=index),
        exit_status=0,
        epoch_rows=epochs,
        evaluations=[
            EvaluationRow(
                epoch_num=float(number), accuracy=0.7595 * (1 - math.exp(-number / 9)), time_s=number * epoch_s
            )
            for number in range(1, NUM_EPOCHS + 1, 4)
        ],
        hyperparameters=[Hyperparameter(key="opt_name", value='"sgd"'), Hyperparameter(key="seed", value=str(index))],
        telemetry=list(_telemetry(draw, hosts, time_s, epoch_s, num_points)),
    )


def _telemetry(
    draw: random.Random, hosts: list[str], time_s: float, epoch_s: float, num_points: int
) -> Iterator[TelemetrySeries]:
    times = [round(-20 + number * (time_s + 20) / num_points, 2) for number in range(num_points)]
    levels: dict[str, tuple[float, float]] = {
        "cpu_share": (0.33, 0.05),
        "cpu_user_share": (0.28, 0.05),
        "cpu_system_share": (0.05, 0.01),
        "cpu_iowait_share": (0.01, 0.01),
        "memory_used_bytes": (190e9, 2e9),
        "page_cache_bytes": (150e9, 1e9),
        "net_eth0_rx_bytes_per_s": (2.2e9, 1e8),
        "net_eth0_tx_bytes_per_s": (1e7, 1e6),
        "net_eth1_rx_bytes_per_s": (1e6, 1e5),
        "disk_nvme0n1_read_bytes_per_s": (1e6, 1e6),
        "disk_nvme0n1_write_bytes_per_s": (4e6, 1e6),
        "ranks_cpu_cores": (42.0, 2.0),
    }
    for gpu in range(8):
        levels |= {
            f"gpu{gpu}_use_share": (0.95, 0.04),
            f"gpu{gpu}_memory_bytes": (37e9, 1e8),
            f"gpu{gpu}_power_w": (380.0, 15.0),
            f"gpu{gpu}_sm_clock_hz": (1.4e9, 1e7),
            f"gpu{gpu}_temperature_c": (61.0, 2.0),
        }
    for host in hosts:
        for metric, (level, noise) in levels.items():
            loads = [1.0 if not metric.startswith("net_eth0_rx") or time < epoch_s else 0.004 for time in times]
            points: list[float | None] = [
                0.0 if time < 0 and metric.startswith("gpu") else max(0.0, load * level + draw.gauss(0, noise) * load)
                for time, load in zip(times, loads, strict=True)
            ]
            known = [value for value in points if value is not None]
            yield TelemetrySeries(
                host=host,
                metric=metric,
                num_points=len(points),
                mean=sum(known) / len(known),
                min=min(known),
                max=max(known),
                times_s=times,
                points=points,
            )


def _allreduce(hosts: list[str]) -> Iterator[AllReduceResult]:
    ranks = 8 * len(hosts)
    for backend, transport, peak in (("nccl_tests", "NCCL", 140.0), ("horovod", "NCCL", 118.0), ("mpi", "MPI", 9.0)):
        for power in range(3, 31):
            size = 2**power
            busbw = peak * size / (size + 2e6)
            algbw = busbw * ranks / (2 * (ranks - 1))
            yield AllReduceResult(
                backend=backend,
                transport=transport,
                num_ranks=ranks,
                hosts=hosts,
                in_place=False,
                size_bytes=size,
                time_us=size / algbw / 1e3,
                algbw_gb_per_s=algbw,
                busbw_gb_per_s=busbw,
                num_wrong=0,
            )


def _storage(hosts: list[str]) -> Iterator[StorageResult]:
    for pattern, block, rate in (
        ("sequential", 1 << 20, 3.1e9),
        ("random", 1 << 17, 2.4e9),
        ("training", 118784, 2.7e9),
    ):
        for host in [*hosts, None]:
            bandwidth = rate if host is not None else rate * len(hosts)
            yield StorageResult(
                tool="fio",
                host=host,
                pattern=pattern,
                cache="direct",
                block_bytes=block,
                num_readers=16,
                total_bytes=int(bandwidth * 30),
                runtime_s=30.0,
                bandwidth_bytes_per_s=bandwidth,
                iops=bandwidth / block,
                latency_p99_s=0.004,
                status="measured",
            )
