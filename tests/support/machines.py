"""A machine that is always the same."""

from __future__ import annotations

from mlbench.plan.machine import Machine


def a_machine() -> Machine:
    """Four CPUs, 16 GB, no GPU."""
    return Machine(
        hostname="box",
        system_name="Lab Box",
        cpu_model="Test CPU",
        num_sockets=1,
        num_cores=4,
        num_cpus=4,
        memory_bytes=16_000_000_000,
        gpus=(),
        operating_system="Debian",
        kernel="6.1",
    )
