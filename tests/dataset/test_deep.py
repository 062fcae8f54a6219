"""Reading every record: each kind of fault is named with file, record and offset."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from mlbench.dataset import deep
from mlbench.dataset.deep import Findings, record_files, verify_all, whole_set_faults
from mlbench.dataset.judge import Decoder, Judge
from mlbench.dataset.layout import RecordFiles
from mlbench.errors import InputError
from mlbench.worker.native import library as native
from mlbench.worker.recordio import MAGIC_BYTES, RecordReader, RecordWriter, pack_image, read_index

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def _has_native() -> bool:
    try:
        native.load()
    except native.NativeError:
        return False
    return True


needs_native = pytest.mark.skipif(not _has_native(), reason="needs the native decoder (make install builds it)")


def encoded(kind: str = "JPEG", side: int = 48, **settings: Any) -> bytes:
    stream = io.BytesIO()
    noise = bytes((x * 7 + x // 3) % 256 for x in range(side * side * 3))
    Image.frombytes("RGB", (side, side), noise).save(stream, kind, **settings)
    return stream.getvalue()


def write(folder: Path, images: list[bytes], name: str = "train") -> RecordFiles:
    pair = RecordFiles.of_rec(folder / f"{name}.rec")
    with RecordWriter(str(pair.rec), str(pair.idx)) as writer:
        for key, image in enumerate(images):
            writer.write(key, pack_image(float(key % 3), key, image))
    return pair


def verify(*pairs: RecordFiles, decode: bool = True) -> Findings:
    return verify_all(list(pairs), num_workers=1, decode=decode)


def offset_of(pair: RecordFiles, record: int) -> int:
    return read_index(str(pair.idx)).offsets[record]


def change(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


@pytest.fixture(params=["native", "pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to decode; without a built library both are Pillow's."""
    if request.param == "pillow":

        def absent() -> None:
            raise native.NativeError("not built")

        monkeypatch.setattr(native, "load", absent)
    return str(request.param)


def test_verify_sound_files_counts_records_classes_and_bytes(tmp_path: Path, decoder: str) -> None:
    images = [encoded(), encoded("PNG"), encoded(side=20), encoded(), encoded()]
    found = verify(write(tmp_path, images), write(tmp_path, images[:1], "val"))
    assert (found.num_faults, found.num_records, found.labels) == (0, 6, {0.0, 1.0, 2.0})
    assert found.image_bytes == sum(map(len, images)) + len(images[0])


def test_verify_jpeg_without_its_middle_is_named(tmp_path: Path, decoder: str) -> None:
    pair = write(tmp_path, [encoded()] * 4)
    change(pair.rec, offset_of(pair, 2) + 32 + 150, b"\0" * 300)
    (fault,) = verify(pair).faults
    assert (fault.path, fault.record, fault.offset) == (pair.rec, 2, offset_of(pair, 2))
    assert "decoded" in fault.reason


def test_verify_truncated_jpeg_is_named(tmp_path: Path, decoder: str) -> None:
    pair = write(tmp_path, [encoded(side=96), encoded(side=96)[:1500]])
    (fault,) = verify(pair).faults
    assert fault.record == 1


def test_verify_without_decoding_reads_frames_only(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded(), b"\xff\xd8\xff nothing"])
    assert verify(pair, decode=False).num_faults == 0
    assert verify(pair).num_faults == 1


def test_verify_goes_on_behind_a_zeroed_magic(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 5)
    change(pair.rec, offset_of(pair, 1), b"\0\0\0\0")
    change(pair.rec, offset_of(pair, 3), b"\0\0\0\0")
    found = verify(pair)
    assert [(fault.record, fault.offset) for fault in found.faults] == [
        (1, offset_of(pair, 1)),
        (3, offset_of(pair, 3)),
    ]
    assert found.num_records == 3


def test_verify_without_idx_reads_all_and_names_the_idx(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 3)
    pair.idx.unlink()
    found = verify(pair)
    assert found.num_records == 3
    assert [fault.path for fault in found.faults] == [pair.idx]


def test_verify_without_idx_finds_its_way_behind_a_broken_head(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 3)
    at = offset_of(pair, 1)
    pair.idx.unlink()
    change(pair.rec, at, b"\0\0\0\0")
    found = verify(pair)
    assert found.num_records == 2
    assert [(fault.path, fault.offset) for fault in found.faults] == [(pair.idx, None), (pair.rec, at)]


def test_verify_length_running_into_the_next_record_is_found(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 3)
    change(pair.rec, offset_of(pair, 1) + 4, b"\xff\xff\xff\x00")
    found = verify(pair)
    assert [(fault.record, fault.offset) for fault in found.faults] == [(1, offset_of(pair, 1))]
    assert found.num_records == 2


def test_verify_index_that_names_too_few_and_wrong_offsets(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 4)
    offsets = read_index(str(pair.idx)).offsets
    pair.idx.write_text(f"0\t{offsets[0]}\n1\t{offsets[1] + 8}\n3\t{offsets[3]}\n9\t{pair.rec.stat().st_size + 4}\n")
    found = verify(pair)
    reasons = {(fault.path.name, fault.offset): fault.reason for fault in found.faults}
    assert "of another file" in reasons["train.idx", pair.rec.stat().st_size + 4]
    assert "not in the index" in reasons["train.rec", offsets[2]]
    assert "not on a record's head" in reasons["train.idx", offsets[1] + 8]
    assert found.num_records == 4


def test_verify_index_in_another_order_is_sound(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 5)
    pair.idx.write_text("".join(reversed(pair.idx.read_text().splitlines(keepends=True))))
    found = verify(pair)
    assert (found.num_faults, found.num_records) == (0, 5)


def test_verify_empty_index_is_a_fault(tmp_path: Path, decoder: str) -> None:
    pair = write(tmp_path, [encoded()] * 3)
    pair.idx.write_text("")
    found = verify(pair)
    assert [fault.reason for fault in found.faults] == [
        f"the index is empty, train.rec has {pair.rec.stat().st_size} bytes"
    ]


def test_verify_record_that_the_index_names_twice_is_a_fault(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()] * 3)
    lines = pair.idx.read_text().splitlines()
    pair.idx.write_text("\n".join([*lines, f"3\t{offset_of(pair, 1)}"]) + "\n")
    (fault,) = verify(pair).faults
    assert (fault.path, fault.offset, fault.record) == (pair.idx, offset_of(pair, 1), 3)
    assert fault.reason == "the index names this record twice"


@pytest.mark.parametrize("label", [float("nan"), float("inf"), -1.0, 0.5])
def test_verify_label_that_is_no_class_is_a_fault(tmp_path: Path, decoder: str, label: float) -> None:
    pair = RecordFiles.of_rec(tmp_path / "train.rec")
    with RecordWriter(str(pair.rec), str(pair.idx)) as writer:
        for key in range(4):
            writer.write(key, pack_image(label if key == 2 else float(key), key, encoded()))
    found = verify(pair)
    (fault,) = found.faults
    assert (fault.record, fault.offset, found.num_records) == (2, offset_of(pair, 2), 3)
    assert "is no class" in fault.reason
    assert found.labels == {0.0, 1.0, 3.0}


def test_verify_read_error_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = write(tmp_path, [encoded()])

    def refuse(self: RecordReader, path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(RecordReader, "__init__", refuse)
    with pytest.raises(InputError, match=r"train\.rec: cannot be read: Input/output error"):
        verify(pair)


def test_whole_set_a_missing_shard_and_a_second_set_are_faults(tmp_path: Path) -> None:
    for name in ("train-00000-of-00003", "train-00002-of-00003", "val"):
        write(tmp_path, [encoded()], name)
    assert [str(fault) for fault in whole_set_faults(tmp_path)] == [
        f"{tmp_path}/train-00001-of-00003.rec: not there, but other shards of its set are; bring it, or none"
    ]
    write(tmp_path, [encoded()], "train-00001-of-00003")
    assert whole_set_faults(tmp_path) == []
    write(tmp_path, [encoded()], "train")
    (fault,) = whole_set_faults(tmp_path)
    assert str(fault).endswith(
        "train.rec: of another set than train-00000-of-00003.rec: two sets in one folder; move one away"
    )


def test_verify_empty_file_says_so(tmp_path: Path) -> None:
    pair = write(tmp_path, [])
    assert "empty" in verify(pair).faults[0].reason


def test_verify_many_faults_are_counted_and_the_first_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "MAX_FAULTS_KEPT", 5)
    found = verify(write(tmp_path, [b"none"] * 12))
    assert (found.num_faults, len(found.faults)) == (12, 5)


def test_verify_ranges_cover_every_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "RANGE_RECORDS", 3)
    images = [encoded(side=16)] * 10
    images[7] = b"none"
    found = verify(write(tmp_path, images))
    assert found.num_records == 9
    assert [fault.record for fault in found.faults] == [7]


def test_verify_ranges_end_at_a_number_of_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [encoded(side=side) for side in (16, 200, 16, 16, 300, 16)]
    images[3] = b"none"
    pair = write(tmp_path, images)
    lengths = []
    walk_range = deep.verify_range

    def watched(what: deep.Range, library: Any = None) -> Findings:
        lengths.append(what.end - what.start)
        return walk_range(what, library)

    monkeypatch.setattr(deep, "RANGE_BYTES", 4000)
    monkeypatch.setattr(deep, "verify_range", watched)
    found = verify(pair)
    assert (found.num_records, [fault.record for fault in found.faults]) == (5, [3])
    assert len(lengths) > 2
    assert sum(lengths) == pair.rec.stat().st_size


@needs_native
def test_verify_natively_names_the_faults_that_judging_each_image_names(tmp_path: Path) -> None:
    image, progressive = encoded(side=96), encoded(side=96, progressive=True)
    images = [
        image,
        encoded("PNG"),
        image[:-300],
        progressive,
        progressive[:-300],
        image[:-2],
        image + b"behind",
        b"none",
        image[:400] + bytes(300) + image[700:],
        encoded("PNG")[:-60],
        image.replace(b"JFIF\0\x01", b"JFIF\0\x09"),
        image,
    ]
    judge = Judge(native.load())
    expected = [(number, judge.fault(memoryview(each))) for number, each in enumerate(images)]
    judge.close()

    found = verify(write(tmp_path, images))

    assert found.decoder is Decoder.native
    assert [(fault.record, fault.reason) for fault in found.faults] == [pair for pair in expected if pair[1]]
    assert len(found.faults) == 7
    assert found.num_records == 5


@needs_native
def test_verify_codes_that_are_none_are_a_fault_though_decoders_are_silent(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded(side=300)] * 3)
    at = offset_of(pair, 1)
    change(pair.rec, at + 3000, bytes([0xFE] * 40))  # more ones in a row than any code has
    checker = native.Checker(native.load())
    damaged = pair.rec.read_bytes()[at + 32 : at + 32 + len(encoded(side=300))]
    assert checker.check(damaged) == (native.OK, 0, "")
    checker.close()

    found = verify(pair)

    assert [(fault.record, fault.offset, fault.reason) for fault in found.faults] == [(1, at, deep.DAMAGED_CODES)]
    assert found.num_records == 2


@needs_native
def test_verify_records_in_parts_are_judged_as_others(tmp_path: Path) -> None:
    image = encoded()
    holding_magic = image[:20] + bytes(-(len(image[:20]) + 24) % 4) + MAGIC_BYTES  # no marker: libjpeg looks on
    pair = write(tmp_path, [image, image + bytes(-(len(image) + 24) % 4) + MAGIC_BYTES, image, holding_magic])
    found = verify(pair)
    assert found.num_records == 3
    assert [fault.record for fault in found.faults] == [3]


@pytest.mark.slow
def test_verify_in_workers_finds_the_same(tmp_path: Path, decoder: str) -> None:
    images = [encoded(side=16)] * 4500
    images[4100] = b"none"
    pair = write(tmp_path, images)
    found = verify_all([pair], num_workers=2)
    assert found.decoder is not None
    assert found.decoder.value in ("pillow", decoder)
    assert found.num_records == 4499
    assert [(fault.record, fault.offset) for fault in found.faults] == [(4100, offset_of(pair, 4100))]


def test_record_files_of_a_folder_or_either_file(tmp_path: Path) -> None:
    pair = write(tmp_path, [encoded()])
    for path in (tmp_path, pair.rec, pair.idx):
        assert record_files(path) == [pair]


def test_record_files_nothing_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.rec file in this folder"):
        record_files(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        record_files(tmp_path / "absent")
