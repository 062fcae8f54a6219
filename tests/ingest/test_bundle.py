"""Bundles: what is sent arrives whole, and nothing in a bundle of others can do harm."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from mlbench.collect.tree import scan_tree
from mlbench.errors import InputError
from mlbench.ingest import bundle
from mlbench.ingest.bundle import read_bundle, write_bundle
from mlbench.ingest.care import rebuild, verify
from mlbench.ingest.published import import_folder
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database
from mlbench.store.repository import SaveOutcome, all_run_sets, load_run_set, save_run_set
from tests.support.run_folders import write_run_folder
from tests.support.run_logs import submission
from tests.support.run_sets import make_run_set

pytestmark = pytest.mark.slow
OWN = "20240501-093000-resnet50-0001"


@pytest.fixture
def sender(tmp_path: Path) -> Engine:
    db = open_database(str(tmp_path / "sender.sqlite"))
    write_run_folder(tmp_path / "runs", OWN)
    rebuild(db, tmp_path / "runs")
    tree = submission(tmp_path / "training_results_v2.1")
    save_run_set(db, import_folder(scan_tree(tree).folders[0]).run_sets[0])
    save_run_set(db, make_run_set("facts-only", path=None))
    return db


@pytest.fixture
def sent(sender: Engine, tmp_path: Path) -> Path:
    out = tmp_path / "sent.zip"
    written = write_bundle(sender, [item.run_set for item in all_run_sets(sender)], out)
    assert written.num_run_sets == 3
    return out


def _receive(path: Path, tmp_path: Path) -> tuple[Engine, bundle.BundleReport]:
    db = open_database(str(tmp_path / "there" / "db.sqlite"))
    return db, read_bundle(db, path, tmp_path / "there" / "runs", tmp_path / "there" / "imports")


def _rows(db: Engine, name: str) -> dict[str, list[str]]:
    record = load_run_set(db, name, telemetry=True)
    record.path = None
    record.provenance = {}
    for run in record.runs:
        run.log_path = None
    return canonical_rows(record)


def test_bundle_arrives_with_the_same_rows(sender: Engine, sent: Path, tmp_path: Path) -> None:
    db, report = _receive(sent, tmp_path)
    names = [item.run_set for item in all_run_sets(sender)]
    assert sorted(record.run_set for record, _ in report.saved) == names
    for name in names:
        assert _rows(db, name) == _rows(sender, name)
    assert verify(db, tmp_path / "there" / "runs").is_good


def test_bundle_read_twice_changes_nothing(sent: Path, tmp_path: Path) -> None:
    _receive(sent, tmp_path)
    _, report = _receive(sent, tmp_path)
    assert {outcome for _, outcome in report.saved} == {SaveOutcome.unchanged}
    left = [path.name for path in (tmp_path / "there" / "runs").iterdir()]
    assert sorted(left) == [".mlbench-runs", OWN]


def test_bundle_with_other_content_under_our_id_leaves_ours(sent: Path, tmp_path: Path) -> None:
    write_run_folder(tmp_path / "there" / "runs", OWN, log={"epochs": 36})
    _, report = _receive(sent, tmp_path)
    assert report.conflicts == [OWN]


def test_bundle_into_full_disk_or_missing_folder_leaves_nothing(sender: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_bundle(sender, [OWN], tmp_path / "no" / "such" / "x.zip")
    assert not (tmp_path / "no").exists()


def _changed(sent: Path, change: Any, extra: dict[str, bytes] | None = None) -> Path:
    """The bundle with a changed manifest and further entries."""
    out = sent.with_name("changed.zip")
    with zipfile.ZipFile(sent) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            target.writestr(info.filename, data)
        for name, data in (extra or {}).items():
            target.writestr(name, data)
    return out


def _own(manifest: dict[str, Any]) -> dict[str, Any]:
    return next(item for item in manifest["run_sets"] if item["run_set"] == OWN)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "./x", "a\\..\\b", "x\x00y", "C:evil", "", "a/" + "b" * 300],
)
def test_bundle_file_name_that_leads_out_is_refused(sent: Path, tmp_path: Path, name: str) -> None:
    data = b"evil"
    entry = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def change(manifest: dict[str, Any]) -> None:
        item = _own(manifest)
        item["files"][name] = entry

    with pytest.raises(InputError, match="leads out of its folder or is not allowed"):
        _receive(_changed(sent, change), tmp_path)
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("run_set", ["../evil", "/tmp/evil", "a/b", "..", "", ".hidden"])
def test_bundle_id_that_leads_out_is_refused(sent: Path, tmp_path: Path, run_set: str) -> None:
    with pytest.raises(InputError, match="is no id of a run set"):
        _receive(_changed(sent, lambda manifest: _own(manifest).update(run_set=run_set)), tmp_path)


def test_bundle_with_a_changed_log_is_refused_and_leaves_nothing(sent: Path, tmp_path: Path) -> None:
    out = sent.with_name("changed.zip")
    with zipfile.ZipFile(sent) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("run_2/attempt_0/result.txt"):
                data = data.replace(b"0.7602", b"0.7702")
            target.writestr(info.filename, data)
    with pytest.raises(InputError, match=r"run_2/attempt_0/result\.txt: damaged"):
        _receive(out, tmp_path)
    assert list((tmp_path / "there" / "runs").iterdir()) == []


def test_bundle_that_unpacks_to_more_than_it_says_is_stopped(sent: Path, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        _own(manifest)["files"]["config.yaml"]["size_bytes"] = 3

    with pytest.raises(InputError, match=r"config\.yaml: damaged"):
        _receive(_changed(sent, change), tmp_path)


def test_bundle_larger_than_the_limit_is_refused(sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_TOTAL_BYTES", 1000)
    with pytest.raises(InputError, match="at most 1000 are unpacked"):
        _receive(sent, tmp_path)


def test_bundle_with_a_link_is_refused(sent: Path, tmp_path: Path) -> None:
    out = sent.with_name("link.zip")
    with zipfile.ZipFile(sent) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            if info.filename.endswith("config.yaml"):
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            target.writestr(info, source.read(info.filename))
    with pytest.raises(InputError, match="is a link or a device"):
        _receive(out, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(format="other"), "format 'other'"),
        (lambda manifest: manifest.update(version=99), "bundle version 99, this mlbench reads 1"),
        (lambda manifest: manifest.pop("run_sets"), "manifest is damaged"),
        (lambda manifest: manifest.update(run_sets=[{}]), "manifest is damaged"),
        (lambda manifest: _own(manifest)["facts"].update(sha256="0"), "not those that the manifest names"),
        (lambda manifest: _own(manifest)["files"].update({"more.txt": {"size_bytes": 1, "sha256": "0"}}), "lacks"),
    ],
)
def test_bundle_that_is_not_right_is_one_sentence(sent: Path, tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _receive(_changed(sent, change), tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no zip", b"x" * 1000])
def test_file_that_is_no_bundle_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(InputError, match="is no bundle of mlbench"):
        _receive(tmp_path / "x.zip", tmp_path)


def test_truncated_bundle_is_refused(sent: Path, tmp_path: Path) -> None:
    sent.write_bytes(sent.read_bytes()[:-200])
    with pytest.raises(InputError):
        _receive(sent, tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_bundle_with_a_damaged_stream_is_refused(sent: Path, tmp_path: Path, method: int) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(sent) as source, zipfile.ZipFile(other, "w", method) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
        largest = max(target.infolist(), key=lambda info: info.compress_size)
    data = bytearray(other.read_bytes())
    start = largest.header_offset + 30 + len(largest.filename) + 20
    for at in range(start, start + 40):
        data[at] ^= 0xFF
    other.write_bytes(data)

    with pytest.raises(InputError, match=r"other\.zip"):
        _receive(other, tmp_path)


def test_bundle_that_is_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a folder, device or pipe, expected a bundle"):
        _receive(tmp_path / "pipe", tmp_path)
