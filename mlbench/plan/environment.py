"""Environment of every rank: what the profiles say, and what was found best for the rest (docs/performance.md)."""

from __future__ import annotations

from mlbench.choices import Device
from mlbench.config import Config

CPU_SETTINGS = {
    "GOMP_SPINCOUNT": "1000",
    "HOROVOD_CYCLE_TIME": "5",
    "HOROVOD_FUSION_THRESHOLD": "8388608",
}
"""For ranks that compute on the very cores that also sum the gradients, where the profile names no other value.

GOMP_SPINCOUNT: threads of libgomp spin for milliseconds at the end of each operator while they wait for the slowest;
where another process needs a core for a moment, that stalls a rank of several threads for minutes. Short spinning costs
nothing measurable. HOROVOD_CYCLE_TIME, milliseconds: Horovod's thread wakes once a cycle on all ranks and takes the
core from training; a step takes hundreds of milliseconds. HOROVOD_FUSION_THRESHOLD, bytes: a fusion buffer that stays
in the cache is filled and emptied faster than Horovod's 128 MiB."""


def rank_environment(config: Config, device: Device, threads_per_rank: int) -> dict[str, str]:
    """Variables of every rank; a profile's value goes before ours."""
    environment: dict[str, str] = {}
    for profile in (config.hardware.compute, config.hardware.storage):
        if profile is not None:
            environment.update(profile.environment)
    environment.setdefault("OMP_NUM_THREADS", str(threads_per_rank))
    if device is Device.cpu:
        for name, value in CPU_SETTINGS.items():
            environment.setdefault(name, value)
    return environment
