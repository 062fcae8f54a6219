"""What the numbers were measured on, and how much of the machine somebody else used meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

BUSY_CORES = 0.5
"""Use by others above this makes wall times doubtful."""
_PACKAGES = ("mlbench", "mxnet", "horovod", "numpy", "mpi4py", "mlperf-logging", "sqlalchemy", "simplejpeg")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    date: str
    cpu_model: str
    num_cpus: int
    memory_gib: float
    kernel: str
    python: str
    commit: str | None
    packages: dict[str, str]
    load_average: tuple[float, float, float]


def machine_facts() -> MachineFacts:
    """Facts of this machine now."""
    return MachineFacts(
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        cpu_model=_cpu_model(),
        num_cpus=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        kernel=platform.release(),
        python=platform.python_version(),
        commit=_commit(),
        packages=_versions(),
        load_average=os.getloadavg(),
    )


def _cpu_model() -> str:
    """Name and the numbers that tell apart processors of one name."""
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    return f"{name} (family {facts.get('cpu family', '?')} model {facts.get('model', '?')})"


def _commit() -> str | None:
    """The commit of the working tree, with + when files differ from it; None outside a repository."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _own_cpu_s() -> float:
    """Processor time of this process and of every child that has ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _busy_s() -> float | None:
    """Processor time of the whole machine since it started; None where the kernel does not tell."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) for word in first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class LoadWatch:
    """From its making on: how many cores other processes keep busy. Better than the load average, which counts us."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy_s, self._own_s = _busy_s(), _own_cpu_s()

    def others_cores(self) -> float | None:
        """Mean cores busy with other work, at least 0; None when it cannot be known."""
        busy_s, elapsed_s = _busy_s(), time.monotonic() - self._began
        if busy_s is None or self._busy_s is None or elapsed_s <= 0:
            return None
        return max(0.0, (busy_s - self._busy_s - (_own_cpu_s() - self._own_s)) / elapsed_s)
