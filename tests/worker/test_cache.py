"""The page-cache helper on real files of a real file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.worker import cache

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def warm_file(tmp_path: Path) -> Path:
    """300 pages and a bit, written out and in the cache."""
    path = tmp_path / "train.rec"
    path.write_bytes(os.urandom(300 * PAGE + 17))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    path.read_bytes()
    return path


@pytest.fixture
def opened(warm_file: Path) -> cache.OpenFile:
    return cache.OpenFile(str(warm_file))


def _evictable(folder: Path) -> bool:
    """Whether the file system of `folder` lets go of pages at all (tmpfs does not)."""
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    mount = max((point for point in kinds if folder.is_relative_to(point)), key=len)
    return kinds[mount] not in ("tmpfs", "ramfs")


def test_resident_bytes_file_just_read_is_whole(opened: cache.OpenFile) -> None:
    assert cache.resident_bytes(opened) == 301 * PAGE


def test_evict_own_file_is_proven_by_mincore(warm_file: Path, opened: cache.OpenFile) -> None:
    if not _evictable(warm_file):
        pytest.fail("the tests' temporary folder is on a memory file system; set TMPDIR to a disk")
    report = cache.clear("evict", [opened])
    assert (report.proven, report.method, report.reason) == (True, "mincore", None)
    assert report.resident_bytes_before == 301 * PAGE
    assert report.resident_bytes_after == 0


def test_evict_dirty_file_is_synced_first(tmp_path: Path) -> None:
    path = tmp_path / "dirty.rec"
    path.write_bytes(bytes(64 * PAGE))
    report = cache.clear("evict", [cache.OpenFile(str(path))])
    assert report.proven
    assert report.resident_bytes_after == 0


def test_evict_empty_file_is_proven(tmp_path: Path) -> None:
    path = tmp_path / "empty.rec"
    path.touch()
    assert cache.clear("evict", [cache.OpenFile(str(path))]).proven


def test_sample_warm_then_cold_tells_them_apart(opened: cache.OpenFile) -> None:
    resident, probed = cache.sample([opened])
    assert (resident, probed) == (256, 256)
    opened.evict()
    resident, probed = cache.sample([opened])
    assert probed == 256
    assert resident < 10  # places that fall into a page that an earlier probe fetched


def test_evict_file_of_another_is_proven_by_samples_and_left_cold(opened: cache.OpenFile) -> None:
    opened.mincore_tells = False  # as for a file that we neither own nor may write
    report = cache.clear("evict", [opened])
    assert (report.proven, report.method) == (True, "sample")
    assert report.resident_bytes_before is None
    assert report.resident_bytes_after is None
    assert cache.resident_bytes(opened) == 0  # the probes' own pages are gone too


def test_evict_pages_held_by_a_mapping_is_not_proven(warm_file: Path, opened: cache.OpenFile) -> None:
    import mmap

    with warm_file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        touched = sum(mapped[at] for at in range(0, len(mapped), PAGE))
        assert touched >= 0
        report = cache.clear("evict", [opened])
    assert not report.proven
    assert report.resident_bytes_after == 301 * PAGE
    assert report.reason == f"{301 * PAGE} bytes stayed in the page cache after 5 attempts"


def test_evict_memory_file_system_is_not_proven() -> None:
    shared = Path("/dev/shm") / f"mlbench-test-{os.getpid()}"
    try:
        shared.write_bytes(bytes(8 * PAGE))
        report = cache.clear("evict", [cache.OpenFile(str(shared))])
    finally:
        shared.unlink(missing_ok=True)
    assert not report.proven
    assert report.resident_bytes_after == 8 * PAGE


def test_drop_kernel_file_not_writable_is_not_proven(
    opened: cache.OpenFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "DROP_CACHES", str(tmp_path / "missing" / "drop_caches"))
    report = cache.clear("drop", [opened])
    assert not report.proven
    assert report.reason is not None
    assert "dropping the whole cache needs root" in report.reason


def test_drop_writes_three_and_checks_the_files(
    opened: cache.OpenFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended = tmp_path / "drop_caches"
    monkeypatch.setattr(cache, "DROP_CACHES", str(pretended))
    report = cache.clear("drop", [opened])
    assert pretended.read_text() == "3\n"
    # Nothing was dropped, so the look at the files finds them and evicts them: never proven by the write alone.
    assert report.resident_bytes_before == 301 * PAGE
    assert report.proven
    assert report.resident_bytes_after == 0


def test_probe_not_supported_is_not_proven(opened: cache.OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(cache.os, "preadv", refuse)
    opened.mincore_tells = False
    report = cache.clear("evict", [opened])
    assert not report.proven
    assert report.reason == f"{opened.path}: preadv2(RWF_NOWAIT) failed (Operation not supported)"


def test_command_line_prints_one_object(warm_file: Path) -> None:
    command = [sys.executable, "-m", "mlbench.worker.cache", "--mode", "evict", "--files", str(warm_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    printed = json.loads(done.stdout)
    assert list(printed) == [
        "host",
        "mode",
        "proven",
        "method",
        "num_files",
        "total_bytes",
        "resident_bytes_before",
        "resident_bytes_after",
        "reason",
    ]
    assert printed["proven"] is True
    assert printed["total_bytes"] == 300 * PAGE + 17


def test_command_line_missing_file_is_status_2_and_says_which(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing.rec")
    command = [sys.executable, "-m", "mlbench.worker.cache", "--mode", "evict", "--files", missing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    printed = json.loads(done.stdout)
    assert printed["proven"] is False
    assert printed["reason"] == f"{missing}: No such file or directory"
