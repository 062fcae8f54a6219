"""Ranged GETs as fast as one rank can ask, for the storage stage.

    python -I start.py s3_host spec.json

The specification is one JSON object: `endpoints`, `objects` (s3:// URLs), `tests` (a list of {"name", "pattern",
"block_bytes"}), `runtime_s` of each, `num_requests` in flight and `folder`, where rank_<r>.json goes. Rank r begins at
endpoint r mod n; the others take over when it fails, as in training.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .files import write_json
from .parent import rank_of
from .pipelines.records import DataFault
from .s3 import Endpoints, client_maker, object_size, read_range, split_url

Block = Tuple[str, str, int]
"""bucket, key, offset."""


def blocks(objects: Sequence[Tuple[str, int]], pattern: str, block_bytes: int, rank: int) -> Iterator[Block]:
    """Where to read next, without end: one after the other from a place of this rank's own, or anywhere."""
    whole = [(split_url(url), size) for url, size in objects if size >= block_bytes]
    if not whole:
        largest = max((size for _, size in objects), default=0)
        raise DataFault("no object holds a block of %d bytes, the largest has %d" % (block_bytes, largest))
    draw = random.Random(rank)
    number, offset = rank % len(whole), 0
    while True:
        (bucket, key), size = whole[number]
        if pattern == "sequential":
            if offset + block_bytes > size:
                number, offset = (number + 1) % len(whole), 0
                continue
            yield bucket, key, offset
            offset += block_bytes
        else:
            yield bucket, key, draw.randrange(0, size - block_bytes + 1)
            number = draw.randrange(len(whole))


class _Test:
    """One pattern for a fixed time, from several threads."""

    def __init__(self, endpoints: Endpoints, source: Iterator[Block], block_bytes: int) -> None:
        self._endpoints = endpoints
        self._source = source
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._latencies_s: List[float] = []
        self._faults: List[str] = []

    def run(self, num_threads: int, runtime_s: float) -> Dict[str, Any]:
        until = time.monotonic() + runtime_s
        began = time.monotonic()
        threads = [threading.Thread(target=self._read_until, args=(until,)) for _ in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        latencies = sorted(self._latencies_s)
        return {
            "seconds": seconds,
            "num_requests": len(latencies),
            "num_bytes": len(latencies) * self._block_bytes,
            "latency_mean_s": sum(latencies) / len(latencies) if latencies else None,
            "latency_p99_s": latencies[int(len(latencies) * 0.99)] if latencies else None,
            "fault": self._faults[0] if self._faults else None,
        }

    def _read_until(self, until: float) -> None:
        while time.monotonic() < until and not self._faults:
            try:
                with self._lock:
                    block = next(self._source, None)
                if block is None:
                    return  # another thread met the fault that ended the source
                bucket, key, offset = block
                began = time.perf_counter()
                read_range(self._endpoints, bucket, key, offset, self._block_bytes)
            except DataFault as error:
                with self._lock:
                    self._faults.append(str(error))
                return
            with self._lock:
                self._latencies_s.append(time.perf_counter() - began)


def measure(spec: Dict[str, Any], rank: int) -> Dict[str, Any]:
    """All tests of the specification, one after the other. Raises DataFault: the objects cannot be seen."""
    num_requests = int(spec["num_requests"])
    maker = client_maker(num_requests)
    results = []
    objects: List[Tuple[str, int]] = []
    for test in spec["tests"]:
        # New counters for each test, so that the shares are those of the test.
        endpoints = Endpoints(spec["endpoints"], rank, maker, lambda text: print(text, file=sys.stderr))
        objects = objects or [(url, object_size(endpoints, url)) for url in spec["objects"]]
        block_bytes = int(test["block_bytes"])
        source = blocks(objects, test["pattern"], block_bytes, rank)
        result = _Test(endpoints, source, block_bytes).run(num_requests, float(spec["runtime_s"]))
        shares = [share._asdict() for share in endpoints.shares()]
        results.append(dict(result, name=test["name"], shares=shares))
    return {
        "rank": rank,
        "host": socket.gethostname(),
        "object_bytes": sum(size for _, size in objects),
        "tests": results,
    }


def main(arguments: List[str]) -> int:
    """Status 2 for a bad specification, 1 when the objects cannot be seen; faults of a test are in its result."""
    try:
        with open(arguments[0], encoding="utf-8") as stream:
            spec = json.load(stream)
        rank = rank_of(os.environ)
    except (IndexError, OSError, ValueError) as error:
        sys.stderr.write("s3_host: the specification cannot be read (%s)\n" % error)
        return 2
    try:
        found = measure(spec, rank)
    except DataFault as error:
        sys.stderr.write("s3_host: %s\n" % error)
        return 1
    write_json(os.path.join(spec["folder"], "rank_%d.json" % rank), found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
