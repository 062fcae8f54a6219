"""Which pipeline is said to be in use, by one rank and by several on unlike hosts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlbench.worker.pipelines.used import NAMES, Used, settle
from mlbench.worker.ranks import Alone, Rank


class Four(Alone):
    """Rank 0 of four; the others use `others`."""

    def __init__(self, *others: str) -> None:
        super().__init__(Rank(0, 4, 0))
        self._others = others

    def sum(self, values: Sequence[float]) -> list[float]:
        return [value + self._others.count(name) for name, value in zip(NAMES, values, strict=True)]


def test_settle_what_was_asked_for_has_no_reason() -> None:
    assert settle("native", None, Alone(Rank(0, 1, 0))) == ("native", "")
    assert settle("dali", None, Four("dali", "dali", "dali")) == ("dali", "")


def test_settle_another_pipeline_has_the_asked_one_in_its_reason() -> None:
    instead = Used("simplejpeg", "x.so is not built")
    assert settle("native", instead, Alone(Rank(0, 1, 0))) == ("simplejpeg", "native: x.so is not built")
    assert settle("native", instead, Four(*["simplejpeg"] * 3)) == ("simplejpeg", "native: x.so is not built")


@pytest.mark.parametrize("instead", [None, Used("mxnet", "x.so is not built")])
def test_settle_hosts_that_differ_are_counted(instead: Used | None) -> None:
    others = ("native", "native", "mxnet")
    name, reason = settle("native", instead, Four(*others))
    assert name == ("native on 3, mxnet on 1" if instead is None else "native on 2, mxnet on 2")
    assert reason == "native is not usable on every host; the logs of the ranks say why"
