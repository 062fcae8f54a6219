"""The storage stage's reader: a pattern that no object can serve is a fault with its reason, in every thread."""

from __future__ import annotations

from typing import Any

import pytest

from mlbench.worker import s3_host


class Body:
    def __init__(self, length: int) -> None:
        self.length = length

    def read(self) -> bytes:
        return bytes(self.length)


class Client:
    """A bucket with one object of 1,000 bytes."""

    def head_object(self, **_: object) -> dict[str, Any]:
        return {"ContentLength": 1000}

    def get_object(self, Range: str, **_: object) -> dict[str, Any]:
        first, last = (int(number) for number in Range.removeprefix("bytes=").split("-"))
        return {"ContentLength": last - first + 1, "Body": Body(last - first + 1)}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_measure_block_larger_than_every_object_says_so_and_the_other_patterns_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3_host, "client_maker", lambda _: lambda _: Client())
    tests = [
        {"name": "sequential", "pattern": "sequential", "block_bytes": 1_048_576},
        {"name": "random", "pattern": "random", "block_bytes": 100},
    ]
    spec = {"endpoints": ["http://a"], "objects": ["s3://b/k"], "tests": tests, "runtime_s": 0.05, "num_requests": 4}

    found = s3_host.measure(spec, rank=0)["tests"]

    assert found[0]["fault"] == "no object holds a block of 1048576 bytes, the largest has 1000"
    assert found[0]["num_bytes"] == 0
    assert found[1]["fault"] is None
    assert found[1]["num_bytes"] > 0
