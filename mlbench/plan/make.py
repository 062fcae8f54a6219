"""From the composed configuration to the plan: everything that can be decided before anything is launched."""

from __future__ import annotations

import math
from pathlib import Path

from mlbench.choices import BenchmarkKind, Device, Dtype, LauncherName, Layout
from mlbench.config import ComputeProfile, Config
from mlbench.errors import ConfigError
from mlbench.plan.batch import Batch, choose_batch
from mlbench.plan.data import plan_data
from mlbench.plan.environment import rank_environment
from mlbench.plan.estimate import expected_rate, time_estimate_s
from mlbench.plan.machine import Machine
from mlbench.plan.paths import absolute_config
from mlbench.plan.placement import place
from mlbench.plan.rules import check_settings
from mlbench.plan.types import Placement, Plan
from mlbench.plan.values import check_fit
from mlbench.worker.job import Model, Optimizer, Schedule

EVAL_BATCH = 64
"""Least images of a rank in validation: more fit than in training, and a CPU gets through them faster."""


def make_plan(config: Config, machine: Machine) -> Plan:
    """Decide one run set.

    Args:
        config: composed, left unchanged; the plan holds a copy with absolute paths.
        machine: this machine; it stands for the hardware when no compute profile was chosen.
    Raises: ConfigError for settings that no machine could run or no rule allows.
    """
    check_settings(config)
    fixed = absolute_config(config)
    if fixed.benchmark.model != "resnet50":
        # Another model is never scored as MLPerf's benchmark, wherever its record is read later.
        fixed.benchmark.mlperf_name = None
    compute = config.hardware.compute
    device = Device.cpu if compute is None else compute.device
    placement, notes = place(fixed, machine)
    batch = choose_batch(config.training, placement.num_ranks)
    threads = _threads_per_rank(fixed, placement, machine)
    rate = expected_rate(fixed, placement.num_ranks, machine.num_cpus)
    model, model_notes = _model(fixed, device)
    notes = [*notes, *batch.notes, *model_notes, *_launch_notes(fixed, placement)]
    system_name = machine.system_name if compute is None else compute.system_name
    optimizer = _optimizer(fixed, batch)
    check_fit(fixed, optimizer, placement.num_ranks)
    return Plan(
        config=fixed,
        system_name=system_name,
        platform=config.submission.platform or f"{placement.num_nodes}x{system_name}",
        device=device,
        num_accelerators=placement.num_ranks if device is Device.gpu else 0,
        placement=placement,
        global_batch_size=batch.global_size,
        model=model,
        optimizer=optimizer,
        schedule=_schedule(fixed, batch, placement.num_ranks),
        data=plan_data(fixed, config.data.path, device, threads, rate),
        threads_per_rank=threads,
        environment=rank_environment(fixed, device, threads),
        stages=tuple(config.benchmark.stages),
        notes=tuple(notes),
        runs_dir=Path(fixed.runs_dir or ""),
        time_estimate_s=time_estimate_s(fixed, rate, batch.global_size),
    )


def _threads_per_rank(config: Config, placement: Placement, machine: Machine) -> int:
    """Cores of a node divided by the ranks on it, at least 1, unless the profile names a number."""
    compute = config.hardware.compute
    if compute is not None and compute.threads_per_rank is not None:
        if compute.threads_per_rank < 1:
            raise ConfigError(f"hardware.compute.threads_per_rank={compute.threads_per_rank}: expected at least 1")
        return compute.threads_per_rank
    cores = _profile_cores(compute) or machine.num_cpus
    return max(1, cores // max(host.slots for host in placement.hosts))


def _profile_cores(compute: ComputeProfile | None) -> int | None:
    if compute is None or compute.host_processor_cores is None:
        return None
    return compute.host_processor_cores * (compute.host_processors_per_node or 1)


def _model(config: Config, device: Device) -> tuple[Model, list[str]]:
    training = config.training
    dtype, layout, notes = training.dtype, training.layout, []
    if device is Device.cpu and (dtype, layout) != (Dtype.float32, Layout.NCHW):
        asked = f"{dtype.value} {layout.value}"
        notes.append(f"on a CPU the model is float32 NCHW, not {asked}: MXNet's CPU convolution has no other")
        dtype, layout = Dtype.float32, Layout.NCHW
    model = Model(
        name=config.benchmark.model,
        num_classes=config.data.num_classes,
        layout=layout.value,
        dtype=dtype.value,
        batch_norm_momentum=training.batch_norm_momentum,
        batch_norm_epsilon=training.batch_norm_epsilon,
        zero_init_last_gamma=training.zero_init_last_gamma,
    )
    return model, notes


def _optimizer(config: Config, batch: Batch) -> Optimizer:
    training = config.training
    steps_per_epoch = math.ceil(config.data.num_train / batch.global_size)
    if training.warmup_steps is not None:
        warmup_steps = training.warmup_steps
        warmup_epochs = warmup_steps / steps_per_epoch
    else:
        warmup_epochs = training.warmup_epochs or 0.0
        warmup_steps = round(warmup_epochs * steps_per_epoch)
    decay_steps = training.max_epochs * steps_per_epoch
    if config.benchmark.kind is BenchmarkKind.throughput:
        # It takes its own number of batches, whatever the epochs of a training.
        decay_steps = max(decay_steps, warmup_steps)
    return Optimizer(
        name=training.optimizer.value,
        base_learning_rate=batch.learning_rate,
        end_learning_rate=training.end_learning_rate,
        decay_power=training.decay_power,
        decay_steps=decay_steps,
        warmup_steps=warmup_steps,
        warmup_epochs=warmup_epochs,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        label_smoothing=training.label_smoothing,
        lars_eta=training.lars_eta,
        lars_epsilon=training.lars_epsilon,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
    )


def _schedule(config: Config, batch: Batch, num_ranks: int) -> Schedule:
    training = config.training
    throughput = config.benchmark.kind is BenchmarkKind.throughput
    return Schedule(
        max_epochs=training.max_epochs,
        eval_period=training.eval_period,
        eval_offset=training.eval_offset,
        target_accuracy=training.target_accuracy,
        batch_per_rank=batch.per_rank,
        eval_batch_per_rank=max(1, min(max(batch.per_rank, EVAL_BATCH), math.ceil(config.data.num_val / num_ranks))),
        num_batches=config.benchmark.num_batches if throughput else 0,
        num_warmup_batches=config.benchmark.num_warmup_batches if throughput else 0,
    )


def _launch_notes(config: Config, placement: Placement) -> list[str]:
    if config.launcher.name is LauncherName.rehearsal:
        return ["a rehearsal: its logs are made up, never scored as real and never packaged"]
    if config.launcher.name is LauncherName.local and placement.num_nodes > 1:
        return [
            f"launcher=local reaches one node, this plan has {placement.num_nodes}; "
            f"run it with launcher=mpirun hosts=[...] or launcher=slurm"
        ]
    return []
