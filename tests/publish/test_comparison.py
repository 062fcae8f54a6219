"""Two run sets side by side: what enters a mean, what is said to differ, what warns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mlbench.analyse.compare import BUSBW, SAMPLES_PER_S, STORAGE_SEQUENTIAL, TIME_TO_TRAIN, Outcome
from mlbench.publish.comparison import sample, scaling_point, side_by_side
from mlbench.store.tables import HostFact, Run, RunSet
from tests.support.run_sets import STARTED, make_run, make_run_set


def _set(name: str, times_s: list[float], **changes: Any) -> RunSet:
    runs = [
        make_run(
            index,
            attempt=0,
            time_to_train_s=time_s,
            converged=True,
            status="success",
            started_at=STARTED + timedelta(hours=index),
        )
        for index, time_s in enumerate(times_s)
    ]
    return make_run_set(name, runs=runs, num_runs=len(runs), repeats_asked=5, **changes)


def test_failed_and_warm_up_runs_and_earlier_attempts_enter_no_mean() -> None:
    # cases.md P38: values 10, missing, 14, one marked failed; mean over the good ones with n shown.
    run_set = _set("a", [10.0, 12.0, 14.0])
    run_set.runs[1].converged = False
    run_set.runs[1].time_to_train_s = None
    run_set.runs.append(make_run(0, attempt=1, warmup=True, time_to_train_s=99.0, converged=True))
    found = sample(run_set, TIME_TO_TRAIN)
    assert (found.values, found.num_asked, found.mean) == ((10.0, 14.0), 5, 12.0)


def test_all_missing_is_not_available_and_no_crash() -> None:
    one, two = _set("a", [10.0, 12.0]), _set("b", [10.0, 12.0])
    for run in two.runs:
        run.converged, run.time_to_train_s = False, None
    found = side_by_side(one, two).of(TIME_TO_TRAIN)
    assert found.outcome is Outcome.not_available
    assert found.in_words == "n/a (not measured in the second)"


def test_exactly_what_differs_is_listed() -> None:
    # cases.md P50: stored environments differ in driver and one config key.
    one = _set("a", [10.0], config={"gpus": 8, "cache": "drop", "runs_dir": "/x"})
    two = _set("b", [10.0], config={"gpus": 8, "cache": "evict", "runs_dir": "/y"})
    one.host_facts = [HostFact(host="a", key="driver", value="450"), HostFact(host="a", key="kernel", value="5.3")]
    two.host_facts = [HostFact(host="b", key="driver", value="470"), HostFact(host="b", key="kernel", value="5.3")]
    found = side_by_side(one, two).differs
    assert {section: [(d.key, d.base, d.other) for d in items] for section, items in found.items()} == {
        "configuration": [("cache", "drop", "evict")],
        "hardware": [("driver", "450", "470")],
    }


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("global_batch_size", 1632, "different global batch sizes: 3264 and 1632"),
        ("division", "open", "different divisions: closed and open"),
        ("benchmark", "bert", "different benchmarks: resnet and bert"),
        ("rehearsal", True, "b is a rehearsal: nothing was trained"),
    ],
)
def test_run_sets_that_are_not_alike_are_compared_with_a_warning(column: str, value: Any, said: str) -> None:
    assert said in side_by_side(_set("a", [10.0]), _set("b", [11.0], **{column: value})).warnings


def test_stage_metrics_take_the_peak_and_what_was_measured() -> None:
    run_set = _set("a", [10.0])
    assert sample(run_set, BUSBW).values == (1.75,)
    assert sample(run_set, STORAGE_SEQUENTIAL).values == (1e9,)
    run_set.storage[0].bandwidth_bytes_per_s = None
    assert sample(run_set, STORAGE_SEQUENTIAL).values == ()


def test_verdict_falls_back_to_samples_per_s_without_a_target() -> None:
    def throughput(name: str, rate: float) -> RunSet:
        run_set = _set(name, [10.0, 10.0, 10.0, 10.0])
        for number, run in enumerate(run_set.runs):
            run.converged, run.quality_target, run.samples_per_s = False, None, rate + number
        return run_set

    found = side_by_side(throughput("a", 100.0), throughput("b", 200.0)).main
    assert found.metric is SAMPLES_PER_S
    assert found.verdict == "faster"


def test_scaling_point_counts_accelerators_where_ranks_are_not_known() -> None:
    point = scaling_point(make_run_set("a", num_ranks=None, num_accelerators=16))
    assert point is not None
    assert point.num_ranks == 16
    assert scaling_point(make_run_set("a", num_ranks=None, num_accelerators=0)) is None


def test_last_attempt_of_a_repetition_counts() -> None:
    run_set = _set("a", [10.0])
    run_set.runs.append(make_run(0, attempt=1, time_to_train_s=20.0, converged=True, status="success"))
    run_set.runs.sort(key=lambda run: (run.index, run.attempt))
    assert isinstance(run_set.runs[-1], Run)
    assert sample(run_set, TIME_TO_TRAIN).values == (20.0,)


@pytest.mark.parametrize(("column", "value"), [("transport", "MPI"), ("backend", "mpi")])
def test_all_reduce_measured_in_two_ways_has_both_figures_and_no_ratio(column: str, value: str) -> None:
    one, two = _set("a", [10.0]), _set("b", [10.0])
    for row in one.allreduce:
        row.backend, row.transport = "horovod", "Gloo"
    for row in two.allreduce:
        row.backend, row.transport = "horovod", "Gloo"
        setattr(row, column, value)
    found = side_by_side(one, two)

    told = found.of(BUSBW)
    assert (told.base.values, told.other.values) == ((1.75,), (1.75,))
    assert (told.ratio, told.interval, told.outcome) == (None, None, Outcome.not_available)
    other = "horovod over MPI" if column == "transport" else "mpi over Gloo"
    assert told.in_words == f"n/a (horovod over Gloo in the first, {other} in the second)"
    assert f"all-reduce was measured in different ways, horovod over Gloo and {other}, so it has no ratio" in (
        found.warnings
    )


def test_all_reduce_measured_in_one_way_has_a_ratio() -> None:
    found = side_by_side(_set("a", [10.0]), _set("b", [10.0]))
    assert found.of(BUSBW).ratio == 1.0
