"""What a run set will ask of storage and how long it will take: from published or measured rates, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from mlbench.choices import BenchmarkKind, Device, Stage
from mlbench.config import Config

CPU_SAMPLES_PER_S = {32: 27.5, 64: 24.0, 224: 2.75}
"""image_px -> ResNet-50 training samples/s of one CPU core; measured on two cores of a Xeon with MXNet 1.9.1."""
ALLREDUCE_S = 15.0
"""The all-reduce stage with its usual sizes, on two CPU ranks."""
NUM_STORAGE_PATTERNS = 4
"""fio's: sequential, random, and training with a cold and a warm cache (runner/stages/fio_tests.py)."""
START_S = 6.0
"""Start of the processes and of the framework, per run on a CPU."""
FORWARD_SHARE = 1 / 4
"""Cost of a validation image against a training image: forward without backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    samples_per_s: float
    basis: str


def expected_rate(config: Config, num_ranks: int, num_cpus: int) -> Rate | None:
    """Expected training rate of all ranks together, or None when nobody has measured one."""
    compute = config.hardware.compute
    model = config.benchmark.model
    if compute is not None and model in compute.samples_per_s_per_gpu:
        each = compute.samples_per_s_per_gpu[model]
        source = compute.sources.get("samples_per_s_per_gpu", f"profile {compute.name}")
        return Rate(samples_per_s=each * num_ranks, basis=f"{num_ranks} x {each:g} samples/s a GPU ({source})")
    if (compute is None or compute.device is Device.cpu) and model == "resnet50":
        per_core = CPU_SAMPLES_PER_S.get(config.data.image_px)
        if per_core is not None:
            return Rate(
                samples_per_s=per_core * num_cpus,
                basis=f"{num_cpus} x {per_core:g} samples/s a core at {config.data.image_px} px (2-core Xeon)",
            )
    return None


def time_estimate_s(config: Config, rate: Rate | None, global_batch_size: int) -> float | None:
    """Seconds of the whole run set, or None when a rate or the number of epochs is not known."""
    total = 0.0
    if Stage.allreduce in config.benchmark.stages:
        total += ALLREDUCE_S
    if Stage.storage in config.benchmark.stages:
        total += NUM_STORAGE_PATTERNS * config.benchmark.storage.runtime_s
    if Stage.train not in config.benchmark.stages:
        return total
    if rate is None:
        return None
    num_runs = config.repeats + config.warmup_runs
    samples = _samples(config, global_batch_size)
    return total + num_runs * (samples / rate.samples_per_s + START_S)


def _samples(config: Config, global_batch_size: int) -> float:
    """Training images of one run, with validation images at the cost of their share."""
    if config.benchmark.kind is BenchmarkKind.throughput:
        return (config.benchmark.num_batches + config.benchmark.num_warmup_batches) * global_batch_size
    training = config.training
    epochs = training.expected_epochs or training.max_epochs
    num_evaluations = max(1.0, epochs / training.eval_period)
    return epochs * config.data.num_train + num_evaluations * config.data.num_val * FORWARD_SHARE
