"""Findings from time lines: throttling, slow GPUs, an input pipeline that cannot keep up."""

from __future__ import annotations

from mlbench.analyse.telemetry import bytes_in_per_s, findings_of_host


def _rules(metrics: dict[str, list[float]]) -> list[str]:
    return [item.rule for item in findings_of_host("a", metrics)]


def test_idle_gpu_beside_a_busy_cpu_is_an_input_bottleneck() -> None:
    # facts.md, considerations: a low GPU use with a busy CPU means the input pipeline is the bottleneck.
    assert _rules({"gpu0_use_share": [0.4, 0.5], "cpu_share": [0.95, 0.97]}) == ["TELEMETRY-INPUT"]


def test_busy_gpu_or_idle_cpu_is_no_finding() -> None:
    assert _rules({"gpu0_use_share": [0.97, 0.97], "cpu_share": [0.95, 0.97]}) == []  # facts.md: GPU use up to 97 %
    assert _rules({"gpu0_use_share": [0.4], "cpu_share": [0.3]}) == []


def test_no_gpu_measured_is_no_finding() -> None:
    assert _rules({"cpu_share": [1.0, 1.0]}) == []
    assert _rules({}) == []


def test_thermal_throttling_is_a_finding_and_a_power_cap_is_not() -> None:
    assert _rules({"gpu0_throttle_thermal": [1.0, 0.0]}) == ["TELEMETRY-THROTTLE"]
    assert _rules({"gpu0_throttle_power": [1.0, 1.0], "gpu1_throttle_thermal": [0.0] * 30 + [1.0]}) == []


def test_gpu_slower_than_its_neighbours_is_named() -> None:
    clocks = {f"gpu{n}_sm_clock_hz": [1.41e9] for n in range(7)} | {"gpu7_sm_clock_hz": [1.1e9]}
    (found,) = findings_of_host("dl-worker-02", clocks)
    assert found.rule == "TELEMETRY-SLOW-GPU"
    assert found.text.startswith("gpu7 ran at 1100 MHz, the middle one of this host at 1410 MHz")


def test_bytes_in_adds_networks_and_disks_and_leaves_the_way_out() -> None:
    metrics = {
        "net_ib0_rx_bytes_per_s": [10.0, 30.0],
        "net_ib0_tx_bytes_per_s": [1000.0],
        "disk_sda_read_bytes_per_s": [5.0],
        "disk_sda_write_bytes_per_s": [1000.0],
    }
    assert bytes_in_per_s(metrics) == 25.0
    assert bytes_in_per_s({"cpu_share": [1.0]}) is None
