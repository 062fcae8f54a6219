"""Whole command lines of the mpirun launcher."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlbench.choices import Binding
from mlbench.launch.base import Launch
from mlbench.launch.command import ISLAND
from mlbench.launch.mpirun import MpirunLauncher, is_this_host, remote_agent
from mlbench.plan.types import Host

OWN = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "LD_LIBRARY_PATH": "/opt/lib"}
# The hosts of the reference test: 8 servers with 2 GPU slots each (facts.md, ECS).
DSS8440 = tuple(Host(name=f"dl-worker-{number:02}", slots=2) for number in range(1, 9))


def a_launch(hosts: tuple[Host, ...] = DSS8440) -> Launch:
    return Launch(
        command=("/opt/venv/bin/python", "train.py", "--name", "two words"),
        num_ranks=sum(host.slots for host in hosts),
        hosts=hosts,
        environment={"NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": "8"},
        mark="set-1.run_0.0",
        cwd=Path("/shared/runs/set-1"),
        log=Path("/shared/runs/set-1/launcher.log"),
        time_limit_s=600,
    )


def a_launcher() -> MpirunLauncher:
    return MpirunLauncher(
        mpirun="/usr/bin/mpirun",
        own=OWN,
        python="/opt/venv/bin/python",
        agent=remote_agent(None, 10.0),
        network_interface="ib0",
        this_host="login-1",
    )


def test_mpirun_reference_hosts_whole_command() -> None:
    assert a_launcher().argv(a_launch()) == [
        *("/usr/bin/mpirun", "-np", "16", "-H"),
        "dl-worker-01:2,dl-worker-02:2,dl-worker-03:2,dl-worker-04:2,"
        "dl-worker-05:2,dl-worker-06:2,dl-worker-07:2,dl-worker-08:2",
        *("--map-by", "slot", "--bind-to", "none", "--report-bindings"),
        *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
        *("--mca", "btl_tcp_if_include", "ib0", "--mca", "oob_tcp_if_include", "ib0"),
        *("--mca", "plm_rsh_agent", "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15"),
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--wdir", "/shared/runs/set-1"),
        *("-x", "LD_LIBRARY_PATH", "-x", "MLBENCH_JOB", "-x", "NCCL_SOCKET_IFNAME", "-x", "OMP_NUM_THREADS"),
        *("-x", "PATH"),
        *("/opt/venv/bin/python", "train.py", "--name", "two words"),
    ]


def test_mpirun_only_this_host_needs_no_agent() -> None:
    launcher = replace(a_launcher(), this_host="login-1.cluster.example", network_interface=None, own={})
    launch = a_launch((Host(name="login-1", slots=2),))
    assert launcher.argv(launch) == [
        *("/usr/bin/mpirun", "-np", "2", "-H", "login-1:2"),
        *("--map-by", "slot", "--bind-to", "none", "--report-bindings"),
        *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
        *("--wdir", "/shared/runs/set-1"),
        *("-x", "MLBENCH_JOB", "-x", "NCCL_SOCKET_IFNAME", "-x", "OMP_NUM_THREADS"),
        *("/opt/venv/bin/python", "train.py", "--name", "two words"),
    ]
    assert launcher.afterwards(launch) == []


def test_mpirun_ranks_that_compute_on_cpus_yield_while_they_wait() -> None:
    argv = replace(a_launcher(), yield_when_idle=True).argv(a_launch())
    assert argv[argv.index("mpi_yield_when_idle") - 1 :][:3] == ["--mca", "mpi_yield_when_idle", "1"]
    assert "mpi_yield_when_idle" not in a_launcher().argv(a_launch())


def test_mpirun_uneven_slots_are_passed_as_given() -> None:
    argv = a_launcher().argv(a_launch((Host(name="a", slots=5), Host(name="b", slots=4))))
    assert argv[1:5] == ["-np", "9", "-H", "a:5,b:4"]


@pytest.mark.parametrize("binding", list(Binding))
def test_mpirun_binding_of_the_profile_is_used(binding: Binding) -> None:
    argv = replace(a_launcher(), binding=binding).argv(a_launch())
    assert argv[argv.index("--bind-to") + 1] == binding.value


def test_mpirun_inside_an_allocation_names_no_hosts_and_no_agent() -> None:
    argv = replace(a_launcher(), hosts_from_scheduler=True).argv(a_launch())
    assert "-H" not in argv
    assert "plm_rsh_agent" not in argv


def test_mpirun_extra_arguments_stand_before_the_command() -> None:
    launcher = replace(a_launcher(), extra_args=("--mca", "btl_base_verbose", "30"))
    assert launcher.argv(a_launch())[-7:-4] == ["--mca", "btl_base_verbose", "30"]


def test_mpirun_environment_is_what_is_listed_and_root_only_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    expected = {**OWN, "NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": "8", "MLBENCH_JOB": "set-1.run_0.0"}
    assert a_launcher().environment(a_launch()) == expected
    monkeypatch.setattr(os, "getuid", lambda: 0)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert a_launcher().environment(a_launch()) == {**expected, **root}


def test_mpirun_afterwards_sweeps_every_other_host() -> None:
    launch = a_launch((Host(name="login-1", slots=1), Host(name="dl-worker-01", slots=1)))
    assert a_launcher().afterwards(launch) == [
        [
            *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "dl-worker-01"),
            f"/opt/venv/bin/python -I -S {ISLAND}/processes.py set-1.run_0.0",
        ]
    ]


def test_remote_agent_given_is_split_like_a_shell_does() -> None:
    assert remote_agent("rsh -l 'a user'", 10) == ("rsh", "-l", "a user")


@pytest.mark.parametrize(("limit_s", "option"), [(0.2, "ConnectTimeout=1"), (9.6, "ConnectTimeout=10")])
def test_remote_agent_limit_is_whole_seconds_of_at_least_one(limit_s: float, option: str) -> None:
    assert option in remote_agent(None, limit_s)


@pytest.mark.parametrize(
    ("host", "own", "here"),
    [
        ("localhost", "a", True),
        ("a", "a.example.org", True),
        ("a.example.org", "a.example.org", True),
        ("a", "b", False),
        ("a2", "a", False),
    ],
)
def test_is_this_host_knows_short_and_full_names(host: str, own: str, here: bool) -> None:
    assert is_this_host(host, own) is here
