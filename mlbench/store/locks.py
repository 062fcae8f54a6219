"""Do file locks work here? SQLite is safe only where they do; on some network mounts they fail, or never return."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROBE_LIMIT_S = 10.0
BUSY_TIMEOUT_S = 30.0
"""How long one statement waits for what another process holds, in either database."""
NETWORK_TYPES = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "9p",
    "afs",
    "orangefs",
    "fuse.",
)
# A process of its own, because a lock call to a dead lock server cannot be interrupted from inside.
_PROBE = (
    "import fcntl, os, sys, tempfile\n"
    "handle, name = tempfile.mkstemp(prefix='.mlbench-locks-', dir=sys.argv[1])\n"
    "os.unlink(name)\n"
    "fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "fcntl.lockf(handle, fcntl.LOCK_UN)\n"
)


def lock_fault(folder: Path) -> str | None:
    """Why locks do not work in `folder`, None when they do. Takes at most PROBE_LIMIT_S."""
    import subprocess  # costs every start 20 ms and is needed only in trouble

    child = subprocess.Popen(
        [sys.executable, "-S", "-c", _PROBE, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = child.communicate(timeout=PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()  # not waited for: a call into a dead server may outlive the signal
        return f"a file lock did not answer within {PROBE_LIMIT_S:.0f} s"
    if child.returncode == 0:
        return None
    last = errors.strip().splitlines()[-1] if errors.strip() else f"the probe ended with status {child.returncode}"
    return f"a file lock failed: {last}"


def is_network(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether `path` lies on a network file system, where the write-ahead log of SQLite cannot work between hosts."""
    kind = file_system_type(path, mountinfo)
    return kind is not None and kind.startswith(NETWORK_TYPES)


def file_system_type(path: Path, mountinfo: Path) -> str | None:
    """Type of the file system that holds `path`, from the kernel's table of mounts; None where there is no table."""
    try:
        lines = mountinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = os.path.realpath(path)
    best: tuple[int, str] | None = None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if len(fields) < 5 or not rest:
            continue
        mount = fields[4].encode().decode("unicode_escape") if "\\" in fields[4] else fields[4]
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        # The last of equal mounts lies on top.
        if inside and (best is None or len(mount) >= best[0]):
            best = (len(mount), rest[0])
    return best[1] if best else None
