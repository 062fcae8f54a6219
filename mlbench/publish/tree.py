"""A submission tree on disk: built apart, judged, and put in its place in one step, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlbench.check.locate import tree_entries
from mlbench.check.package_rules import offenders
from mlbench.errors import ConfigError


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A folder beside `target` to build in, on the same file system; it is gone afterwards, whatever happens.

    Raises: ConfigError: nothing can be written there.
    """
    parent = target.parent
    existed = parent.exists()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".mlbench-package-", dir=parent))
    except OSError as error:
        raise ConfigError(
            f"--out {parent}: cannot be written ({error.strerror or error}); give a folder you may write"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not existed and not target.exists():
            with suppress(OSError):
                parent.rmdir()


def write_file(path: Path, content: bytes) -> None:
    """Write a new file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as stream:
        stream.write(content)
    path.chmod(0o644)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder as it is; links stay links, so that a dangling one is found and not followed."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def refused_names(root: Path) -> list[str]:
    """`name reason` of everything below `root` that MLCommons' repository rules refuse, in order of names."""
    return [f"{name} {reason}" for name, reason in offenders(tree_entries(root))]


def put_in_place(built: Path, target: Path) -> None:
    """Make `built` be `target`. What was there before is replaced only when the new tree is in its place.

    Raises: ConfigError: it cannot be put there; what was there before is there still.
    """
    old = built.parent / "replaced"
    moved = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(old)
            moved = True
        built.rename(target)
    except OSError as error:
        if moved:
            with suppress(OSError):
                old.rename(target)
        raise ConfigError(f"{target}: cannot be put in place ({error.strerror or error})") from error
