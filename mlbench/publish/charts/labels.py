"""Names and numbers as plots and tables write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlbench.store.tables import RunSet
from mlbench.wording import count_of


def num_workers(run_set: RunSet) -> int | None:
    """What a rate is spread over: accelerators, else ranks (CPU processes)."""
    return run_set.num_accelerators or run_set.num_ranks


def worker_noun(run_set: RunSet) -> str:
    return "GPU" if run_set.num_accelerators else "CPU rank"


def size_label(run_set: RunSet) -> str:
    """`32 GPUs`, `2 CPU ranks`; `size not known`."""
    count = num_workers(run_set)
    return count_of(count, worker_noun(run_set)) if count else "size not known"


def set_labels(run_sets: Sequence[RunSet]) -> list[str]:
    """The shortest names that tell the run sets apart: by size, by system, by both, else the public ids."""
    for name in (_by_system, _by_round, _by_size):
        labels = [name(run_set) for run_set in run_sets]
        if len(set(labels)) == len(labels):
            return labels
    return [run_set.run_set for run_set in run_sets]


def _by_system(run_set: RunSet) -> str:
    return run_set.system or run_set.run_set


def _by_round(run_set: RunSet) -> str:
    return " ".join(part for part in (run_set.round, run_set.org, run_set.system) if part) or run_set.run_set


def _by_size(run_set: RunSet) -> str:
    return f"{run_set.system or run_set.run_set}, {size_label(run_set)}"


def grouped(value: float, digits: int = 4) -> str:
    """A number with `digits` significant figures and thousands grouped: `78,454`, `10.77`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-3:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def minutes_or_seconds(seconds: float) -> str:
    """`36.370 min` from ten minutes on, else `219.51 s`."""
    return f"{seconds / 60:.3f} min" if seconds >= 600 else f"{seconds:.2f} s"


def rate_unit(largest_bytes_per_s: float) -> tuple[float, str]:
    """Divisor and unit (SI) in which the largest rate is a readable number."""
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s")):
        if largest_bytes_per_s >= factor:
            return factor, unit
    return 1.0, "bytes/s"
