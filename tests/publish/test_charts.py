"""Plots from rows: what they show in words, what is left out and why, and that each can be drawn and saved."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mlbench.analyse.consistency import consistency
from mlbench.errors import ConfigError
from mlbench.publish.charts import (
    NARROW,
    WIDE,
    Absent,
    Figure,
    Plot,
    accuracy_figure,
    allreduce_figure,
    comparison_figure,
    consistency_figure,
    epochs_figure,
    save_chart,
    spread_figure,
    storage_figure,
    telemetry_figures,
    throughput_figure,
)
from mlbench.publish.charts.labels import grouped, minutes_or_seconds, set_labels
from mlbench.publish.charts.render import inline_svg, svg_text, vega_lite
from mlbench.publish.charts.runs import DROPPED, KEPT, LOST, run_roles
from mlbench.publish.charts.telemetry import PANELS, traces
from mlbench.publish.comparison import side_by_side
from mlbench.store.tables import Run, RunSet, TelemetrySeries
from tests.support.report_sets import full_run_set

NUM_POINTS = 60
FIGURE_5 = {8: 20_947.0, 16: 39_747.0, 32: 78_454.0}  # white paper H18597, figure 5, overall images/s


@pytest.fixture(scope="module")
def full() -> RunSet:
    return full_run_set(num_points=NUM_POINTS)


def drawn(plot: Plot) -> Figure:
    assert isinstance(plot, Figure), plot
    return plot


def absent(plot: Plot) -> str:
    assert isinstance(plot, Absent), plot
    return plot.reason


def sized(num_gpus: int, rate: float) -> RunSet:
    run_set = full_run_set(f"set-{num_gpus}", num_hosts=num_gpus // 8, num_points=NUM_POINTS)
    for run in run_set.runs:
        run.samples_per_s = rate
    return run_set


def data_of(figure: Figure, width: int = WIDE) -> list[dict[str, Any]]:
    """Every row of the drawn chart."""
    described = vega_lite(figure.draw(width))
    return [row for rows in described.get("datasets", {}).values() for row in rows]


def all_figures(full: RunSet) -> list[Plot]:
    other = full_run_set("other", num_hosts=1, num_points=NUM_POINTS)
    third = full_run_set("third", num_hosts=1, num_points=NUM_POINTS)
    crowd = [full_run_set(f"crowd-{number}", num_hosts=1, num_points=NUM_POINTS) for number in range(3)]
    run = full.runs[0]
    return [
        throughput_figure([full]),
        throughput_figure([full, other]),
        epochs_figure([full]),
        spread_figure([full]),
        spread_figure([full, other]),
        accuracy_figure([full]),
        accuracy_figure([full, other]),
        allreduce_figure([full]),
        storage_figure([full]),
        comparison_figure([side_by_side(full, other)]),
        comparison_figure([side_by_side(full, other), side_by_side(full, third)]),
        throughput_figure([full, other, third, *crowd]),
        consistency_figure(consistency(1.0, 2.0, measured_bytes_per_s=2.0, ceiling_bytes_per_s=4.0), "", run="run 0"),
        *telemetry_figures(run, run.telemetry, name="run 0"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_plot_is_a_valid_description_and_fits_its_width(full: RunSet, width: int) -> None:
    for plot in all_figures(full):
        figure = drawn(plot)
        chart = figure.draw(width)
        vega_lite(chart, validate=True)
        opening = svg_text(chart)[:400]
        drawn_width = float(opening.split('viewBox="0 0 ')[1].split()[0])
        assert 0.5 * width < drawn_width < 1.15 * width, (figure.key, drawn_width)


@pytest.mark.slow
def test_every_plot_says_in_words_what_it_shows(full: RunSet) -> None:
    for plot in all_figures(full):
        figure = drawn(plot)
        assert len(figure.alt) > 40, figure.key
        assert any(character.isdigit() for character in figure.alt), figure.alt
        assert figure.caption.endswith("."), figure.caption


def test_throughput_of_several_sizes_tells_linear_scaling_and_efficiency() -> None:
    figure = drawn(throughput_figure([sized(gpus, rate) for gpus, rate in FIGURE_5.items()]))
    # 39,747 / (2 x 20,947) = 94.9 %, 78,454 / (4 x 20,947) = 93.6 %.
    assert "16 GPUs: 39,747 overall" in figure.alt
    assert "efficiency 94.9%" in figure.alt
    assert "efficiency 93.6%" in figure.alt
    rates = {row["label"]: row["rate"] for row in data_of(figure) if "kind" not in row and "text" not in row}
    assert rates == {"8 GPUs": 20_947.0, "16 GPUs": 2 * 20_947.0, "32 GPUs": 4 * 20_947.0}


def test_throughput_of_other_systems_of_one_size_has_no_linear_line() -> None:
    one, two = sized(8, 100.0), sized(8, 200.0)
    one.run_set, two.system = "one", "DSS8440"
    figure = drawn(throughput_figure([one, two]))
    assert "efficiency" not in figure.alt
    assert "DSS8440, 8 GPUs: 200 overall" in figure.alt


def test_warm_cache_is_said_where_the_first_epoch_is_shown() -> None:
    run_set = sized(8, 100.0)
    assert "In the first epoch data come from storage." in drawn(throughput_figure([run_set])).caption
    run_set.cache = "warm"
    assert "WARM CACHE: the first epoch may come from memory too." in drawn(throughput_figure([run_set])).caption


def test_throughput_without_a_first_epoch_has_one_bar_and_says_so(full: RunSet) -> None:
    run_set = full_run_set("blocks", num_points=NUM_POINTS)
    for run in run_set.runs:
        run.samples_per_s_first_epoch = None
    figure = drawn(throughput_figure([run_set]))
    assert "first epoch" not in figure.alt
    assert "No first epoch" in figure.caption
    assert {row["kind"] for row in data_of(figure)} == {"overall"}


def test_nothing_measured_gives_reasons_and_no_plot() -> None:
    run_set = full_run_set("empty", num_points=NUM_POINTS, allreduce=[], storage=[])
    for run in run_set.runs:
        run.samples_per_s = run.samples_per_s_first_epoch = run.time_to_train_s = None
        run.converged, run.status = False, "crashed"
        run.evaluations, run.epoch_rows = [], []
    assert absent(throughput_figure([run_set])).startswith("no good run logged enough")
    assert absent(epochs_figure([run_set])) == "no good run logs its epochs one by one"
    assert absent(spread_figure([run_set])).startswith("no run came to its end")
    assert absent(accuracy_figure([run_set])) == "no run logged an evaluation"
    assert absent(allreduce_figure([run_set])) == "all-reduce was not measured"
    assert absent(storage_figure([run_set])) == "storage was not measured"
    assert absent(comparison_figure([])) == "there is nothing of its kind to compare with"
    assert absent(consistency_figure(None, "why", run="run 0")) == "why"
    (plot,) = telemetry_figures(run_set.runs[0], [], name="run 0")
    assert absent(plot) == "no telemetry was recorded in run 0"


def test_run_set_without_any_run_breaks_no_plot() -> None:
    run_set = full_run_set("stages", num_points=NUM_POINTS, runs=[], num_accelerators=None, num_ranks=None)
    for make in (throughput_figure, epochs_figure, spread_figure, accuracy_figure):
        assert absent(make([run_set]))
    drawn(allreduce_figure([run_set]))


def test_roles_drop_the_fastest_and_the_slowest(full: RunSet) -> None:
    by_time = sorted(full.runs, key=lambda run: run.time_to_train_s or 0)
    roles = run_roles(full)
    assert [roles[run.index] for run in by_time] == [DROPPED, KEPT, KEPT, KEPT, DROPPED]


def test_run_that_did_not_converge_is_the_slowest_that_is_dropped() -> None:
    # cases.md section 1, NVIDIA v1.0: the aborted run counts as the slowest, the fastest is dropped beside it.
    run_set = full_run_set("one lost", num_points=NUM_POINTS)
    minutes = (28.74237, 30.34742, 28.82862, 28.51213, 28.74160)
    for run, value in zip(run_set.runs, minutes, strict=True):
        run.time_to_train_s = value * 60
    run_set.runs[1].converged, run_set.runs[1].status = False, "aborted"
    assert run_roles(run_set) == {0: KEPT, 1: LOST, 2: KEPT, 3: DROPPED, 4: KEPT}
    assert "30.347 min (not converged)" in drawn(spread_figure([run_set])).alt


def test_roles_drop_nothing_where_no_olympic_mean_was_formed() -> None:
    run_set = full_run_set("raw", num_points=NUM_POINTS, olympic_mean_s=None, score_s=None, score_status="raw")
    assert set(run_roles(run_set).values()) == {KEPT}


def test_allreduce_of_a_size_that_took_no_time_is_not_drawn_as_zero(full: RunSet) -> None:
    run_set = full_run_set("zero", num_points=NUM_POINTS)
    run_set.allreduce = run_set.allreduce[:2]
    run_set.allreduce[0].busbw_gb_per_s = 0.0
    assert len(data_of(drawn(allreduce_figure([run_set])))) == 1
    run_set.allreduce[1].busbw_gb_per_s = 0.0
    assert absent(allreduce_figure([run_set])) == "every size took no time, which is no measurement"
    assert "nccl_tests over NCCL, 32 ranks: peak at large sizes 139.7 GB/s at 1 GiB." in (
        drawn(allreduce_figure([full])).alt
    )


def test_allreduce_alt_text_has_the_peak_of_the_tables_and_the_highest_point_of_the_line() -> None:
    run_set = full_run_set("cached", num_points=NUM_POINTS)
    small = min(run_set.allreduce, key=lambda row: row.size_bytes)
    small.size_bytes, small.busbw_gb_per_s = 65536, 200.0
    figure = drawn(allreduce_figure([run_set]))
    assert "32 ranks: peak at large sizes 139.7 GB/s at 1 GiB, highest point 200 GB/s at 64 KiB." in figure.alt
    assert figure.alt.count("highest point") == 1
    assert max(row["busbw"] for row in data_of(figure)) == 200.0


def test_storage_that_failed_is_told_and_not_drawn() -> None:
    run_set = full_run_set("failed", num_points=NUM_POINTS)
    for row in run_set.storage[1:]:
        row.status, row.bandwidth_bytes_per_s, row.reason = "failed", None, "no space"
    assert len({row["words"] for row in data_of(drawn(storage_figure([run_set])))}) == 1
    run_set.storage[0].status = "failed"
    assert absent(storage_figure([run_set])) == "every storage test failed; the table says why"


def test_consistency_needs_something_to_agree_with() -> None:
    assert absent(consistency_figure(consistency(1.0, 2.0), "", run="run 0")).startswith("neither telemetry nor")
    # Ready Solutions guide: 2940 images/s x 0.113 MB, measured 2680 Mb/s.
    found = consistency(2940, 113_000, measured_bytes_per_s=2680e6 / 8)
    figure = drawn(consistency_figure(found, "", run="run 0"))
    assert "needed: 332.2 MB/s; moved: 335 MB/s" in figure.alt
    assert "Not measured: possible." in figure.caption


def panel(key: str) -> Any:
    return next(item for item in PANELS if item.key == key)


def series(host: str, metric: str, points: list[float | None]) -> TelemetrySeries:
    times = [float(number) for number in range(len(points))]
    return TelemetrySeries(host=host, metric=metric, num_points=len(points), times_s=times, points=points)


def test_traces_add_up_interfaces_of_a_host_and_average_hosts() -> None:
    rows = [
        series("a", "net_eth0_rx_bytes_per_s", [1e6] * 30),
        series("a", "net_eth1_rx_bytes_per_s", [2e6] * 30),
        series("b", "net_eth0_rx_bytes_per_s", [5e6] * 30),
    ]
    (trace,) = traces(panel("network"), rows, (0.0, 30.0), 10)
    assert trace.mean == pytest.approx([4.0] * 10)
    assert (trace.low, trace.high) == (pytest.approx([3.0] * 10), pytest.approx([5.0] * 10))
    assert trace.num_lines == 2


def test_traces_count_each_gpu_as_a_line() -> None:
    rows = [series("a", "gpu0_use_share", [0.9] * 30), series("a", "gpu1_use_share", [0.5] * 30)]
    (trace,) = traces(panel("gpu"), rows, (0.0, 30.0), 10)
    assert (trace.mean[0], trace.low[0], trace.high[0]) == pytest.approx((70.0, 50.0, 90.0))


@pytest.mark.parametrize("num_samples", [3, 20, 68, 300])
def test_traces_of_a_short_run_have_no_gaps(num_samples: int) -> None:
    rows = [series("a", "cpu_share", [0.5] * num_samples)]
    (trace,) = traces(panel("cpu"), rows, (0.0, float(num_samples)), 240)
    assert None not in trace.mean


def test_one_metric_that_came_late_does_not_make_the_others_coarse() -> None:
    late = series("b", "cpu_share", [0.5])
    rows = [series("a", "cpu_share", [0.5] * 300), series("a", "cpu_iowait_share", [0.1] * 300), late]
    assert len(traces(panel("cpu"), rows, (0.0, 300.0), 240)[0].mean) == 200


def test_traces_of_a_series_without_a_value_are_left_out() -> None:
    rows = [series("a", "cpu_share", []), series("b", "cpu_share", [None] * 30)]
    assert traces(panel("cpu"), rows, (0.0, 30.0), 10) == []


def test_traces_keep_a_gap_that_was_not_measured_and_skip_unknown_metrics() -> None:
    rows = [series("a", "cpu_share", [0.5] * 10 + [None] * 10 + [0.5] * 10), series("a", "surprise", [1.0] * 30)]
    (trace,) = traces(panel("cpu"), rows, (0.0, 30.0), 3)
    assert trace.mean == (50.0, None, 50.0)
    assert trace.overall == 50.0


def test_telemetry_of_a_gpu_machine_has_all_panels_and_a_cpu_machine_says_what_is_missing(full: RunSet) -> None:
    run = full.runs[0]
    assert all(isinstance(plot, Figure) for plot in telemetry_figures(run, run.telemetry, name="run 0"))
    cpu_only = [row for row in run.telemetry if not row.metric.startswith("gpu")]
    missing = [plot for plot in telemetry_figures(run, cpu_only, name="run 0") if isinstance(plot, Absent)]
    assert [plot.key for plot in missing] == ["telemetry_gpu", "telemetry_gpu_power"]


def test_comparison_turns_times_over_so_that_right_is_better() -> None:
    slow, fast = sized(8, 100.0), sized(16, 200.0)
    for run in fast.runs:
        run.time_to_train_s = (run.time_to_train_s or 0.0) / 2
    rows = {
        row["metric"]: row for row in data_of(drawn(comparison_figure([side_by_side(slow, fast)]))) if "words" in row
    }
    assert rows["time to train"]["ratio"] == pytest.approx(2.0, rel=0.01)
    assert rows["time to train"]["low"] < rows["time to train"]["high"]
    assert rows["samples/s"]["ratio"] == pytest.approx(2.0, rel=0.01)


def test_text_of_others_stays_text_in_svg() -> None:
    run_set = full_run_set("hostile", num_points=NUM_POINTS, system="<script>alert(1)</script>")
    other = full_run_set("other", num_points=NUM_POINTS)
    svg = svg_text(drawn(throughput_figure([run_set, other])).draw(WIDE))
    assert "<script" not in svg
    assert "&lt;script" in svg


def test_inline_svg_gives_each_plot_ids_of_its_own() -> None:
    svg = '<svg width="9" height="5" viewBox="0 0 9 5"><g id="clip0"/><path clip-path="url(#clip0)"/></svg>'
    found = inline_svg(svg, "a")
    assert 'id="a-clip0"' in found
    assert "url(#a-clip0)" in found
    assert 'viewBox="0 0 9 5"' in found
    with pytest.raises(ValueError, match="viewBox"):
        inline_svg("<p>nothing</p>", "a")


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_saved_plot_is_what_its_name_says(full: RunSet, tmp_path: Path, ending: str, begins: bytes) -> None:
    path = tmp_path / f"plot.{ending}"
    save_chart(drawn(spread_figure([full])).draw(WIDE), path)
    assert path.read_bytes().startswith(begins)


@pytest.mark.slow
def test_interactive_page_of_a_plot_loads_nothing_from_elsewhere(full: RunSet, tmp_path: Path) -> None:
    path = tmp_path / "plot.HTML"
    save_chart(drawn(spread_figure([full])).draw(WIDE), path)
    text = path.read_text(encoding="utf-8")
    assert "vegaEmbed" in text
    assert 'src="http' not in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plot.jpg", "found the ending '.jpg', expected one of .svg, .png, .pdf, .html"),
        ("plot", "found the ending '', expected one of"),
        ("nowhere/plot.svg", "cannot be written (No such file or directory)"),
    ],
)
def test_plot_that_cannot_be_saved_is_one_sentence(full: RunSet, tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        save_chart(drawn(spread_figure([full])).draw(WIDE), tmp_path / name)
    assert said in str(caught.value)


def test_labels_are_the_shortest_that_tell_sets_apart() -> None:
    one, two = sized(8, 1.0), sized(16, 1.0)
    assert set_labels([one]) == ["NVIDIA DGX A100"]
    assert set_labels([one, two]) == ["NVIDIA DGX A100, 8 GPUs", "NVIDIA DGX A100, 16 GPUs"]
    two.num_accelerators = 8
    assert set_labels([one, two]) == ["set-8", "set-16"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(78_454.4, "78,454"), (10.774, "10.77"), (0.08062, "0.08062"), (0, "0"), (1.5e-7, "1.5e-07"), (200.0, "200")],
)
def test_grouped_numbers_read_well(value: float, text: str) -> None:
    assert grouped(value) == text
    assert grouped(math.inf) == "inf"


def test_times_are_minutes_from_ten_on() -> None:
    assert (minutes_or_seconds(599.9), minutes_or_seconds(2182.2)) == ("599.90 s", "36.370 min")


@pytest.mark.slow
def test_chart_data_is_plain_json(full: RunSet) -> None:
    for plot in all_figures(full):
        json.dumps(vega_lite(drawn(plot).draw(NARROW)), allow_nan=False)


def test_run_with_infinite_or_no_accuracy_breaks_no_plot() -> None:
    run_set = full_run_set("odd", num_points=NUM_POINTS)
    odd: Run = run_set.runs[0]
    odd.final_accuracy, odd.quality_target = None, None
    drawn(accuracy_figure([run_set]))
