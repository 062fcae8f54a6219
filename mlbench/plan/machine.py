"""What the plan must know of the machine that mlbench runs on; `mlbench.preflight.machine` probes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`num_cpus` are the logical CPUs that a process may use here (affinity and control group counted in)."""

    hostname: str
    system_name: str
    """Maker's name of the machine, or the host's name when the maker gave none."""
    cpu_model: str | None
    num_sockets: int | None
    num_cores: int | None
    """Physical cores of the whole machine."""
    num_cpus: int
    memory_bytes: int | None
    gpus: tuple[Gpu, ...]
    operating_system: str | None
    kernel: str | None
