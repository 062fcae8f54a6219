"""Ranks on nodes: whole nodes, the nearest counts, hosts with slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlbench.errors import ConfigError
from mlbench.plan.types import Plan

Planned = Callable[..., Plan]


def hosts(plan: Plan) -> list[tuple[str, int]]:
    return [(host.name, host.slots) for host in plan.placement.hosts]


def test_place_nothing_given_is_two_ranks_here(planned: Planned) -> None:
    plan = planned()

    assert hosts(plan) == [("localhost", 2)]
    assert plan.num_accelerators == 0
    assert plan.placement.known


def test_place_ranks_fill_a_node_before_the_next(planned: Planned) -> None:
    plan = planned("+hardware=dgxa100", "gpus=16")

    assert [(rank.rank, rank.node, rank.local_rank) for rank in plan.placement.ranks][6:10] == [
        (6, 0, 6),
        (7, 0, 7),
        (8, 1, 0),
        (9, 1, 1),
    ]
    assert not plan.placement.known


def test_place_part_of_one_node_is_said(planned: Planned) -> None:
    plan = planned("+hardware=dgxa100", "gpus=3")

    assert hosts(plan) == [("localhost", 3)]
    assert "3 of the 8 GPUs of one node are used" in plan.notes


@pytest.mark.parametrize(("gpus", "below", "above"), [(12, 8, 16), (9, 8, 16), (31, 24, 32)])
def test_place_count_that_fills_no_nodes_names_the_nearest(planned: Planned, gpus: int, below: int, above: int) -> None:
    with pytest.raises(ConfigError, match=f"nearest counts are {below} and {above}"):
        planned("+hardware=dgxa100", f"gpus={gpus}")


@pytest.mark.parametrize("gpus", [0, -1])
def test_place_no_rank_is_refused(planned: Planned, gpus: int) -> None:
    with pytest.raises(ConfigError, match="expected a whole number of at least 1"):
        planned(f"gpus={gpus}")


def test_place_the_paper_run_is_eight_part_filled_nodes(planned: Planned) -> None:
    plan = planned("+hardware=[dss8440,ecs]", "gpus=16", "hardware.compute.gpus_per_node=2")

    # dl-worker-01 to 08 with two slots each: the object-storage test.
    assert [host.slots for host in plan.placement.hosts] == [2] * 8
    assert any(note.startswith("part-filled nodes: 2 GPUs of each node") for note in plan.notes)
    assert len(plan.data.worker.s3_endpoints) == 5


@pytest.mark.parametrize("size", [4, 8, 10])
def test_place_sizes_of_the_chassis_are_no_part_filled_nodes(planned: Planned, size: int) -> None:
    plan = planned("+hardware=dss8440", f"gpus={size}", f"hardware.compute.gpus_per_node={size}")

    assert not any("part-filled" in note for note in plan.notes)


def test_place_more_gpus_than_the_chassis_takes_is_refused(planned: Planned) -> None:
    with pytest.raises(ConfigError, match="takes at most 10"):
        planned("+hardware=dss8440", "hardware.compute.gpus_per_node=16")


def test_place_more_nodes_than_the_profile_describes_is_said(planned: Planned) -> None:
    assert "profile dgxa100 describes 4 nodes, this plan needs 512" in planned("+hardware=dgxa100", "gpus=4096").notes


def test_place_more_ranks_than_cpus_is_said(planned: Planned) -> None:
    assert "8 ranks share 4 CPUs" in planned("gpus=8").notes[0]


def test_place_hosts_give_the_number_of_ranks(planned: Planned) -> None:
    plan = planned("launcher=mpirun", "hosts=[a:5,b:4]")

    assert hosts(plan) == [("a", 5), ("b", 4)]
    assert plan.num_ranks == 9
    assert plan.placement.known


def test_place_hosts_without_slots_take_a_node_of_the_profile(planned: Planned) -> None:
    assert hosts(planned("launcher=mpirun", "hosts=[a,b]", "+hardware=dgxa100")) == [("a", 8), ("b", 8)]


def test_place_hosts_without_slots_share_the_ranks(planned: Planned) -> None:
    assert hosts(planned("launcher=mpirun", "hosts=[a,b]", "gpus=6")) == [("a", 3), ("b", 3)]


def test_place_hosts_that_cannot_share_evenly_are_refused(planned: Planned) -> None:
    with pytest.raises(ConfigError, match="cannot be shared evenly by 2 hosts"):
        planned("launcher=mpirun", "hosts=[a,b]", "gpus=5")


@pytest.mark.parametrize("gpus", [4, 6, 10])
def test_place_ranks_that_fill_no_whole_hosts_are_refused(planned: Planned, gpus: int) -> None:
    with pytest.raises(ConfigError, match=r"does not fit the slots of the hosts \(a:5, b:4; 9 in all\)"):
        planned("launcher=mpirun", "hosts=[a:5,b:4]", f"gpus={gpus}")


def test_place_hosts_left_over_are_said(planned: Planned) -> None:
    plan = planned("launcher=mpirun", "hosts=[a:5,b:4]", "gpus=5")

    assert hosts(plan) == [("a", 5)]
    assert "hosts not used: b" in plan.notes


def test_place_hosts_left_over_in_the_closed_division_are_refused(planned: Planned) -> None:
    closed = ("submission.division=closed", "+hardware=dgxa100", "launcher=mpirun")
    with pytest.raises(ConfigError, match="name only the hosts that take part"):
        planned(*closed, "hosts=[a:8,b:8]", "gpus=8")


def test_place_host_with_other_slots_than_the_profile_is_refused(planned: Planned) -> None:
    with pytest.raises(ConfigError, match=r"add hardware.compute.gpus_per_node=2"):
        planned("+hardware=dgxa100", "launcher=mpirun", "hosts=[a:2,b:2]")


def test_place_hosts_with_the_local_launcher_are_refused(planned: Planned) -> None:
    with pytest.raises(ConfigError, match="add launcher=mpirun or launcher=slurm"):
        planned("hosts=[a:1,b:1]")


def test_place_hosts_of_a_scheduler_are_not_known_yet(planned: Planned) -> None:
    plan = planned("launcher=slurm", "+hardware=dgxa100", "gpus=16")

    assert hosts(plan) == [("node-1", 8), ("node-2", 8)]
    assert not plan.placement.known
