"""What is said of the input pipeline that runs really had."""

from __future__ import annotations

import pytest

from mlbench.publish.comparison import side_by_side
from mlbench.publish.input_pipeline import input_pipeline_text, input_pipelines
from mlbench.store.tables import Hyperparameter, Run, RunSet
from tests.support.run_sets import make_run, make_run_set

REASON = "native: libmlbench_native.so is not built"


def run_with(index: int, name: str | None, reason: str | None = None, attempt: int = 0) -> Run:
    rows = {"input_pipeline": name, "input_pipeline_reason": reason}
    kept = [Hyperparameter(key=key, value=f'"{value}"') for key, value in rows.items() if value is not None]
    return make_run(index, attempt=attempt, hyperparameters=kept)


def set_of(name: str, *runs: Run) -> RunSet:
    return make_run_set(name, origin="run", runs=list(runs), num_runs=len(runs))


@pytest.mark.parametrize(
    ("runs", "names", "text"),
    [
        ([run_with(0, None)], None, None),
        ([run_with(0, "native"), run_with(1, "native")], "native", "native"),
        ([run_with(0, "simplejpeg", REASON)], "simplejpeg", f"simplejpeg ({REASON})"),
        ([run_with(0, "native"), run_with(1, "mxnet", REASON)], "native, mxnet", f"native, mxnet ({REASON})"),
        # the earlier attempt does not count
        ([run_with(0, "mxnet", REASON), run_with(0, "native", attempt=1)], "native", "native"),
    ],
)
def test_pipeline_is_that_of_the_runs_that_count(runs: list[Run], names: str | None, text: str | None) -> None:
    run_set = set_of("a", *runs)
    assert (input_pipelines(run_set), input_pipeline_text(run_set)) == (names, text)


def test_own_run_sets_that_used_different_pipelines_differ_in_that_alone() -> None:
    found = side_by_side(set_of("a", run_with(0, "native")), set_of("b", run_with(0, "simplejpeg", REASON)))
    (item,) = found.differs["settings logged"]
    assert (item.key, item.base, item.other) == ("input_pipeline", "native", "simplejpeg")


@pytest.mark.parametrize("reason", [REASON, "native: libmlbench_native.so cannot be loaded: no such file"])
def test_own_run_sets_that_used_one_pipeline_do_not_differ(reason: str) -> None:
    found = side_by_side(set_of("a", run_with(0, "simplejpeg", REASON)), set_of("b", run_with(0, "simplejpeg", reason)))
    assert "settings logged" not in found.differs
