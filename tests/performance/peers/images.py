"""Data sets: our import and verification, or nothing but reading the files.

    python images.py import TREE OUT | copy TREE OUT | verify REC | frames REC | read REC
prints one JSON object; amount is images for the first two, bytes for the rest.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

_CHUNK = 1 << 20


def import_tree(tree: Path, out: Path) -> int:
    """`mlbench data import`. Returns images."""
    from mlbench.dataset.importing import import_images
    from mlbench.dataset.parallel import default_workers

    shutil.rmtree(out, ignore_errors=True)
    reports = import_images(
        tree,
        out,
        num_shards=1,
        num_workers=default_workers(),
        synsets=None,
        val_synsets=None,
        overwrite=False,
    )
    return sum(report.num_images for report in reports)


def copy_tree(tree: Path, out: Path) -> int:
    """Read every file and write its bytes into one file: the least that an import must do. Returns files."""
    num_files = 0
    with out.open("wb") as sink:
        for folder, _, names in os.walk(tree):
            for name in names:
                with open(os.path.join(folder, name), "rb") as stream:  # noqa: PTH118, PTH123  # the cheapest way
                    sink.write(stream.read())
                num_files += 1
        sink.flush()
        os.fsync(sink.fileno())
    return num_files


def verify(rec: Path, decode: bool) -> int:
    """`mlbench data verify`. Returns bytes."""
    from mlbench.dataset.deep import record_files, verify_all
    from mlbench.dataset.parallel import default_workers

    found = verify_all(record_files(rec), num_workers=default_workers(), decode=decode)
    assert not found.num_faults
    return rec.stat().st_size


def read(rec: Path) -> int:
    """Nothing but reading. Returns bytes."""
    buffer = bytearray(_CHUNK)
    total = 0
    with rec.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            total += count
    return total


def cpu_s() -> float:
    """Of this process and of the workers that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Time one way, after the modules are imported."""
    import mlbench.dataset.deep
    import mlbench.dataset.importing  # noqa: F401

    ways: dict[str, Callable[[], int]] = {
        "import": lambda: import_tree(Path(sys.argv[2]), Path(sys.argv[3])),
        "copy": lambda: copy_tree(Path(sys.argv[2]), Path(sys.argv[3])),
        "verify": lambda: verify(Path(sys.argv[2]), True),
        "frames": lambda: verify(Path(sys.argv[2]), False),
        "read": lambda: read(Path(sys.argv[2])),
    }
    work = ways[sys.argv[1]]
    begun, cpu_begun = time.perf_counter(), cpu_s()
    amount = work()
    value = {"wall_s": time.perf_counter() - begun, "cpu_s": cpu_s() - cpu_begun, "amount": amount}
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
