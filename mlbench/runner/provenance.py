"""Where the software and the data came from: git, packages, mount. Nothing secret is read.

Everything here is best effort: what cannot be found is None or empty, and a run is never stopped by it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from mlbench import __version__
from mlbench.choices import ContainerName, LauncherName
from mlbench.collect.runfiles import Provenance
from mlbench.launch.command import ISLAND
from mlbench.plan.types import Plan

PACKAGES = (
    "mxnet",
    "horovod",
    "numpy",
    "mlperf-logging",
    "scikit-learn",
    "hydra-core",
    "omegaconf",
    "SQLAlchemy",
    "nvidia-dali-cuda120",
    "mpi4py",
    "boto3",
)
_GIT_LIMIT_S = 5.0
_SOURCES = {".py", ".c", ".h"}
_REHEARSAL = ("rehearsal.py", "job.py", "start.py")
_MOUNTINFO = Path("/proc/self/mountinfo")


def gather(plan: Plan, clock_offsets_s: Mapping[str, float]) -> Provenance:
    """The provenance of a run set planned as `plan`, as of now."""
    commit, dirty = git_state(Path(__file__).resolve().parent.parent)
    in_container = plan.config.container.name is not ContainerName.none
    return Provenance(
        mlbench_version=__version__,
        git_commit=commit,
        git_dirty=dirty,
        python=".".join(str(part) for part in sys.version_info[:3]),
        packages=package_versions(),
        container_image=plan.container_image if in_container else None,
        container_digest=plan.config.container.digest if in_container else None,
        data_mount=mount_of(plan.data.path, _read(_MOUNTINFO)),
        clock_offsets_s=dict(clock_offsets_s),
        worker_sha256=worker_hash(ISLAND, _worker_sources(plan)),
    )


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit and "has changes" of the checkout that mlbench runs from; None twice when it is installed elsewhere."""
    commit = _git(folder, "rev-parse", "HEAD")
    tracked = _git(folder, "ls-files", "--error-unmatch", "errors.py")
    if commit is None or tracked is None:
        return None, None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit.strip(), None if status is None else bool(status.strip())


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _worker_sources(plan: Plan) -> list[Path]:
    if plan.config.launcher.name is LauncherName.rehearsal:
        return [ISLAND / name for name in _REHEARSAL]
    return [path for path in ISLAND.rglob("*") if path.suffix in _SOURCES and path.name != _REHEARSAL[0]]


def worker_hash(island: Path, sources: Iterable[Path]) -> str:
    """sha256 over names (relative to `island`) and contents."""
    total = hashlib.sha256()
    for path in sorted(sources):
        total.update(path.relative_to(island).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of the packages that can change a result; those not installed are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def mount_of(path: str, mountinfo: str) -> dict[str, str]:
    """The mount that holds `path` (absolute), from the text of /proc/self/mountinfo; empty for s3:// and unknown.

    Source of the columns: proc(5), /proc/pid/mountinfo."""
    if "://" in path:
        return {}
    best: dict[str, str] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 6 or len(tail) < 2:
            continue
        point = fields[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one.
        if inside and len(point) >= len(best.get("mount_point", "")):
            best = {"device": tail[1], "mount_point": point, "type": tail[0], "options": fields[5]}
    return best


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
