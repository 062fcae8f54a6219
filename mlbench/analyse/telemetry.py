"""What telemetry says about a run: throttling, an input pipeline that cannot keep up, bytes that came from storage.

The reasoning is that of the reference papers: a low GPU use beside a busy CPU means that the input pipeline is the
bottleneck; samples/s times mean image size must agree with what network and disks moved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GPU_LOW = 0.70
CPU_HIGH = 0.85
THROTTLED_SHARE = 0.05
"""A GPU that was held back in more than one second of twenty; shorter episodes happen on healthy systems."""
CLOCK_DROP = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A finding about one host. `rule` is an id of docs/rules.md."""

    rule: str
    host: str
    text: str


def findings_of_host(host: str, metrics: Mapping[str, Sequence[float]]) -> list[Evidence]:
    """Findings from the time lines of one host during one run.

    Args: metrics: metric -> values of the seconds between run_start and run_stop; a metric that was not measured is
        not there, and no finding rests on it.
    """
    found = [*_throttled(host, metrics), *_clock_drops(host, metrics)]
    gpu = _mean_over(metrics, re.compile(r"gpu\d+_use_share"))
    cpu = _mean(metrics.get("cpu_share", ()))
    if gpu is not None and cpu is not None and gpu < GPU_LOW and cpu > CPU_HIGH:
        found.append(
            Evidence(
                rule="TELEMETRY-INPUT",
                host=host,
                text=f"GPUs {gpu:.0%} in use while the CPUs were {cpu:.0%} busy (below {GPU_LOW:.0%} and above "
                f"{CPU_HIGH:.0%}): the input pipeline is the bottleneck; more decoding threads, or decode on the GPU",
            )
        )
    return found


def _throttled(host: str, metrics: Mapping[str, Sequence[float]]) -> list[Evidence]:
    found = []
    for name in sorted(metrics):
        match = re.fullmatch(r"(gpu\d+)_throttle_(\w+)", name)
        share = _mean(metrics[name]) if match else None
        # A power cap is how these GPUs are sold (250 W, 400 W); it holds back by design and is not a fault.
        if match and match[2] != "power" and share is not None and share > THROTTLED_SHARE:
            found.append(
                Evidence(
                    rule="TELEMETRY-THROTTLE",
                    host=host,
                    text=f"{match[1]} was held back ({match[2].replace('_', ' ')}) in {share:.0%} of the run; "
                    "check cooling and power",
                )
            )
    return found


def _clock_drops(host: str, metrics: Mapping[str, Sequence[float]]) -> list[Evidence]:
    """A GPU whose clock under load lies well below its neighbours': one slow GPU slows all ranks."""
    clocks = {
        name.partition("_")[0]: mean
        for name in sorted(metrics)
        if name.endswith("_sm_clock_hz") and (mean := _mean(metrics[name])) is not None
    }
    if len(clocks) < 2:
        return []
    middle = sorted(clocks.values())[len(clocks) // 2]
    return [
        Evidence(
            rule="TELEMETRY-SLOW-GPU",
            host=host,
            text=f"{gpu} ran at {clock / 1e6:.0f} MHz, the middle one of this host at {middle / 1e6:.0f} MHz; "
            "the slowest GPU sets the pace of all",
        )
        for gpu, clock in clocks.items()
        if clock < middle * (1 - CLOCK_DROP)
    ]


def bytes_in_per_s(metrics: Mapping[str, Sequence[float]]) -> float | None:
    """Mean rate at which a host read from its disks and received from its networks; None when neither was measured."""
    pattern = re.compile(r"(net_.+_rx_bytes|disk_.+_read_bytes)_per_s")
    means = [mean for name in metrics if pattern.fullmatch(name) and (mean := _mean(metrics[name])) is not None]
    return sum(means) if means else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_over(metrics: Mapping[str, Sequence[float]], pattern: re.Pattern[str]) -> float | None:
    means = [mean for name in metrics if pattern.fullmatch(name) and (mean := _mean(metrics[name])) is not None]
    return sum(means) / len(means) if means else None
