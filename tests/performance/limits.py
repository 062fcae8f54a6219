"""Physical limits of this machine, to set the other numbers against: memory, disk, and matrix products."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.performance.command import PEERS, python, run_command, sample_of
from tests.performance.context import Context, num_cpus
from tests.performance.harness import Experiment, Metrics, PeerError, Quantity, Ratio, Sample

BLOCK_BYTES = 4 << 20


def experiments(context: Context) -> Iterator[Experiment]:
    """One: memory copy, disk read past the page cache, and what the cores can multiply."""
    path = context.folder / "disk.bin"
    size_bytes = context.sized(64, 512) << 20

    @contextmanager
    def written() -> Iterator[None]:
        block = os.urandom(BLOCK_BYTES)
        with path.open("wb") as stream:
            for _ in range(size_bytes // BLOCK_BYTES):
                stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
        yield
        path.unlink()

    threads = str(num_cpus())
    yield Experiment(
        name="limits",
        about="what the machine can do at best; no goals",
        contestants={
            "memory": lambda: {
                "copy": sample_of(run_command(python(str(PEERS / "machine.py"), "copy", threads)).output)
            },
            "cores": lambda: {
                "product": sample_of(run_command(python(str(PEERS / "machine.py"), "product", threads)).output)
            },
            "disk": lambda: _disk(path, size_bytes),
        },
        ratios=[
            Ratio(
                name=f"memory copied by {threads} threads",
                unit="GB/s read and written",
                quantity=Quantity.rate,
                ours=("memory", "copy"),
            ),
            Ratio(name="disk, direct reads of 4 MiB", unit="GB/s", quantity=Quantity.rate, ours=("disk", "read")),
            Ratio(
                name=f"float32 matrix product, {threads} threads",
                unit="GFLOP/s",
                quantity=Quantity.rate,
                ours=("cores", "product"),
            ),
        ],
        setting=written,
    )


def _peer(what: str, threads: str) -> Metrics:
    return {what: sample_of(run_command(python(str(PEERS / "machine.py"), what, threads)).output)}


def _disk(path: Path, size_bytes: int) -> Metrics:
    """Direct I/O needs aligned memory, which mmap gives."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise PeerError(f"{path}: no direct I/O here ({error.strerror})") from error
    try:
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            begun = time.perf_counter()
            for offset in range(0, size_bytes, BLOCK_BYTES):
                os.preadv(descriptor, [buffer], offset)
            wall_s = time.perf_counter() - begun
    finally:
        os.close(descriptor)
    return {"read": Sample(wall_s=wall_s, amount=size_bytes / 1e9)}
