"""Settings that can never be valid, refused before anything is launched; each in one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from mlbench.choices import BenchmarkKind, CacheMode, Division
from mlbench.config import BenchmarkConfig, Config, TrainingConfig
from mlbench.errors import ConfigError, near_miss
from mlbench.plan.object_store import check_object_store
from mlbench.plan.values import check_values

RULESETS = ("0.7.0", "1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0")
"""The rulesets of MLPerf Training that know ResNet-50."""
CLOSED_REPEATS = 5
CLOSED_TARGET = 0.759
"""Top-1 accuracy, rules of ResNet-50 from 0.7.0 to 4.0.0."""


def check_settings(config: Config) -> None:
    """Raise ConfigError for the first setting that no machine could run or no rule allows."""
    check_values(config)
    check_object_store(config)
    _at_least("repeats", config.repeats, 1)
    _at_least("warmup_runs", config.warmup_runs, 0)
    if config.seed is not None:
        _at_least("seed", config.seed, 0)
    for key in ("max_minutes", "no_record_s", "term_grace_s"):
        _above_zero(f"limits.{key}", getattr(config.limits, key))
    _one_of("submission.ruleset", config.submission.ruleset, RULESETS)
    rehearsal = config.launcher.rehearsal
    if rehearsal.fault_in_run is not None:
        _at_least("launcher.rehearsal.fault_in_run", rehearsal.fault_in_run, 0)
    _above_zero("launcher.rehearsal.seconds_per_run", rehearsal.seconds_per_run)
    _at_least("launcher.rehearsal.epochs", rehearsal.epochs, 1)
    _check_benchmark(config.benchmark)
    _check_training(config.training)
    if config.submission.division is Division.closed and config.benchmark.kind is BenchmarkKind.train:
        _check_closed(config)


def _check_benchmark(benchmark: BenchmarkConfig) -> None:
    if not benchmark.stages:
        raise ConfigError("benchmark.stages is empty; expected one or more of allreduce, storage, train")
    if len(set(benchmark.stages)) < len(benchmark.stages):
        raise ConfigError("benchmark.stages names a stage twice")
    if benchmark.kind is BenchmarkKind.throughput:
        _at_least("benchmark.num_batches", benchmark.num_batches, 1)
        _at_least("benchmark.num_warmup_batches", benchmark.num_warmup_batches, 0)
    allreduce = benchmark.allreduce
    _at_least("benchmark.allreduce.min_bytes", allreduce.min_bytes, 1)
    _at_least("benchmark.allreduce.max_bytes", allreduce.max_bytes, allreduce.min_bytes)
    _at_least("benchmark.allreduce.num_iterations", allreduce.num_iterations, 1)
    _at_least("benchmark.allreduce.num_warmup", allreduce.num_warmup, 0)
    storage = benchmark.storage
    _above_zero("benchmark.storage.runtime_s", storage.runtime_s)
    _above_zero("benchmark.storage.max_file_gb", storage.max_file_gb)
    if storage.file_size_gb is not None:
        _above_zero("benchmark.storage.file_size_gb", storage.file_size_gb)
    for key in ("block_random_bytes", "block_sequential_bytes", "iodepth"):
        _at_least(f"benchmark.storage.{key}", getattr(storage, key), 1)


def _check_training(training: TrainingConfig) -> None:
    for key in ("max_epochs", "eval_period", "min_batch_per_rank", "gradient_accumulation_steps"):
        _at_least(f"training.{key}", getattr(training, key), 1)
    _at_least("training.eval_offset", training.eval_offset, 0)
    for key in ("base_learning_rate", "batch_norm_epsilon"):
        _above_zero(f"training.{key}", getattr(training, key))
    if not 0 < training.target_accuracy < 1:
        raise ConfigError(
            f"training.target_accuracy={training.target_accuracy:g}: expected a share above 0 and below 1 "
            f"(every ruleset refuses an accuracy of exactly 1)"
        )


def _check_closed(config: Config) -> None:
    if config.repeats != CLOSED_REPEATS:
        raise ConfigError(
            f"repeats={config.repeats}: the closed division scores {CLOSED_REPEATS} runs of ResNet-50; "
            f"write repeats={CLOSED_REPEATS} or submission.division=open"
        )
    if config.cache is CacheMode.none:
        raise ConfigError(
            "cache=none: the closed division wants a cold cache before each run; "
            "write cache=auto or submission.division=open"
        )
    if config.benchmark.mlperf_name is None or config.benchmark.model != "resnet50":
        raise ConfigError(
            f"benchmark {config.benchmark.name} with model {config.benchmark.model} is none of MLPerf's; "
            f"write benchmark=resnet50 or submission.division=open"
        )
    if config.training.target_accuracy != CLOSED_TARGET:
        raise ConfigError(
            f"training.target_accuracy={config.training.target_accuracy:g}: the closed division trains to "
            f"{CLOSED_TARGET:g}; another target is allowed with submission.division=open"
        )


def _at_least(key: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise ConfigError(f"{key}={value}: expected a whole number of at least {lowest}")


def _above_zero(key: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{key}={value:g}: expected a number above 0")


def _one_of(key: str, value: str, known: Iterable[str]) -> None:
    names = list(known)
    if value not in names:
        raise ConfigError(f"{key}={value}: expected one of {', '.join(names)}{near_miss(value, names)}")
