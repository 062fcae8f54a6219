"""The all-reduce benchmark: how fast the ranks sum an array, on the path that training uses or on plain MPI.

As nccl-tests does it: for each size a few rounds to warm up, a barrier, then rounds without a pause, all in place; the
time is the mean over ranks. The result of one round is checked in the same run, value by value. Arrays are float32.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from .files import write_json
from .job import AllReduce, Job, JobError
from .ranks import Rank

SCHEMA_VERSION = 1
_ITEM_BYTES = 4
_IN_FLIGHT = 8
_CHECK_LEVELS = 7
"""Rank r fills with r % 7 + 1: small whole numbers, so that every sum is exact in float32."""


class HorovodReducer:
    """Horovod's in-place all-reduce on MXNet arrays, the way that gradients take.

    A buffer is several MXNet arrays over one piece of memory, so that the next round is already negotiated while one
    is summed: rounds follow each other without a pause, as on a CUDA stream in nccl-tests. Horovod itself runs one
    after the other; fusion must be off (HOROVOD_FUSION_THRESHOLD=0), or it would glue rounds into one message."""

    backend = "horovod"

    def __init__(self, rank: Rank, device: str) -> None:
        from .runtime import import_mxnet

        mxnet = import_mxnet()
        import horovod.mxnet as hvd

        self._hvd, self._mx = hvd, mxnet
        hvd.init()
        if (hvd.rank(), hvd.size()) != (rank.rank, rank.size):
            raise JobError(
                "environment: rank %d of %d, Horovod says %d of %d" % (rank.rank, rank.size, hvd.rank(), hvd.size())
            )
        self._context = mxnet.gpu(rank.local_rank) if device == "gpu" else mxnet.cpu()
        self.transport = self._transport(device)

    def _transport(self, device: str) -> str:
        if device == "gpu" and self._hvd.nccl_built():
            return "NCCL"
        # A build can hold both; what horovodrun or mpirun started decides.
        return "MPI" if self._hvd.mpi_enabled() else "Gloo"

    def buffer(self, num_items: int, value: float) -> Any:
        array = self._mx.nd.full((num_items,), value, ctx=self._context, dtype="float32")
        array.wait_to_read()
        share, again = self._mx.nd.to_dlpack_for_write, self._mx.nd.from_dlpack
        return [again(share(array)) for _ in range(_IN_FLIGHT)]

    def reduce(self, buffer: Any, rounds: int) -> None:
        for number in range(rounds):
            slot = number % len(buffer)
            self._hvd.allreduce_(buffer[slot], average=False, name="mlbench.allreduce.%d" % slot)
        for array in buffer:
            array.wait_to_read()

    def num_wrong(self, buffer: Any, expected: float) -> int:
        return int((buffer[0] != expected).sum().asscalar())

    def sum(self, values: List[float]) -> List[float]:
        import numpy

        mine = self._mx.nd.array(numpy.asarray(values, dtype="float64"), dtype="float64")
        return [float(v) for v in self._hvd.allreduce(mine, average=False, name="mlbench.values").asnumpy()]

    def gather(self, text: str) -> List[str]:
        return [str(item) for item in _gather_bytes(self, text)]

    def settings(self) -> Dict[str, str]:
        import horovod

        names = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME")
        found = {name: os.environ.get(name, "Horovod's default") for name in names}
        found["rounds_in_flight"] = str(_IN_FLIGHT)
        found["horovod"] = str(horovod.__version__)
        found["mxnet"] = str(self._mx.__version__)
        return found

    def close(self) -> None:
        self._hvd.shutdown()


class MpiReducer:
    """Plain MPI through mpi4py on NumPy arrays: the reference ceiling on the same fabric."""

    backend = "mpi"
    transport = "MPI"

    def __init__(self, rank: Rank, device: str) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise JobError("mpi4py cannot be used (%s); install mpi4py and Open MPI" % error)
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        if (self._world.Get_rank(), self._world.Get_size()) != (rank.rank, rank.size):
            raise JobError(
                "MPI: this is rank %d of %d, the launcher says %d of %d; start it with the mpirun that mpi4py uses"
                % (self._world.Get_rank(), self._world.Get_size(), rank.rank, rank.size)
            )

    def buffer(self, num_items: int, value: float) -> Any:
        import numpy

        return numpy.full(num_items, value, dtype=numpy.float32)

    def reduce(self, buffer: Any, rounds: int) -> None:
        in_place, total, allreduce = self._mpi.IN_PLACE, self._mpi.SUM, self._world.Allreduce
        for _ in range(rounds):
            allreduce(in_place, buffer, total)

    def num_wrong(self, buffer: Any, expected: float) -> int:
        return int((buffer != expected).sum())

    def sum(self, values: List[float]) -> List[float]:
        import numpy

        mine = numpy.asarray(values, dtype=numpy.float64)
        self._world.Allreduce(self._mpi.IN_PLACE, mine, self._mpi.SUM)
        return [float(value) for value in mine]

    def gather(self, text: str) -> List[str]:
        return [str(item) for item in self._world.allgather(text)]

    def settings(self) -> Dict[str, str]:
        import mpi4py

        return {"mpi4py": str(mpi4py.__version__), "mpi": self._mpi.Get_library_version().split(",")[0].strip("\0 ")}

    def close(self) -> None:
        """mpi4py ends MPI when the process does."""


def sizes(settings: AllReduce) -> List[int]:
    """Bytes of each step: from `min_bytes` by factor 2 to `max_bytes`, whole items of 4 bytes, at least one."""
    found = []
    size = max(_ITEM_BYTES, settings.min_bytes - settings.min_bytes % _ITEM_BYTES)
    while size <= settings.max_bytes:
        found.append(size)
        size *= 2
    return found


def measure(reducer: Any, rank: Rank, settings: AllReduce, size_bytes: int) -> Tuple[float, int]:
    """(microseconds of one round, mean over ranks; wrong values over all ranks) at one size."""
    num_items = size_bytes // _ITEM_BYTES
    checked = reducer.buffer(num_items, float(rank.rank % _CHECK_LEVELS + 1))
    reducer.reduce(checked, 1)
    expected = float(sum(r % _CHECK_LEVELS + 1 for r in range(rank.size)))
    wrong = reducer.num_wrong(checked, expected)
    # Zeros stay zeros however often they are summed: no overflow, and no slow denormal numbers.
    array = reducer.buffer(num_items, 0.0)
    reducer.reduce(array, settings.num_warmup)
    reducer.sum([0.0])
    began = time.perf_counter()
    reducer.reduce(array, settings.num_iterations)
    mine_us = (time.perf_counter() - began) / settings.num_iterations * 1e6
    total_us, total_wrong = reducer.sum([mine_us, float(wrong)])
    return total_us / rank.size, int(total_wrong)


def run(job: Job, rank: Rank) -> None:
    """Measure every size; rank 0 writes the JSON of `files.result`, atomically. Raises JobError."""
    settings = job.allreduce
    if settings is None:
        raise JobError("job.allreduce: found null, expected the sizes and the backend")
    reducer = open_reducer(settings.backend, rank, job.device)
    try:
        rows = []
        for size_bytes in sizes(settings):
            time_us, num_wrong = measure(reducer, rank, settings, size_bytes)
            rows.append({"size_bytes": size_bytes, "time_us": time_us, "num_wrong": num_wrong})
        hosts = sorted(set(reducer.gather(socket.gethostname())))
        if rank.rank == 0:
            _write(job.files.result, reducer, rank, hosts, rows)
    finally:
        reducer.close()


def open_reducer(backend: str, rank: Rank, device: str) -> Any:
    """The reducer of a backend. Raises JobError: unknown, or not usable here."""
    makers = {"horovod": HorovodReducer, "mpi": MpiReducer}
    if backend not in makers:
        raise JobError("job.allreduce.backend: found %r, expected one of %s" % (backend, sorted(makers)))
    if rank.size < 2:
        raise JobError("job.num_ranks: found %d, an all-reduce needs at least 2" % rank.size)
    try:
        return makers[backend](rank, device)
    except ImportError as error:
        raise JobError("job.allreduce.backend %s: %s" % (backend, error))


def _write(path: str, reducer: Any, rank: Rank, hosts: List[str], rows: List[Dict[str, Any]]) -> None:
    value = {
        "schema_version": SCHEMA_VERSION,
        "backend": reducer.backend,
        "transport": reducer.transport,
        "num_ranks": rank.size,
        "hosts": hosts,
        "settings": reducer.settings(),
        "rows": rows,
    }
    write_json(path, value)


def _gather_bytes(reducer: HorovodReducer, text: str) -> List[str]:
    """Texts of all ranks, through the one thing that every Horovod has: an all-gather of numbers."""
    import numpy

    width = 256
    raw = text.encode("utf-8")[:width].ljust(width, b"\0")
    mine = reducer._mx.nd.array(numpy.frombuffer(raw, dtype=numpy.uint8).reshape(1, width), dtype="uint8")
    every: Optional[Any] = reducer._hvd.allgather(mine, name="mlbench.hosts")
    assert every is not None
    return [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in every.asnumpy()]
