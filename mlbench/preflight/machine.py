"""Probe this machine: CPU, memory, GPUs, as the plan and the records need them."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

from mlbench.plan.machine import Gpu, Machine

_DMI = Path("/sys/class/dmi/id")
_NO_NAMES = {"", "none", "default string", "to be filled by o.e.m.", "system product name", "system manufacturer"}


def probe_machine(*, root: Path = Path("/")) -> Machine:
    """The machine that this process runs on. `root` is where /proc and /sys are read (for tests)."""
    hostname = socket.gethostname() or "localhost"
    cpu_model, num_sockets, num_cores = parse_cpuinfo(_read(root / "proc/cpuinfo"))
    return Machine(
        hostname=hostname,
        system_name=_system_name(root) or hostname,
        cpu_model=cpu_model,
        num_sockets=num_sockets,
        num_cores=num_cores,
        num_cpus=usable_cpus(root),
        memory_bytes=parse_meminfo(_read(root / "proc/meminfo")),
        gpus=probe_gpus(),
        operating_system=parse_os_release(_read(root / "etc/os-release")),
        kernel=platform.release() or None,
    )


def usable_cpus(root: Path = Path("/")) -> int:
    """Logical CPUs that this process may use: its affinity mask, cut by the control group's quota."""
    allowed = len(os.sched_getaffinity(0))
    words = _read(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        allowed = min(allowed, max(1, int(words[0]) // int(words[1])))
    return allowed


def parse_cpuinfo(text: str) -> tuple[str | None, int | None, int | None]:
    """Model name, sockets and physical cores from the text of /proc/cpuinfo; None for what it does not say."""
    model: str | None = None
    sockets: set[str] = set()
    cores: set[tuple[str, str]] = set()
    socket_id = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name" and model is None:
            model = " ".join(value.split())
        elif key == "physical id":
            socket_id = value
            sockets.add(value)
        elif key == "core id":
            cores.add((socket_id, value))
    return model, len(sockets) or None, len(cores) or None


def parse_meminfo(text: str) -> int | None:
    """MemTotal of /proc/meminfo in bytes; the file says kB and means 1024 bytes."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["MemTotal:"] and len(words) == 3 and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def parse_os_release(text: str) -> str | None:
    """PRETTY_NAME of /etc/os-release."""
    for line in text.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip('"') or None
    return None


def probe_gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs that the driver shows; empty without a driver."""
    if not Path("/dev/nvidiactl").exists():
        # Without the driver's device there is no GPU to ask for, and importing pynvml would only cost time.
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount()))
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object) -> Gpu:
    import pynvml

    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory: int | None = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        memory = None
    return Gpu(name=name.decode() if isinstance(name, bytes) else str(name), memory_bytes=memory)


def _system_name(root: Path) -> str | None:
    """Maker and product of the machine's firmware tables, without the words that stand for nothing."""
    folder = root / _DMI.relative_to("/")
    words = [_read(folder / name).strip() for name in ("sys_vendor", "product_name")]
    named = [word for word in words if word.lower() not in _NO_NAMES]
    return " ".join(dict.fromkeys(named)) or None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
