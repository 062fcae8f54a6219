"""The quick check before run 1: case D15, and what a data set met in practice can look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.dataset.verify import Fault, count_faults, quick_check, quick_check_set
from mlbench.worker.recordio import RecordWriter, pack_image, read_index

JPEG = b"\xff\xd8\xff\xe0 not decoded here"


def _write(folder: Path, name: str, images: list[bytes]) -> tuple[Path, Path]:
    rec, idx = folder / f"{name}.rec", folder / f"{name}.idx"
    with RecordWriter(str(rec), str(idx)) as writer:
        for key, image in enumerate(images):
            writer.write(key, pack_image(float(key), key, image))
    return rec, idx


@pytest.fixture
def three(tmp_path: Path) -> tuple[Path, Path]:
    return _write(tmp_path, "train", [JPEG, JPEG + b"longer", JPEG + b"and longer still"])


def _only(faults: list[Fault]) -> Fault:
    assert len(faults) == 1, [str(fault) for fault in faults]
    return faults[0]


def test_quick_check_sound_set_finds_nothing(three: tuple[Path, Path]) -> None:
    assert quick_check(*three, 3) == []
    assert quick_check(*three, None) == []


def test_quick_check_no_idx_names_it(three: tuple[Path, Path]) -> None:
    rec, idx = three
    idx.unlink()
    fault = _only(quick_check(rec, idx, 3))
    assert fault.path == idx
    assert "not there" in fault.reason


def test_quick_check_no_files_names_both(tmp_path: Path) -> None:
    rec, idx = tmp_path / "train.rec", tmp_path / "train.idx"
    assert [fault.path for fault in quick_check(rec, idx, 3)] == [rec, idx]


def test_quick_check_idx_of_longer_file_names_offset(three: tuple[Path, Path], tmp_path: Path) -> None:
    rec, _ = three
    _, other = _write(tmp_path, "other", [JPEG * 5] * 9)
    fault = _only(quick_check(rec, other, None))
    assert fault.path == other
    assert fault.offset is not None
    assert fault.offset >= rec.stat().st_size
    assert "outside train.rec" in fault.reason
    assert "index is of another file" in fault.reason


def test_quick_check_idx_of_file_with_other_heads_names_offset(three: tuple[Path, Path], tmp_path: Path) -> None:
    rec, idx = three
    _, other = _write(tmp_path, "other", [JPEG + b"a" * 12, JPEG])
    faults = quick_check(rec, other, None)
    assert faults[0].offset == 0
    assert faults[1].offset == read_index(str(other)).offsets[1]
    assert "bad magic" in faults[1].reason
    assert idx != other


def test_quick_check_first_magic_zeroed_names_offset_zero(three: tuple[Path, Path]) -> None:
    rec, idx = three
    data = bytearray(rec.read_bytes())
    data[:4] = b"\0" * 4
    rec.write_bytes(data)
    fault = _only(quick_check(rec, idx, 3))
    assert (fault.path, fault.offset, fault.record) == (rec, 0, 0)
    assert "bad magic 0x00000000" in fault.reason


def test_quick_check_last_record_cut_short_names_it(three: tuple[Path, Path]) -> None:
    rec, idx = three
    rec.write_bytes(rec.read_bytes()[:-4])
    fault = _only(quick_check(rec, idx, 3))
    assert (fault.path, fault.record, fault.offset) == (rec, 2, read_index(str(idx)).offsets[2])
    assert "cut short" in fault.reason


def test_quick_check_empty_rec_says_so(three: tuple[Path, Path]) -> None:
    rec, idx = three
    rec.write_bytes(b"")
    fault = _only(quick_check(rec, idx, 3))
    assert (fault.path, fault.offset) == (rec, 0)
    assert "empty" in fault.reason


def test_quick_check_records_behind_the_index_are_found(three: tuple[Path, Path]) -> None:
    rec, idx = three
    idx.write_text("".join(idx.read_text().splitlines(keepends=True)[:2]))
    fault = _only(quick_check(rec, idx, None))
    assert "the file ends at" in fault.reason


def test_quick_check_index_without_first_record_is_of_another_file(three: tuple[Path, Path]) -> None:
    rec, idx = three
    idx.write_text("".join(idx.read_text().splitlines(keepends=True)[1:]))
    assert "no entry for offset 0" in _only(quick_check(rec, idx, None)).reason


def test_quick_check_index_with_garbage_names_line_offset(three: tuple[Path, Path]) -> None:
    rec, idx = three
    idx.write_text("0\t0\nnonsense\n")
    fault = _only(quick_check(rec, idx, 3))
    assert (fault.path, fault.offset) == (idx, 4)


def test_quick_check_image_that_is_no_image_names_record(tmp_path: Path) -> None:
    rec, idx = _write(tmp_path, "train", [JPEG, b"GIF89a...", b"\x89PNG\r\n\x1a\n..."])
    fault = _only(quick_check(rec, idx, 3))
    assert fault.record == 1
    assert "474946" in fault.reason


def test_quick_check_count_off_says_both_numbers(three: tuple[Path, Path]) -> None:
    assert _only(quick_check(*three, 4)).reason == "3 records, expected 4"


@pytest.mark.parametrize(("found", "sound"), [(1_281_167, True), (1_280_000, True), (1_279_000, False), (0, False)])
def test_count_near_ilsvrc2012_is_sound(found: int, sound: bool) -> None:
    # 1,281,167: training images of ILSVRC2012 (facts of the white paper H18597).
    assert (count_faults(Path("train.idx"), found, 1_281_167) == []) is sound


def test_quick_check_set_counts_all_shards_together(tmp_path: Path) -> None:
    pairs = [_write(tmp_path, f"train-{shard}", [JPEG] * 2) for shard in range(3)]
    recs, idxs = [rec for rec, _ in pairs], [idx for _, idx in pairs]
    assert quick_check_set(recs, idxs, 6) == []
    assert "6 records, expected 7" in str(quick_check_set(recs, idxs, 7)[0])


def test_quick_check_shuffled_index_is_sound(three: tuple[Path, Path]) -> None:
    rec, idx = three
    idx.write_text("".join(reversed(idx.read_text().splitlines(keepends=True))))
    assert quick_check(rec, idx, 3) == []
