"""Sizing and consistency: the papers' numbers are the tests."""

from __future__ import annotations

import pytest

from mlbench.analyse.consistency import consistency
from mlbench.analyse.sizing import Caching, Demand, Rate, Supply, rate_of_model, size

F800 = Supply(  # facts.md: per chassis 15 GB/s, 250,000 IOPS, 8 x 40 GbE; 63 chassis a cluster, 4 nodes each
    unit="chassis",
    throughput_bytes_per_s=15e9,
    operations_per_s=250_000,
    link_bytes_per_s=8 * 5e9,
    max_units=63,
    nodes_per_unit=4,
)


def _demand(num_gpus: int = 32, *, headroom: float = 0.0, operation_bytes: float = 9.17e6) -> Demand:
    rate = Rate(samples_per_s_per_gpu=78_454 / 32, basis="H18597, figure 5: 78,454 images/s with 32 GPUs")
    return Demand(
        num_gpus=num_gpus, rate=rate, mean_sample_bytes=115e3, headroom=headroom, operation_bytes=operation_bytes
    )


def test_consistency_of_the_paper_is_0_9_percent_apart() -> None:
    # facts.md: 2940 images/s x 0.113 MB x 8 = 2658 Mb/s, measured 2680.
    found = consistency(2940, 0.113e6, measured_bytes_per_s=2680e6 / 8)
    assert found.expected_bytes_per_s * 8 / 1e6 == pytest.approx(2657.76)
    assert found.difference == pytest.approx(0.0083, abs=1e-4)


@pytest.mark.parametrize(("rate", "size_bytes"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_consistency_of_no_measurement_is_refused(rate: float, size_bytes: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        consistency(rate, size_bytes)


def test_demand_of_32_gpus_is_the_papers_rate_times_the_mean_image() -> None:
    assert _demand().samples_per_s == pytest.approx(78_454)  # H18597, figure 5
    assert _demand().bytes_per_s == pytest.approx(78_454 * 115e3)  # 9.02 GB/s


def test_one_f800_chassis_carries_32_gpus_and_throughput_limits() -> None:
    found = size(_demand(), F800, gpus_per_node=8, node_link_bytes_per_s=2 * 2 * 12.5e9)
    assert found.units == 1
    assert found.limiting is not None
    assert found.limiting.quantity == "throughput"
    assert found.limiting.use == pytest.approx(78_454 * 115e3 / 15e9)  # 60 %
    assert found.feasible is True


def test_one_file_an_image_is_limited_by_links_or_operations_not_by_size() -> None:
    found = size(_demand(256, operation_bytes=1e3), F800)
    assert found.limiting is not None
    assert found.limiting.quantity == "operations"


def test_demand_grows_linearly_until_the_cluster_ends() -> None:
    assert size(_demand(64), F800).units == 2  # 18.0 GB/s
    huge = size(_demand(4096), F800)
    assert huge.demand.bytes_per_s == pytest.approx(2 * _demand(2048).bytes_per_s)
    assert huge.units == 77  # 1,154.8 GB/s over 15 GB/s
    assert huge.feasible is False  # 63 chassis at most


def test_supply_that_is_not_known_is_never_enough() -> None:
    unknown = Supply(
        unit="endpoint", throughput_bytes_per_s=None, operations_per_s=None, link_bytes_per_s=None, max_units=5
    )
    found = size(_demand(), unknown)
    assert found.units is None
    assert found.feasible is None
    assert found.unknown == ("throughput", "operations", "front-end links")


def test_node_link_too_small_is_not_feasible() -> None:
    found = size(_demand(), F800, gpus_per_node=8, node_link_bytes_per_s=1.25e9)
    assert found.client_link_use == pytest.approx(78_454 * 115e3 / 4 / 1.25e9)
    assert found.feasible is False


def test_other_model_takes_the_guides_ratio_and_says_so() -> None:
    rate = rate_of_model({"resnet50": 2940.0}, "alexnet", "profile")
    assert rate is not None
    assert rate.samples_per_s_per_gpu == pytest.approx(7095)  # facts.md, storage profile table
    assert "alexnet against resnet50" in rate.basis


def test_rate_of_a_model_that_nothing_leads_to_is_none() -> None:
    assert rate_of_model({"resnet50": 2940.0}, "transformer", "profile") is None
    assert rate_of_model({}, "resnet50", "profile") is None


def test_cache_holds_the_set_or_not_or_is_not_known() -> None:
    assert Caching(dataset_bytes=148e9, cache_bytes_per_node=1e12).fits is True  # facts.md: later epochs from cache
    assert Caching(dataset_bytes=1.448e12, cache_bytes_per_node=384e9).fits is False  # ten copies, 384 GB
    assert Caching(dataset_bytes=1.0, cache_bytes_per_node=None).fits is None


def test_headroom_is_on_top_and_stands_in_the_formula() -> None:
    demand = Demand(
        num_gpus=2,
        rate=Rate(samples_per_s_per_gpu=1000.0, basis="measured"),
        mean_sample_bytes=100e3,
        headroom=0.5,
        operation_bytes=1e6,
    )
    assert demand.bytes_per_s == pytest.approx(300e6)
    assert demand.formula == "2 GPUs x 1,000.0 samples/s x 100.0 KB x 1.50 headroom = 0.30 GB/s"
