"""What memory and cores can do: `python machine.py copy|product THREADS` prints one JSON object (GB or GFLOP)."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

COPY_BYTES = 256 << 20
COPIES = 8
SIDE = 1536
PRODUCTS = 10


def copy(threads: int) -> None:
    """Each thread copies an array of its own, far larger than the cache of a core."""
    import numpy

    pairs = [(numpy.ones(COPY_BYTES // 8), numpy.zeros(COPY_BYTES // 8)) for _ in range(threads)]

    def work(pair: tuple[Any, Any]) -> None:
        source, target = pair
        for _ in range(COPIES):
            numpy.copyto(target, source)

    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, pairs))
    report(begun, 2 * COPY_BYTES * COPIES * threads / 1e9)


def product(threads: int) -> None:
    """Square products by the BLAS of NumPy."""
    import numpy

    left, right = (numpy.random.default_rng(seed).random((SIDE, SIDE), dtype=numpy.float32) for seed in (1, 2))
    left @ right
    begun = time.perf_counter()
    for _ in range(PRODUCTS):
        left @ right
    report(begun, 2 * SIDE**3 * PRODUCTS / 1e9)


def report(begun: float, amount: float) -> None:
    """Print wall time and amount; processor time says nothing here."""
    print(json.dumps({"wall_s": time.perf_counter() - begun, "cpu_s": None, "amount": amount}), flush=True)


def main() -> None:
    """BLAS reads its threads when it is loaded, so NumPy is imported afterwards."""
    threads = int(sys.argv[2])
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    {"copy": copy, "product": product}[sys.argv[1]](threads)


if __name__ == "__main__":
    main()
