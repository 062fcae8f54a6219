"""A bare mpi4py loop: in-place all-reduce of float32 sums, as one writes it to see what MPI can do.

mpirun -np 2 python mpi_loop.py MIN_BYTES MAX_BYTES WARMUP ITERATIONS      rank 0 prints {size: microseconds}
"""

from __future__ import annotations

import json
import sys
import time

import numpy
from mpi4py import MPI


def main() -> None:
    """Sizes by factor 2."""
    size_bytes, max_bytes, num_warmup, num_iterations = (int(word) for word in sys.argv[1:5])
    world = MPI.COMM_WORLD
    times_us = {}
    while size_bytes <= max_bytes:
        buffer = numpy.zeros(size_bytes // 4, dtype=numpy.float32)
        for _ in range(num_warmup):
            world.Allreduce(MPI.IN_PLACE, buffer, MPI.SUM)
        world.Barrier()
        begun = time.perf_counter()
        for _ in range(num_iterations):
            world.Allreduce(MPI.IN_PLACE, buffer, MPI.SUM)
        mine_us = (time.perf_counter() - begun) / num_iterations * 1e6
        times_us[str(size_bytes)] = world.allreduce(mine_us) / world.size
        size_bytes *= 2
    if world.rank == 0:
        print(json.dumps(times_us), flush=True)


if __name__ == "__main__":
    main()
