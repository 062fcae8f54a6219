"""Import where something is in the way: trees with odd entries, targets that hold other files, sources that change."""

from __future__ import annotations

import errno
import fcntl
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.dataset import importing
from mlbench.errors import InputError
from mlbench.worker.recordio import MAX_PAYLOAD_BYTES, RecordReader, RecordWriter, pack_image
from tests.dataset.test_importing import CLASSES, JPEG, contents, make_tree, run


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _interrupted_before_joining(tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_join", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tree, out)
    monkeypatch.undo()


def test_import_refused_twice_leaves_the_other_data_set_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(make_tree(tmp_path / "one"), out)
    before = (out / "train.rec").read_bytes()
    other = make_tree(tmp_path / "two", per_class=5)
    for _ in range(2):
        with pytest.raises(InputError, match="is there already"):
            run(other, out)
    assert (out / "train.rec").read_bytes() == before
    assert sorted(path.name for path in out.iterdir()) == ["train.idx", "train.rec", "val.idx", "val.rec"]


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3), (2, 3)])
def test_import_with_another_number_of_shards_never_leaves_two_sets(tmp_path: Path, first: int, second: int) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    run(tree, out, shards=first)
    with pytest.raises(InputError, match="is there already"):
        run(tree, out, shards=second)
    run(tree, out, shards=second, overwrite=True)
    assert len(list(out.glob("train*.rec"))) == len(list(out.glob("train*.idx"))) == second


def test_import_overwriting_keeps_files_that_are_no_part_of_a_set(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    run(tree, out)
    (out / "train_small.rec").write_bytes(b"mine")
    run(tree, out, shards=2, overwrite=True)
    assert (out / "train_small.rec").read_bytes() == b"mine"


@pytest.mark.parametrize("target", [".", "train", "train/new", "val/n01"])
def test_import_into_its_own_source_is_refused(tmp_path: Path, target: str) -> None:
    tree = make_tree(tmp_path / "tree")
    before = sorted(tree.rglob("*"))
    with pytest.raises(InputError, match="lies in the source"):
        run(tree, tree / target)
    assert sorted(tree.rglob("*")) == before


def test_import_through_a_link_into_its_own_source_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "link").symlink_to(tree / "train")
    with pytest.raises(InputError, match="lies in the source"):
        run(tree, tmp_path / "link/out")


def test_import_beside_the_splits_of_its_source_works(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    assert run(tree, tree / "records")["train"].num_images == 12


@pytest.mark.parametrize("source", [".", "train.rec"])
def test_import_of_records_into_their_own_folder_is_refused(tmp_path: Path, source: str) -> None:
    out = tmp_path / "out"
    run(make_tree(tmp_path / "tree"), out)
    with pytest.raises(InputError, match="lies in the source"):
        run(out / source, out, shards=2, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["train.idx", "train.rec", "val.idx", "val.rec"]


def test_import_of_a_folder_with_two_sets_of_shards_is_refused(tmp_path: Path) -> None:
    tree, two = make_tree(tmp_path / "tree"), tmp_path / "two"
    run(tree, two, shards=2)
    run(tree, tmp_path / "one")
    (tmp_path / "one/train.rec").rename(two / "train.rec")
    with pytest.raises(InputError, match=r"train\.rec: of another set than train-00000-of-00002\.rec"):
        run(two, tmp_path / "out")


def test_import_of_shards_with_one_missing_names_it(tmp_path: Path) -> None:
    three = tmp_path / "three"
    run(make_tree(tmp_path / "tree"), three, shards=3)
    (three / "train-00001-of-00003.rec").unlink()
    with pytest.raises(InputError, match=r"train-00001-of-00003\.rec: not there"):
        run(three, tmp_path / "out")


def test_import_of_classes_and_records_in_one_folder_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    run(tree, tmp_path / "out")
    (tmp_path / "out/train.rec").rename(tree / "train.rec")
    with pytest.raises(InputError, match="both"):
        run(tree, tmp_path / "again")


@pytest.mark.parametrize("split", ["train", "val"])
def test_import_image_replaced_between_two_goes_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    _interrupted_before_joining(tree, out, monkeypatch)
    (tree / split / "n02/n02_1.JPEG").write_bytes(JPEG + b"replaced")
    run(tree, out)
    assert (1.0, JPEG + b"replaced") in contents(out / f"{split}.rec")


def test_import_image_replaced_after_its_shard_was_joined_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    monkeypatch.setattr(importing, "_report", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tree, out)
    monkeypatch.undo()
    assert (out / "train.rec").exists()
    (tree / "train/n02/n02_1.JPEG").write_bytes(JPEG + b"replaced")
    run(tree, out)
    assert (1.0, JPEG + b"replaced") in contents(out / "train.rec")
    assert len(contents(out / "train.rec")) == 12


def test_import_records_replaced_between_two_goes_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    tree = make_tree(tmp_path / "tree")
    run(tree, records)
    _interrupted_before_joining(records, out, monkeypatch)
    image = tree / "train/n02/n02_1.JPEG"
    image.write_bytes(image.read_bytes().replace(b"train", b"TRAIN"))
    run(tree, records, overwrite=True)
    run(records, out)
    assert contents(out / "train.rec") == contents(records / "train.rec")


def test_import_leftovers_of_a_killed_one_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    _interrupted_before_joining(tree, out, monkeypatch)
    left = out / ".import/.train-00000-00000.rec.99.tmp"
    left.write_bytes(b"half a part")
    _interrupted_before_joining(tree, out, monkeypatch)
    assert not left.exists()


def test_import_killed_while_joining_leaves_nothing_beside_the_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    seen: list[list[str]] = []

    def look(*_: object) -> None:
        seen.append(sorted(path.name for path in out.iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr("mlbench.dataset.layout.write_index", look)
    with pytest.raises(KeyboardInterrupt):
        run(tree, out)
    assert seen == [[".import"]]


def test_import_while_another_one_works_there_is_refused(tmp_path: Path) -> None:
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "out"
    (out / ".import").mkdir(parents=True)
    with (out / ".import/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another import"):
            run(tree, out)
    assert run(tree, out)["train"].num_images == 12


def test_import_that_finds_nothing_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError):
        run(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_import_of_what_is_no_file_is_an_error_and_never_waits(tmp_path: Path, kind: str) -> None:
    tree = make_tree(tmp_path / "tree")
    odd = tree / "train/n01/odd.JPEG"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "socket":
        os.mknod(odd, 0o140600)
    else:
        odd.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"odd\.JPEG: (cannot be read|no regular file)"):
        run(tree, tmp_path / "out")


def test_import_of_an_image_larger_than_a_record_names_it(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    large = tree / "train/n01/large.JPEG"
    large.write_bytes(JPEG)
    os.truncate(large, MAX_PAYLOAD_BYTES)
    with pytest.raises(InputError, match=r"large\.JPEG: 536,870,911 bytes, a record holds at most"):
        run(tree, tmp_path / "out")


@pytest.mark.parametrize("place", ["class", "source", "flat"])
def test_import_of_a_name_with_a_line_end_names_it(tmp_path: Path, place: str) -> None:
    tree = make_tree(tmp_path / "tree")
    synsets = None
    if place == "class":
        (tree / "train/n01").rename(tree / "train/n\n01")
    elif place == "source":
        tree = tree.rename(tmp_path / "tr\nee")
    else:
        for name in CLASSES:
            for path in (tree / "val" / name).iterdir():
                path.rename(tree / "val" / f"\n{path.name}")
            (tree / "val" / name).rmdir()
        synsets = tmp_path / "val.txt"
        synsets.write_text("n01\n" * 6)
    with pytest.raises(InputError, match="line end"):
        run(tree, tmp_path / "out", val_synsets=synsets)


def test_import_of_names_with_spaces_and_bytes_of_no_alphabet_keeps_their_images(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    for name in (b"a b.JPEG", b"\xff\xfe.JPEG", "ü\u202e.JPEG".encode(), b"tab\t.JPEG"):
        Path(os.fsdecode(os.fsencode(tree / "train/n01") + b"/" + name)).write_bytes(JPEG + name)
    run(tree, tmp_path / "out")
    assert {(0.0, JPEG + b"\xff\xfe.JPEG"), (0.0, JPEG + b"tab\t.JPEG")} < set(contents(tmp_path / "out/train.rec"))


def test_import_of_a_link_to_a_folder_inside_a_class_loses_no_image_in_silence(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "train/n01/more").symlink_to(tree / "train/n02")
    with pytest.raises(InputError, match=r"n01/more: a link to a folder"):
        run(tree, tmp_path / "out")


def test_import_skips_hidden_folders_at_every_depth_and_counts_them(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    for hidden in ("train/n01/.snapshot", "train/.snapshot"):
        (tree / hidden).mkdir()
        (tree / hidden / "old.JPEG").write_bytes(JPEG + b"old")
    report = run(tree, tmp_path / "out")["train"]
    assert (report.num_images, report.num_ignored) == (12, 2)


def test_import_images_beside_the_class_folders_are_counted_as_ignored(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    for split in ("train", "val"):
        (tree / split / "loose.JPEG").write_bytes(JPEG + b"of no class")
    reports = run(tree, tmp_path / "out")
    assert (reports["train"].num_ignored, reports["val"].num_ignored) == (1, 1)


def test_import_class_folder_with_a_space_can_be_listed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "train/n01").rename(tree / "train/great white shark")
    (tree / "val/n01").rename(tree / "val/great white shark")
    synsets = tmp_path / "synsets.txt"
    synsets.write_text("n03 goldfish\nn02\ngreat white shark\n")
    run(tree, tmp_path / "out", synsets=synsets)
    assert {label for label, image in contents(tmp_path / "out/train.rec") if b"train 0" in image} == {2.0}


def _flat(tree: Path) -> list[str]:
    for name in CLASSES:
        for path in (tree / "val" / name).iterdir():
            path.rename(tree / "val" / path.name.replace("_", " "))
        (tree / "val" / name).rmdir()
    return sorted(path.name for path in (tree / "val").iterdir())


@pytest.mark.parametrize("separator", [" ", "\t", ",", ", "])
def test_import_flat_validation_images_with_spaces_in_their_names_find_their_class(
    tmp_path: Path, separator: str
) -> None:
    tree = make_tree(tmp_path / "tree")
    listed = tmp_path / "val.txt"
    listed.write_text("".join(f"{name}{separator}{name[:3]}\n" for name in reversed(_flat(tree))))
    run(tree, tmp_path / "out", val_synsets=listed)
    assert [label for label, _ in contents(tmp_path / "out/val.rec")] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


def test_import_flat_validation_image_listed_with_two_classes_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    names = _flat(tree)
    listed = tmp_path / "val.txt"
    listed.write_text("".join(f"{name} {name[:3]}\n" for name in names) + f"{names[0]} n03\n")
    with pytest.raises(InputError, match=r"n01 0\.JPEG.* twice"):
        run(tree, tmp_path / "out", val_synsets=listed)


def test_import_flat_validation_image_that_is_not_listed_is_named(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    names = _flat(tree)
    listed = tmp_path / "val.txt"
    listed.write_text("".join(f"{name} {name[:3]}\n" for name in names[1:]))
    with pytest.raises(InputError, match=r"no class for n01 0\.JPEG"):
        run(tree, tmp_path / "out", val_synsets=listed)


def test_import_flat_validation_with_a_dangling_link_says_so(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    names = _flat(tree)
    (tree / "val/n03 9.JPEG").symlink_to("nowhere")
    listed = tmp_path / "val.txt"
    listed.write_text("".join(f"{name} {name[:3]}\n" for name in [*names, "n03 9.JPEG"]))
    with pytest.raises(InputError, match=r"n03 9\.JPEG: cannot be read"):
        run(tree, tmp_path / "out", val_synsets=listed)


def _without(lines: list[str], place: int) -> list[str]:
    return lines[:place] + lines[place + 1 :]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda lines: _without(lines, 5), r"train\.rec: records of \d+ bytes, the file has \d+"),
        (lambda lines: lines[1:], r"train\.rec: records of \d+ bytes, the file has \d+"),
        (lambda lines: lines[:-1], r"train\.rec: records of \d+ bytes, the file has \d+"),
        (lambda lines: [*lines, lines[4]], r"train\.idx: names offset \d+ twice"),
        (lambda _: [], r"train\.idx: names no record"),
    ],
    ids=["one missing", "first missing", "last missing", "one twice", "empty"],
)
def test_import_of_records_whose_index_is_not_whole_loses_and_doubles_none_in_silence(
    tmp_path: Path, change: Callable[[list[str]], list[str]], found: str
) -> None:
    run(make_tree(tmp_path / "tree"), tmp_path / "first")
    index = tmp_path / "first/train.idx"
    index.write_text("".join(f"{line}\n" for line in change(index.read_text().splitlines())))
    for _ in range(2):
        with pytest.raises(InputError, match=found):
            run(tmp_path / "first", tmp_path / "out", shards=2)
    assert not list((tmp_path / "out").glob("*.rec"))


def test_import_of_records_with_bytes_behind_the_last_is_refused(tmp_path: Path) -> None:
    run(make_tree(tmp_path / "tree"), tmp_path / "first")
    with (tmp_path / "first/train.rec").open("ab") as stream:
        stream.write(bytes(64))
    with pytest.raises(InputError, match="records of"):
        run(tmp_path / "first", tmp_path / "out")


def test_import_of_records_whose_index_is_out_of_order_keeps_the_index_order(tmp_path: Path) -> None:
    run(make_tree(tmp_path / "tree"), tmp_path / "first")
    index = tmp_path / "first/train.idx"
    index.write_text("".join(f"{line}\n" for line in reversed(index.read_text().splitlines())))
    run(tmp_path / "first", tmp_path / "out")
    assert contents(tmp_path / "out/train.rec") == contents(tmp_path / "first/train.rec")[::-1]


@pytest.mark.parametrize("label", [math.nan, math.inf, -1.0, 0.5])
def test_import_of_a_record_whose_label_is_no_class_names_it(tmp_path: Path, label: float) -> None:
    records = tmp_path / "records"
    records.mkdir()
    with RecordWriter(str(records / "train.rec"), str(records / "train.idx")) as writer:
        writer.write(0, pack_image(0.0, 0, JPEG))
        writer.write(1, pack_image(label, 1, JPEG))
    with pytest.raises(InputError, match=r"train\.rec, offset 36: label .*, expected a whole number"):
        run(records, tmp_path / "out")


def test_import_of_a_record_file_that_cannot_be_read_names_it_and_not_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make_tree(tmp_path / "tree"), tmp_path / "first")

    def broken(self: RecordReader, offset: int) -> tuple[bytes, int]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(RecordReader, "read_with_end", broken)
    with pytest.raises(InputError, match=r"first/train\.rec: cannot be read: Input/output error"):
        run(tmp_path / "first", tmp_path / "out")
