"""Which fio command lines the storage stage runs. Pure, but for asking how full the disk is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlbench.config import StorageSettings
from mlbench.plan.data import mean_image_bytes
from mlbench.plan.types import Plan

_ALIGN = 4096
"""Direct I/O wants whole blocks of the device; 4 KiB suits every disk in use."""
_SMALLEST_RECORD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FioTest:
    """One fio run. `{files}` in an argument is the host's own folder of test files."""

    name: str
    pattern: str
    cache: str
    block_bytes: int
    num_readers: int
    file_set_bytes: int
    arguments: tuple[str, ...]


def fio_tests(plan: Plan, target: Path, *, own_files: bool) -> list[FioTest]:
    """The patterns, cheapest cache state first.

    Args: target: folder on the mount. own_files: fio may lay out files of its own there; otherwise the data set's
        files are read, and nothing is written.
    """
    settings = plan.config.benchmark.storage
    readers = max(1, max(host.slots for host in plan.placement.hosts))
    if own_files:
        size = file_set_bytes(settings, target, _memory_bytes())
        where: tuple[str, ...] = ("--directory={files}", "--filename_format=set.$jobnum", f"--size={size // readers}")
    else:
        data = [path for path in plan.data.worker.train_rec if Path(path).is_file()]
        size = sum(Path(path).stat().st_size for path in data)
        where = ("--readonly", "--filename=" + ":".join(_escaped(path) for path in data))
    record = record_bytes(mean_image_bytes(plan.config.data))
    depth = settings.iodepth
    direct = "direct" if settings.direct else "cold"
    flag = f"--direct={int(settings.direct)}"
    again = ("--time_based=1", "--norandommap=1")
    libaio = ("--ioengine=libaio", f"--iodepth={depth}", flag, *again)
    psync = ("--ioengine=psync", "--iodepth=1", "--direct=0")

    def test(name: str, pattern: str, cache: str, block: int, more: Sequence[str]) -> FioTest:
        common = (
            f"--name={name}",
            *where,
            f"--bs={block}",
            f"--numjobs={readers}",
            f"--runtime={settings.runtime_s:g}",
            "--group_reporting=1",
            "--randrepeat=0",
            "--output-format=json",
        )
        return FioTest(
            name=name,
            pattern=pattern,
            cache=cache,
            block_bytes=block,
            num_readers=readers,
            file_set_bytes=size,
            arguments=(*common, *more),
        )

    return [
        test("sequential", "sequential", direct, settings.block_sequential_bytes, ("--rw=read", *libaio)),
        test("random", "random", direct, settings.block_random_bytes, ("--rw=randread", *libaio)),
        # fio drops the files from the page cache before it starts, and its random map reads no block twice: a block
        # that is read again comes from memory. So this test ends with the time or with the file set.
        test("training-cold", "training", "cold", record, ("--rw=randread", "--invalidate=1", *psync)),
        test(
            "training-warm",
            "training",
            "warm",
            record,
            ("--rw=randread", "--invalidate=0", "--pre_read=1", *psync, *again),
        ),
    ]


def record_bytes(mean_bytes: float | None) -> int:
    """The read of one record: the mean image up to whole blocks; 128 KiB, ImageNet's, when it is not known."""
    if mean_bytes is None:
        return 131072
    return max(_SMALLEST_RECORD, -(-int(mean_bytes) // _ALIGN) * _ALIGN)


def file_set_bytes(settings: StorageSettings, target: Path, memory_bytes: int) -> int:
    """Size of fio's own files, in whole MiB: as asked, else twice the memory, within half the free disk and the limit.

    The limit keeps a first run short; findings say when memory could have served the file set.
    """
    if settings.file_size_gb is not None:
        wanted = settings.file_size_gb * 1e9
    else:
        wanted = min(2.0 * memory_bytes, settings.max_file_gb * 1e9)
    room = shutil.disk_usage(target).free / 2
    return max(1 << 20, int(min(wanted, room)) >> 20 << 20)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:")
