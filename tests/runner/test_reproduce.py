"""Whether a repeated run set came out the same."""

from __future__ import annotations

from typing import Any

from mlbench.collect.runfolder import last_attempts
from mlbench.runner.reproduce import Reproduced, compare_reproduction
from mlbench.store.tables import Run, RunSet


def a_set(name: str, times: list[float | None], rates: list[float | None] | None = None) -> RunSet:
    rates = rates or [None] * len(times)
    runs = [
        a_run(index=index, time_to_train_s=time, converged=time is not None, samples_per_s=rate)
        for index, (time, rate) in enumerate(zip(times, rates, strict=True))
    ]
    return RunSet(run_set=name, runs=runs)


def a_run(**fields: Any) -> Run:
    return Run(**{"index": 0, "attempt": 0, "warmup": False, "status": "success", "converged": True} | fields)


def test_reproduction_inside_the_spread_is_within() -> None:
    found = compare_reproduction(a_set("old", [40.0, 42.0, 44.0]), a_set("new", [41.0, 42.0]), ["driver: a, now b"])
    assert found.verdict is Reproduced.within
    assert found.new_mean == 41.5
    assert (found.old_low, found.old_high) == (40.0, 44.0)
    assert found.sentence == (
        "new lies within the spread of old: time to train, s 41.5 (mean of 2), there 40 to 44 (3 runs)"
    )
    assert found.exit_status(0) == 0
    assert found.differences == ("driver: a, now b",)


def test_reproduction_slower_than_every_run_is_status_4_and_says_so() -> None:
    found = compare_reproduction(a_set("old", [40.0, 42.0]), a_set("new", [50.0]), [])
    assert found.verdict is Reproduced.slower
    assert found.exit_status(0) == 4
    assert found.last_line(0, "Good.").startswith("Not good: new is slower than every run of old")
    assert found.exit_status(3) == 3
    assert found.last_line(3, "Failed: x.") == "Failed: x."


def test_reproduction_faster_is_good() -> None:
    found = compare_reproduction(a_set("old", [40.0, 42.0]), a_set("new", [30.0]), [])
    assert found.verdict is Reproduced.faster
    assert found.exit_status(0) == 0


def test_reproduction_without_converged_runs_compares_rates_where_higher_is_faster() -> None:
    found = compare_reproduction(a_set("old", [None, None], [100.0, 110.0]), a_set("new", [None], [90.0]), [])
    assert found.quantity == "samples/s"
    assert found.verdict is Reproduced.slower


def test_reproduction_of_a_single_run_has_no_spread_to_lie_in() -> None:
    found = compare_reproduction(a_set("old", [40.0]), a_set("new", [40.0]), [])
    assert found.verdict is Reproduced.not_comparable
    assert found.sentence == "new cannot be compared with old: 1 and 1 usable run"


def test_runs_that_count_are_the_last_attempts_without_warmups() -> None:
    row = RunSet(
        run_set="x",
        runs=[
            a_run(index=1, attempt=1),
            a_run(index=1, attempt=0, status="crashed"),
            a_run(index=0),
            a_run(index=0, warmup=True),
        ],
    )
    assert [(run.index, run.attempt) for run in last_attempts(row.runs)] == [(0, 0), (1, 1)]
