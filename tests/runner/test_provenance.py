"""Where software and data come from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mlbench.runner.provenance import git_state, mount_of, worker_hash

# Two lines of a real /proc/self/mountinfo, an NFS mount and one with a space in its name after proc(5).
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
71 22 0:44 / /data rw,noatime shared:40 - nfs4 f800:/ifs/data rw,vers=4.1,rsize=1048576
72 22 0:45 / /mnt/my\\040disk rw - xfs /dev/sdb rw
"""


def test_mount_of_the_longest_point_wins() -> None:
    found = mount_of("/data/imagenet", MOUNTINFO)
    assert found == {"device": "f800:/ifs/data", "mount_point": "/data", "type": "nfs4", "options": "rw,noatime"}


def test_mount_of_a_name_that_only_begins_alike_is_another() -> None:
    assert mount_of("/database", MOUNTINFO)["mount_point"] == "/"


def test_mount_of_a_point_with_a_space() -> None:
    assert mount_of("/mnt/my disk/x", MOUNTINFO)["device"] == "/dev/sdb"


def test_mount_of_object_storage_and_of_damaged_text_is_empty() -> None:
    assert mount_of("s3://imagenet/train", MOUNTINFO) == {}
    assert mount_of("/data", "no columns\n") == {}


def test_worker_hash_changes_with_content_and_name(tmp_path: Path) -> None:
    one = tmp_path / "train.py"
    one.write_text("a = 1\n")
    first = worker_hash(tmp_path, [one])
    one.write_text("a = 2\n")
    second = worker_hash(tmp_path, [one])
    moved = one.rename(tmp_path / "other.py")
    assert len({first, second, worker_hash(tmp_path, [moved])}) == 3


def test_git_state_tells_commit_and_changes(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "errors.py").write_text("x\n")
    git("add", "errors.py")
    git("commit", "-q", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert git_state(tmp_path) == (head, False)
    (tmp_path / "errors.py").write_text("y\n")
    assert git_state(tmp_path) == (head, True)


def test_git_state_outside_a_checkout_is_not_known(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)


def test_git_state_of_a_package_installed_into_someones_checkout_is_not_theirs(tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    (tmp_path / "errors.py").write_text("x\n")  # there, but not tracked
    assert git_state(tmp_path) == (None, None)
