"""RecordIO against the format's own implementation, mxnet.recordio, both ways."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbench.worker import recordio
from mlbench.worker.recordio import MAGIC_BYTES, RecordFault, RecordReader, RecordWriter

AWKWARD = [
    b"",
    b"x",
    b"abcd",
    MAGIC_BYTES,
    MAGIC_BYTES * 3,
    MAGIC_BYTES + b"tail!",
    b"x" + MAGIC_BYTES + b"not aligned",
    b"head" + MAGIC_BYTES + b"in between" + b"12" + MAGIC_BYTES,
    bytes(range(256)) * 40,
]


def _write(folder: Path, payloads: list[bytes]) -> tuple[Path, Path]:
    rec, idx = folder / "t.rec", folder / "t.idx"
    with RecordWriter(str(rec), str(idx)) as writer:
        for key, payload in enumerate(payloads):
            writer.write(key, payload)
    return rec, idx


@pytest.mark.slow
def test_writer_awkward_payloads_gives_the_bytes_of_mxnet(tmp_path: Path) -> None:
    mxnet_recordio = pytest.importorskip("mxnet.recordio", reason="needs MXNet", exc_type=ImportError)
    theirs = mxnet_recordio.MXIndexedRecordIO(str(tmp_path / "m.idx"), str(tmp_path / "m.rec"), "w")
    for key, payload in enumerate(AWKWARD):
        theirs.write_idx(key, payload)
    theirs.close()
    rec, idx = _write(tmp_path, AWKWARD)
    assert rec.read_bytes() == (tmp_path / "m.rec").read_bytes()
    assert idx.read_text() == (tmp_path / "m.idx").read_text()


def test_mxnet_reads_our_image_records_by_index(tmp_path: Path) -> None:
    mxnet_recordio = pytest.importorskip("mxnet.recordio", reason="needs MXNet", exc_type=ImportError)
    rec, idx = _write(tmp_path, [recordio.pack_image(7.0, 41, b"jpeg!"), recordio.pack_image(8.0, 42, MAGIC_BYTES)])
    theirs = mxnet_recordio.MXIndexedRecordIO(str(idx), str(rec), "r")
    header, image = mxnet_recordio.unpack(theirs.read_idx(1))
    theirs.close()
    assert (header.label, header.id, image) == (8.0, 42, MAGIC_BYTES)


@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")  # MXNet's own call of NumPy
def test_unpack_image_of_mxnet_with_label_vector_gives_all_labels() -> None:
    mxnet_recordio = pytest.importorskip("mxnet.recordio", reason="needs MXNet", exc_type=ImportError)
    payload = mxnet_recordio.pack(mxnet_recordio.IRHeader(0, [3.0, 0.5], 9, 1), b"image")
    header, image = recordio.unpack_image(payload)
    assert header == recordio.ImageHeader((3.0, 0.5), 9, 1)
    assert (header.label, bytes(image)) == (3.0, b"image")


def test_iter_records_gives_offsets_of_the_index(tmp_path: Path) -> None:
    rec, idx = _write(tmp_path, AWKWARD)
    found = list(recordio.iter_records(str(rec)))
    index = recordio.read_index(str(idx))
    assert [payload for _, payload in found] == AWKWARD
    assert [offset for offset, _ in found] == list(index.offsets) == list(recordio.scan_offsets(str(rec)))
    assert list(index.keys) == list(range(len(AWKWARD)))


@given(st.lists(st.lists(st.sampled_from([b"a", b"bcd", MAGIC_BYTES, b"\0\0\0\0"])).map(b"".join), max_size=8))
def test_frame_any_payload_is_read_back(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    rec, _ = _write(tmp_path_factory.mktemp("rec"), payloads)
    assert [payload for _, payload in recordio.iter_records(str(rec))] == payloads


def test_next_head_inside_a_split_record_finds_the_next_record(tmp_path: Path) -> None:
    rec, idx = _write(tmp_path, [b"q" * 8 + MAGIC_BYTES + b"r" * 20, b"second"])
    size = rec.stat().st_size
    offsets = recordio.read_index(str(idx)).offsets
    assert recordio.next_head(str(rec), 0, size) == 0
    assert recordio.next_head(str(rec), 1, size) == offsets[1]
    assert recordio.next_head(str(rec), offsets[1] + 1, size) is None


def test_next_head_across_a_read_block_is_found(tmp_path: Path) -> None:
    first = (1 << 20) - recordio.HEAD_BYTES - 4
    rec, _ = _write(tmp_path, [b"z" * first, b"second"])
    assert recordio.next_head(str(rec), 4, rec.stat().st_size) == first + recordio.HEAD_BYTES


def test_reader_record_cut_short_names_file_and_offset(tmp_path: Path) -> None:
    rec, idx = _write(tmp_path, [b"first", b"second, longer"])
    offset = recordio.read_index(str(idx)).offsets[1]
    rec.write_bytes(rec.read_bytes()[:-4])
    with RecordReader(str(rec)) as reader, pytest.raises(RecordFault, match="cut short") as caught:
        reader.read(offset)
    assert (caught.value.path, caught.value.offset) == (str(rec), offset)


def test_reader_magic_zeroed_shows_found_and_expected(tmp_path: Path) -> None:
    rec, _ = _write(tmp_path, [b"first"])
    data = bytearray(rec.read_bytes())
    data[:4] = b"\0\0\0\0"
    rec.write_bytes(data)
    with (
        RecordReader(str(rec)) as reader,
        pytest.raises(RecordFault, match="bad magic 0x00000000, expected 0xced7230a"),
    ):
        reader.read(0)


def test_reader_middle_of_a_split_record_is_refused(tmp_path: Path) -> None:
    rec, _ = _write(tmp_path, [b"12345678" + MAGIC_BYTES + b"rest"])
    with RecordReader(str(rec)) as reader, pytest.raises(RecordFault, match="part 3"):
        reader.read(16)


def test_unpack_image_header_naming_more_labels_than_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="4294967295 labels"):
        recordio.unpack_image(struct.pack("<IfQQ", 0xFFFFFFFF, 0.0, 0, 0))
    with pytest.raises(ValueError, match="cut short"):
        recordio.unpack_image(b"short")


@pytest.mark.parametrize("line", ["1 x", "1", "-1\t5", "1\t2\t3", "a\t0", "0\t99999999999999999999999"])
def test_read_index_broken_line_names_its_offset(tmp_path: Path, line: str) -> None:
    idx = tmp_path / "t.idx"
    idx.write_text(f"0\t0\n{line}\n")
    with pytest.raises(RecordFault, match="expected 'key<TAB>offset'") as caught:
        recordio.read_index(str(idx))
    assert caught.value.offset == 4


def test_read_index_windows_line_ends_and_blank_lines_are_read(tmp_path: Path) -> None:
    idx = tmp_path / "t.idx"
    idx.write_bytes(b"0\t0\r\n\r\n1\t36\r\n")
    assert list(recordio.read_index(str(idx)).offsets) == [0, 36]


def test_extents_of_a_shuffled_index_follow_the_file() -> None:
    assert list(recordio.extents([100, 0, 36], 120)) == [20, 36, 64]


def test_frame_of_a_payload_beyond_29_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordio, "MAX_PAYLOAD_BYTES", 16)
    with pytest.raises(ValueError, match="at most 16 fit"):
        recordio.frame(b"x" * 17)
