"""Probing a machine: from the texts of /proc and /sys, and this very machine."""

from __future__ import annotations

import os
from pathlib import Path

from mlbench.preflight.machine import (
    parse_cpuinfo,
    parse_meminfo,
    parse_os_release,
    probe_machine,
    usable_cpus,
)

TWO_SOCKETS = "".join(
    f"processor\t: {number}\nmodel name\t: AMD EPYC  7742 64-Core\n"
    f"physical id\t: {number // 2}\ncore id\t\t: {number % 2}\n\n"
    for number in range(4)
)


def test_parse_cpuinfo_counts_sockets_and_cores() -> None:
    assert parse_cpuinfo(TWO_SOCKETS) == ("AMD EPYC 7742 64-Core", 2, 4)


def test_parse_cpuinfo_hyperthreads_are_one_core() -> None:
    assert parse_cpuinfo(TWO_SOCKETS + TWO_SOCKETS)[2] == 4


def test_parse_cpuinfo_without_topology_is_unknown_not_zero() -> None:
    assert parse_cpuinfo("processor : 0\nBogoMIPS : 50\n") == (None, None, None)


def test_parse_meminfo_is_in_units_of_1024_bytes() -> None:
    assert parse_meminfo("MemFree: 1 kB\nMemTotal:       263456 kB\n") == 269_778_944


def test_parse_meminfo_unreadable_is_unknown() -> None:
    assert parse_meminfo("MemTotal: lots\n") is None


def test_parse_os_release_takes_the_pretty_name() -> None:
    assert parse_os_release('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n') == "Debian GNU/Linux 12"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_usable_cpus_quota_of_the_control_group_counts(tmp_path: Path) -> None:
    allowed = len(os.sched_getaffinity(0))
    write(tmp_path, "sys/fs/cgroup/cpu.max", "100000 100000\n")

    assert usable_cpus(tmp_path) == 1
    write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert usable_cpus(tmp_path) == allowed


def test_probe_machine_firmware_names_the_system(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/dmi/id/sys_vendor", "Dell Inc.\n")
    write(tmp_path, "sys/class/dmi/id/product_name", "DSS 8440\n")

    assert probe_machine(root=tmp_path).system_name == "Dell Inc. DSS 8440"


def test_probe_machine_placeholder_of_the_firmware_is_no_name(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/dmi/id/sys_vendor", "To Be Filled By O.E.M.\n")
    write(tmp_path, "sys/class/dmi/id/product_name", "System Product Name\n")
    machine = probe_machine(root=tmp_path)

    assert machine.system_name == machine.hostname


def test_probe_machine_here_is_plausible() -> None:
    machine = probe_machine()

    assert machine.num_cpus >= 1
    assert machine.memory_bytes is None or machine.memory_bytes > 100_000_000
    assert machine.kernel
