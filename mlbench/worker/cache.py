"""Makes the page cache cold for the data files of this host, and proves it or says why not. Standard library, Linux.

    python -m mlbench_worker.cache --mode evict --files train.rec val.rec
    python -m mlbench_worker.cache --mode drop --files train.rec val.rec      (root: the whole page cache)

Prints one JSON object: host, mode, proven, method, num_files, total_bytes, resident_bytes_before, resident_bytes_after,
reason. `proven` is true only when afterwards nothing of the files was found in the cache. Resident bytes are null where
they cannot be known. Status 0: done, see `proven`. Status 2: a file cannot be opened, or wrong arguments.

How it is proved (`method`):
  mincore   asks the kernel about every page. It answers truly only for files that we own or may write (to others it
            says that everything is resident), so only then is it used.
  sample    reads one byte of up to 256 places with preadv2(RWF_NOWAIT), which fails where the page is not resident.
            The probe itself makes the kernel fetch that page, so the files are evicted once more afterwards.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import List, Optional, Sequence, Tuple

DROP_CACHES = "/proc/sys/vm/drop_caches"
MODES = ("evict", "drop")
_ATTEMPTS = 5
"""Pages that are just being written or read stay at the first attempt."""
_PAUSE_S = 0.05
_WINDOW_BYTES = 1 << 30
_NUM_SAMPLES = 256


class Unproven(Exception):
    """The cache may still hold the files; the text says why."""


@dataclass(frozen=True)
class Report:
    """What is printed."""

    host: str
    mode: str
    proven: bool
    method: Optional[str]
    num_files: int
    total_bytes: Optional[int]
    resident_bytes_before: Optional[int]
    resident_bytes_after: Optional[int]
    reason: Optional[str]


class OpenFile:
    """One data file, held open for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY)
        status = os.fstat(self.fd)
        self.size = status.st_size
        # The condition under which the kernel tells the truth, see can_do_mincore in mm/mincore.c.
        self.mincore_tells = os.geteuid() in (0, status.st_uid) or os.access(path, os.W_OK)

    def sync(self) -> None:
        """Dirty pages are not evicted, so they are written first."""
        os.fsync(self.fd)

    def evict(self) -> None:
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self.fd)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return libc


def resident_bytes(file: OpenFile) -> int:
    """Bytes of a file in the page cache, in whole pages. Raises Unproven where the kernel cannot say."""
    libc = _libc()
    num_pages = 0
    for start in range(0, file.size, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, file.size - start)
        # No access to the mapping is asked for, so nothing is read in.
        address = libc.mmap(None, length, 0, mmap.MAP_SHARED, file.fd, start)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise Unproven("%s: mmap failed (%s)" % (file.path, os.strerror(ctypes.get_errno())))
        try:
            pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
            if libc.mincore(address, length, pages) != 0:
                raise Unproven("%s: mincore failed (%s)" % (file.path, os.strerror(ctypes.get_errno())))
            num_pages += sum(bytes(pages).count(value) for value in range(1, 256, 2))  # lowest bit: resident
        finally:
            libc.munmap(address, length)
    return num_pages * mmap.PAGESIZE


def is_resident(file: OpenFile, offset: int) -> bool:
    """Whether the page at `offset` is in the cache. Raises Unproven where the file system cannot say."""
    try:
        return os.preadv(file.fd, [bytearray(1)], offset, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unproven("%s: preadv2(RWF_NOWAIT) failed (%s)" % (file.path, error.strerror))


def sample(files: Sequence[OpenFile]) -> Tuple[int, int]:
    """(resident, probed) of up to 256 places spread over all files by size, each file at least once."""
    total = sum(file.size for file in files)
    resident = probed = 0
    for file in files:
        if not file.size:
            continue
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)  # a probe then fetches its page and no more
        num = max(1, _NUM_SAMPLES * file.size // total)
        for place in range(num):
            low, high = file.size * place // num, file.size * (place + 1) // num
            resident += is_resident(file, random.randrange(low, max(high, low + 1)))
            probed += 1
    return resident, probed


class Cache:
    """The page cache as far as these files go."""

    def __init__(self, files: Sequence[OpenFile]) -> None:
        self._files = files
        self.method = "mincore" if all(file.mincore_tells for file in files) else "sample"

    def resident(self) -> Optional[int]:
        """Bytes in the cache; None where only samples can be taken."""
        return sum(resident_bytes(file) for file in self._files) if self.method == "mincore" else None

    def evict(self) -> None:
        for file in self._files:
            file.sync()
            file.evict()

    def prove_cold(self) -> Optional[int]:
        """Look, and evict again what is still there. Returns the bytes still resident. Raises Unproven."""
        if self.method == "mincore":
            return self._prove_by_mincore()
        resident = probed = 0
        for _ in range(_ATTEMPTS):
            resident, probed = sample(self._files)
            time.sleep(_PAUSE_S)  # the page of a probe cannot be evicted while it is being read
            self.evict()
            if not resident:
                return None
        raise Unproven("%d of %d sampled pages are still in the page cache" % (resident, probed))

    def _prove_by_mincore(self) -> int:
        left = self.resident() or 0
        for _ in range(_ATTEMPTS - 1):
            if not left:
                break
            time.sleep(_PAUSE_S)
            self.evict()
            left = self.resident() or 0
        return left


def drop_all() -> None:
    """Drop clean pages, dentries and inodes of the whole host. Raises Unproven."""
    os.sync()
    try:
        with open(DROP_CACHES, "w", encoding="ascii") as stream:
            stream.write("3\n")
    except OSError as error:
        raise Unproven("%s cannot be written (%s); dropping the whole cache needs root" % (DROP_CACHES, error.strerror))


def clear(mode: str, files: Sequence[OpenFile]) -> Report:
    """Clear and prove. Never raises for what a kernel or a file system refuses: that is `reason`."""
    cache = Cache(files)
    before: Optional[int] = None
    after: Optional[int] = None
    reason: Optional[str] = None
    try:
        before = cache.resident()
        if mode == "drop":
            drop_all()
        else:
            cache.evict()
        after = cache.prove_cold()
        if after:
            reason = "%d bytes stayed in the page cache after %d attempts" % (after, _ATTEMPTS)
    except Unproven as error:
        reason = str(error)
    except OSError as error:
        reason = "%s (errno %s)" % (error.strerror, error.errno)
    return Report(
        host=socket.gethostname(),
        mode=mode,
        proven=reason is None,
        method=cache.method,
        num_files=len(files),
        total_bytes=sum(file.size for file in files),
        resident_bytes_before=before,
        resident_bytes_after=after,
        reason=reason,
    )


def refused(mode: str, num_files: int, reason: str) -> Report:
    return Report(socket.gethostname(), mode, False, None, num_files, None, None, None, reason)


def main(arguments: Sequence[str]) -> int:
    """Returns the status of the process."""
    parser = argparse.ArgumentParser(prog="cache", description="Make the page cache cold and prove it.")
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--files", nargs="+", required=True)
    given = parser.parse_args(list(arguments))
    files: List[OpenFile] = []
    try:
        for path in given.files:
            files.append(OpenFile(path))
        report, status = clear(given.mode, files), 0
    except OSError as error:
        report, status = refused(given.mode, len(given.files), "%s: %s" % (error.filename, error.strerror)), 2
    finally:
        for file in files:
            file.close()
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
