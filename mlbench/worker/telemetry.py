"""What a host does while it trains, once a second; standard library only (pynvml where it can be imported).

    python -I start.py telemetry --folder DIR --mark MARK [--interval S] [--parent PID]

Writes DIR/<hostname>.jsonl: a first line {"schema_version", "host", "interval_s", ...}, then one line a second,
{"t": milliseconds since 1970, "m": {metric: value}}. Rates are over the second before. What cannot be read is left out,
never zero. Ends with TERM, or when its parent is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import processes

SCHEMA_VERSION = 1
_TREE_INTERVAL = 10
"""Samples between two looks for processes of the job: a look reads the environment of every process."""
_SECTOR_BYTES = 512
"""/proc/diskstats counts sectors of 512 bytes whatever the device's own are (Documentation/admin-guide/iostats)."""


def read_text(path: str) -> str:
    """A small file of /proc or /sys; empty when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def cpu_list(text: str) -> List[int]:
    """`0-3,8` as [0, 1, 2, 3, 8]."""
    found: List[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1)
    return found


def core_groups() -> Dict[str, List[int]]:
    """NUMA nodes and their CPUs; empty on a machine with one."""
    root = "/sys/devices/system/node"
    names = sorted(name for name in _listdir(root) if name.startswith("node") and name[4:].isdigit())
    groups = {name: cpu_list(read_text("%s/%s/cpulist" % (root, name))) for name in names}
    return groups if len(groups) > 1 else {}


def parse_cpu(text: str) -> Dict[str, Tuple[int, ...]]:
    """Lines `cpu`, `cpu0`, ... of /proc/stat as ticks."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break
        words = line.split()
        found[words[0]] = tuple(int(word) for word in words[1:9])
    return found


def cpu_shares(before: Sequence[int], now: Sequence[int]) -> Optional[Dict[str, float]]:
    """Shares of time since `before`: all that is not idle, user, system, waiting for I/O. None when no tick passed."""
    user, nice, system, idle, iowait, irq, softirq, steal = (b - a for a, b in zip(before, now))
    total = user + nice + system + idle + iowait + irq + softirq + steal
    if total <= 0:
        return None
    return {
        "": (total - idle - iowait) / total,
        "_user": (user + nice) / total,
        "_system": (system + irq + softirq) / total,
        "_iowait": iowait / total,
    }


def parse_memory(text: str) -> Dict[str, int]:
    """Bytes of used memory, page cache and so on, from /proc/meminfo."""
    kib = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            kib[name] = int(words[0])
    found = {}
    if "MemTotal" in kib and "MemAvailable" in kib:
        found["memory_used_bytes"] = (kib["MemTotal"] - kib["MemAvailable"]) * 1024
    for metric, name in (("page_cache_bytes", "Cached"), ("buffers_bytes", "Buffers"), ("dirty_bytes", "Dirty")):
        if name in kib:
            found[metric] = kib[name] * 1024
    return found


def parse_network(text: str) -> Dict[str, Tuple[int, int]]:
    """interface -> bytes (received, sent). Loopback is left out unless it is all there is, and so is an interface that
    has never carried a byte."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) >= 9 and words[0].isdigit() and (words[0], words[8]) != ("0", "0"):
            found[name.strip()] = (int(words[0]), int(words[8]))
    outside = {name: value for name, value in found.items() if name != "lo"}
    return outside or found


def parse_disks(text: str, whole: Iterable[str]) -> Dict[str, Tuple[int, int, int, int]]:
    """device -> (reads, bytes read, writes, bytes written) of whole devices."""
    wanted = set(whole)
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 10 and words[2] in wanted:
            found[words[2]] = (
                int(words[3]),
                int(words[5]) * _SECTOR_BYTES,
                int(words[7]),
                int(words[9]) * _SECTOR_BYTES,
            )
    return found


def whole_disks() -> List[str]:
    """Block devices that are no partition, loop or memory disk."""
    return [name for name in _listdir("/sys/block") if not name.startswith(("loop", "ram", "zram", "dm-", "md"))]


def parse_process(stat: str) -> Optional[Tuple[int, int]]:
    """(ticks of CPU time, bytes of memory) of one process, from /proc/<pid>/stat."""
    words = stat.rpartition(")")[2].split()
    if len(words) < 22:
        return None
    return int(words[11]) + int(words[12]), int(words[21]) * os.sysconf("SC_PAGE_SIZE")


def _listdir(path: str) -> List[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


class Gpus:
    """NVML, where it is: use, memory, power, clocks, temperature, throttling of each GPU."""

    _THROTTLE = {"power": 0x4, "hw_slowdown": 0x8, "thermal": 0x20 | 0x40, "power_brake": 0x80}
    """Bits of nvmlClocksThrottleReasons (nvml.h): software power cap, hardware slowdown, thermal, power brake."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: List[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - pynvml's own errors exist only when it can be imported
            self.absent = "%s: %s" % (type(error).__name__, error)
            return
        self.absent = ""
        self._nvml = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def sample(self) -> Dict[str, float]:
        found: Dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for metric, value in self._of(handle):
                found["gpu%d_%s" % (index, metric)] = value
        return found

    def _of(self, handle: Any) -> List[Tuple[str, float]]:
        nvml = self._nvml
        asks = (
            ("use_share", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0),
            ("memory_bytes", lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
            ("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0),
            ("sm_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
            ("memory_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6),
            ("temperature_c", lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        )
        found = []
        for metric, ask in asks:
            try:
                found.append((metric, ask()))
            except nvml.NVMLError:
                continue  # this GPU does not tell; left out, not zero
        try:
            reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            found += [("throttle_" + name, float(bool(reasons & bits))) for name, bits in self._THROTTLE.items()]
        except nvml.NVMLError:
            pass
        return found


class Sampler:
    """Keeps the counters of the last sample, so that the next can tell rates."""

    def __init__(self, mark: str, gpus: Gpus) -> None:
        self._mark = mark
        self._gpus = gpus
        self._groups = core_groups()
        self._disks = whole_disks()
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._pids: List[int] = []
        self._rank_ticks: Dict[int, int] = {}
        self._count = 0
        self._before: Dict[str, Dict[str, Any]] = {}
        self._at = 0.0

    def sample(self) -> Dict[str, float]:
        """Metrics since the last call; the first call has no rates."""
        now = time.monotonic()
        elapsed_s = now - self._at if self._before else 0.0
        counters: Dict[str, Dict[str, Any]] = {
            "cpu": parse_cpu(read_text("/proc/stat")),
            "net": parse_network(read_text("/proc/net/dev")),
            "disk": parse_disks(read_text("/proc/diskstats"), self._disks),
        }
        found: Dict[str, float] = {}
        found.update(parse_memory(read_text("/proc/meminfo")))
        found.update(self._ranks(elapsed_s))
        found.update(self._gpus.sample())
        if self._before and elapsed_s > 0:
            found.update(self._cpu(counters["cpu"]))
            found.update(self._rates("net", counters["net"], ("rx_bytes", "tx_bytes"), elapsed_s))
            names = ("reads", "read_bytes", "writes", "write_bytes")
            found.update(self._rates("disk", counters["disk"], names, elapsed_s))
        self._before, self._at = counters, now
        self._count += 1
        return found

    def _cpu(self, now: Mapping[str, Sequence[int]]) -> Dict[str, float]:
        before = self._before["cpu"]
        found: Dict[str, float] = {}
        groups = {"cpu": ["cpu"]}
        groups.update({"cpu_" + name: ["cpu%d" % cpu for cpu in cpus] for name, cpus in self._groups.items()})
        for group, names in groups.items():
            known = [name for name in names if name in before and name in now]
            if not known:
                continue
            first = [sum(column) for column in zip(*(before[name] for name in known))]
            last = [sum(column) for column in zip(*(now[name] for name in known))]
            shares = cpu_shares(first, last)
            for part, share in (shares or {}).items():
                if group == "cpu" or not part:
                    found["%s%s_share" % (group, part)] = share
        return found

    def _rates(
        self, kind: str, now: Mapping[str, Sequence[int]], names: Sequence[str], elapsed_s: float
    ) -> Dict[str, float]:
        found = {}
        before = self._before[kind]
        for device, values in now.items():
            for position, name in enumerate(names):
                if device in before and values[position] >= before[device][position]:
                    key = "%s_%s_%s_per_s" % (kind, device, name)
                    found[key] = (values[position] - before[device][position]) / elapsed_s
        return found

    def _ranks(self, elapsed_s: float) -> Dict[str, float]:
        """The process tree of the job on this host: cores in use and memory."""
        if self._count % _TREE_INTERVAL == 0 or not self._pids:
            self._pids = [process.pid for process in processes.find(self._mark) if process.pid != os.getpid()]
        ticks: Dict[int, int] = {}
        memory = 0
        for pid in self._pids:
            values = parse_process(read_text("/proc/%d/stat" % pid))
            if values is not None:
                ticks[pid], size = values
                memory += size
        before, self._rank_ticks = self._rank_ticks, ticks
        if not ticks:
            return {}
        found = {"ranks_memory_bytes": float(memory), "ranks_processes": float(len(ticks))}
        common = [pid for pid in ticks if pid in before]
        if elapsed_s > 0 and common:
            used = sum(ticks[pid] - before[pid] for pid in common)
            found["ranks_cpu_cores"] = used * self._tick_s / elapsed_s
        return found


def _head(host: str, interval_s: float, gpus: Gpus) -> Dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "host": host,
        "interval_s": interval_s,
        "num_cpus": os.cpu_count(),
        "gpus_absent": gpus.absent or None,
    }


def _rounded(metrics: Mapping[str, float]) -> Dict[str, float]:
    return {name: (round(value, 4) if abs(value) < 1000 else round(value)) for name, value in metrics.items()}


def record(folder: str, mark: str, interval_s: float, parent: int) -> None:
    """Sample until TERM, or until the process `parent` is no longer ours."""
    ending = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    host = socket.gethostname()
    gpus = Gpus()
    sampler = Sampler(mark, gpus)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, host + ".jsonl"), "a", encoding="utf-8", buffering=1) as stream:
        stream.write(json.dumps(_head(host, interval_s, gpus)) + "\n")
        due = time.monotonic()
        while os.getppid() == parent:
            line = {"t": int(time.time() * 1000), "m": _rounded(sampler.sample())}
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
            # Whole intervals from the start: a slow sample does not shift all that follow.
            due += interval_s * (int(max(0.0, time.monotonic() - due) / interval_s) + 1)
            if signal.sigtimedwait(ending, max(0.0, due - time.monotonic())) is not None:
                return


def main(arguments: Sequence[str]) -> int:
    """Status 0 after TERM."""
    parser = argparse.ArgumentParser(prog="telemetry", description="Record what this host does, once a second.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mark", required=True, help="MLBENCH_JOB of the processes to follow")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--parent", type=int, default=os.getppid(), help="end when this is no longer the parent")
    options = parser.parse_args(arguments)
    record(options.folder, options.mark, options.interval, options.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
