"""Import of image folders and of record files: bytes, order, resumption, refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlbench.dataset import importing
from mlbench.dataset.importing import SplitReport, import_images
from mlbench.dataset.verify import quick_check
from mlbench.errors import InputError
from mlbench.worker.recordio import MAGIC_BYTES, iter_records, unpack_image

JPEG = b"\xff\xd8\xff\xe0"
CLASSES = ("n01", "n02", "n03")


def make_tree(folder: Path, per_class: int = 4) -> Path:
    """train/ and val/ of three classes; each image has bytes of its own, some hold RecordIO's magic."""
    for split, count in (("train", per_class), ("val", 2)):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                body = f"{split} {label} {number} ".encode() + MAGIC_BYTES * (number % 3)
                (folder / split / name / f"{name}_{number}.JPEG").write_bytes(JPEG + body)
    return folder


def run(source: Path, out: Path, shards: int = 1, workers: int = 1, **settings: object) -> dict[str, SplitReport]:
    reports = import_images(source, out, num_shards=shards, num_workers=workers, **settings)  # type: ignore[arg-type]
    return {report.split: report for report in reports}


def contents(rec: Path) -> list[tuple[float, bytes]]:
    found = []
    for _, payload in iter_records(str(rec)):
        header, image = unpack_image(payload)
        found.append((header.label, bytes(image)))
    return found


def expected(tree: Path, split: str) -> list[tuple[float, bytes]]:
    return [
        (float(label), path.read_bytes())
        for label, name in enumerate(CLASSES)
        for path in sorted((tree / split / name).iterdir())
        if path.suffix == ".JPEG"
    ]


def test_import_keeps_every_byte_and_label(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    reports = run(tree, tmp_path / "out")
    assert sorted(contents(tmp_path / "out/train.rec")) == sorted(expected(tree, "train"))
    assert contents(tmp_path / "out/val.rec") == expected(tree, "val")
    train = reports["train"]
    image_bytes = sum(len(image) for _, image in expected(tree, "train"))
    assert (train.num_images, train.num_classes, train.image_bytes) == (12, 3, image_bytes)
    assert train.mean_image_bytes == image_bytes / 12
    assert train.rec_bytes == (tmp_path / "out/train.rec").stat().st_size


def test_import_leaves_only_its_files_and_they_are_sound(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(make_tree(tmp_path / "tree"), out)
    assert sorted(path.name for path in out.iterdir()) == ["train.idx", "train.rec", "val.idx", "val.rec"]
    assert quick_check(out / "train.rec", out / "train.idx", 12) == []


def test_import_training_is_shuffled_the_same_way_each_time(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", per_class=20)
    run(tree, tmp_path / "a")
    run(tree, tmp_path / "b")
    assert (tmp_path / "a/train.rec").read_bytes() == (tmp_path / "b/train.rec").read_bytes()
    assert contents(tmp_path / "a/train.rec") != expected(tree, "train")


def test_import_shards_hold_the_same_records_as_one_file(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", per_class=7)
    run(tree, tmp_path / "one")
    reports = run(tree, tmp_path / "many", shards=4)
    shards = sorted((tmp_path / "many").glob("train-*.rec"))
    assert [shard.name for shard in shards] == [f"train-{n:05d}-of-00004.rec" for n in range(4)]
    assert [record for shard in shards for record in contents(shard)] == contents(tmp_path / "one/train.rec")
    assert len(reports["train"].files) == 4


def test_import_more_shards_than_images_gives_no_broken_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fewer images"):
        run(make_tree(tmp_path / "tree", per_class=1), tmp_path / "out", shards=9)


@pytest.mark.slow
def test_import_several_processes_give_the_same_bytes(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", per_class=40)
    run(tree, tmp_path / "one", workers=1)
    seen: list[int] = []
    run(tree, tmp_path / "two", workers=2, report=lambda progress: seen.append(progress.items))
    assert contents(tmp_path / "one/train.rec") == contents(tmp_path / "two/train.rec")
    assert seen[-1] <= 126


def test_import_stopped_half_way_keeps_finished_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, out = make_tree(tmp_path / "tree", per_class=30), tmp_path / "out"
    whole = importing.write_part
    written: list[str] = []

    def two_then_stop(part: importing.Part) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        whole(part)
        written.append(part.files.rec.name)

    monkeypatch.setattr(importing, "write_part", two_then_stop)
    with pytest.raises(KeyboardInterrupt):
        run(tree, out, shards=4)
    assert not list(out.glob("*.rec"))
    again: list[str] = []

    def count(part: importing.Part) -> None:
        again.append(part.files.rec.name)
        whole(part)

    monkeypatch.setattr(importing, "write_part", count)
    listed: list[tuple[int, int]] = []
    run(tree, out, shards=4, on_listed=lambda total, kept: listed.append((total, kept)))
    assert not set(again) & set(written)
    total, kept = listed[0]
    assert total == 96
    assert kept > 0
    run(tree, tmp_path / "fresh", shards=4)
    for shard in sorted(out.glob("*.rec")):
        assert shard.read_bytes() == (tmp_path / "fresh" / shard.name).read_bytes()


def test_import_of_a_changed_tree_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, out = make_tree(tmp_path / "tree", per_class=6), tmp_path / "out"
    monkeypatch.setattr(importing, "_join", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tree, out)
    monkeypatch.undo()
    (tree / "train/n01/extra.JPEG").write_bytes(JPEG + b"new")
    assert run(tree, out)["train"].num_images == 19
    assert (0.0, JPEG + b"new") in contents(out / "train.rec")


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_import_killed_then_run_again_ends_complete(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree", per_class=3000), tmp_path / "out"
    program = "from mlbench.cli.main import main; main()"
    argv = [sys.executable, "-c", program, "data", "import", "--from", str(tree), "--out", str(out), "--shards", "3"]
    running = subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob(".import/train-*.rec")) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait(60)
    subprocess.run([*argv, "--overwrite"], check=True, timeout=300, capture_output=True)
    found = [record for shard in sorted(out.glob("train-*.rec")) for record in contents(shard)]
    assert sorted(found) == sorted(expected(tree, "train"))
    assert not (out / ".import").exists()


def test_import_over_existing_files_is_refused_unless_told(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    run(tree, out)
    with pytest.raises(InputError, match=r"train\.rec: is there already; give another --out, or --overwrite"):
        run(tree, out)
    run(tree, out, overwrite=True)


def test_import_of_record_files_keeps_payloads_and_order(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    run(tree, tmp_path / "first", shards=2)
    reports = run(tmp_path / "first", tmp_path / "second")
    first = [record for shard in sorted((tmp_path / "first").glob("train-*.rec")) for record in contents(shard)]
    assert contents(tmp_path / "second/train.rec") == first
    assert reports["train"].num_classes == 3


def test_import_of_a_rec_without_idx_walks_it(tmp_path: Path) -> None:
    run(make_tree(tmp_path / "tree"), tmp_path / "first")
    (tmp_path / "first/train.idx").unlink()
    assert run(tmp_path / "first/train.rec", tmp_path / "second")["train"].num_images == 12


def test_import_of_an_image_that_is_none_names_it(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "train/n02/n02_1.JPEG").write_bytes(b"")
    with pytest.raises(InputError, match=r"n02_1\.JPEG: image begins with nothing, expected JPEG"):
        run(tree, tmp_path / "out")


def test_import_ignores_and_counts_other_files(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "train/n01/.DS_Store").write_text("x")
    (tree / "train/n01/readme.txt").write_text("x")
    (tree / "train/notes.md").write_text("x")
    report = run(tree, tmp_path / "out")["train"]
    assert (report.num_images, report.num_ignored) == (12, 3)


def test_import_synset_list_decides_the_labels(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    synsets = tmp_path / "synsets.txt"
    synsets.write_text("n03 goldfish\r\nn01 tench\n\nn02 shark\nn04 not here\n")
    run(tree, tmp_path / "out", synsets=synsets)
    labels = {image.split()[1]: label for label, image in contents(tmp_path / "out/train.rec")}
    assert labels == {b"0": 1.0, b"1": 2.0, b"2": 0.0}


def test_import_folder_missing_in_the_synset_list_is_named(tmp_path: Path) -> None:
    synsets = tmp_path / "synsets.txt"
    synsets.write_text("n01\nn02\nn_03\n")
    with pytest.raises(InputError, match="class folder 'n03' is not listed; did you mean 'n_03'"):
        run(make_tree(tmp_path / "tree"), tmp_path / "out", synsets=synsets)


@pytest.mark.parametrize("named", [False, True])
def test_import_flat_validation_takes_its_classes_from_a_list(tmp_path: Path, named: bool) -> None:
    tree = make_tree(tmp_path / "tree")
    for path in sorted((tree / "val").rglob("*.JPEG")):
        path.rename(tree / "val" / path.name)
    for name in CLASSES:
        (tree / "val" / name).rmdir()
    names = sorted(path.name for path in (tree / "val").iterdir())
    listed = tmp_path / "val.txt"
    listed.write_text("\n".join(f"{name} {name[:3]}" if named else name[:3] for name in names))
    run(tree, tmp_path / "out", val_synsets=listed)
    assert [label for label, _ in contents(tmp_path / "out/val.rec")] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


def test_import_flat_validation_without_list_says_what_to_give(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    for name in CLASSES:
        for path in (tree / "val" / name).iterdir():
            path.rename(tree / "val" / path.name)
        (tree / "val" / name).rmdir()
    with pytest.raises(InputError, match="--val-synsets"):
        run(tree, tmp_path / "out")


@pytest.mark.parametrize("case", ["absent", "empty", "no images"])
def test_import_of_nothing_is_one_sentence(tmp_path: Path, case: str) -> None:
    source = tmp_path / "source"
    if case != "absent":
        source.mkdir()
    if case == "no images":
        (source / "n01").mkdir()
    with pytest.raises(InputError, match="expected"):
        run(source, tmp_path / "out")
