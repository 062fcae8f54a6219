"""The digits: fixed split, all images there, files whole or absent."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from mlbench.dataset import digits
from mlbench.dataset.digits import make_digits, split_indices
from mlbench.dataset.verify import quick_check
from mlbench.errors import InputError
from mlbench.worker.recordio import iter_records, unpack_image

pytest.importorskip("sklearn", reason="needs scikit-learn")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> digits.DigitsSet:
    return make_digits(tmp_path_factory.mktemp("digits"))


def test_make_digits_files_pass_the_quick_check(made: digits.DigitsSet) -> None:
    assert quick_check(made.train.rec, made.train.idx, 640) == []
    assert quick_check(made.val.rec, made.val.idx, 1157) == []
    names = sorted(path.name for path in made.train.rec.parent.iterdir())
    assert names == ["train.idx", "train.rec", "val.idx", "val.rec"]


def test_make_digits_each_image_is_in_one_split(made: digits.DigitsSet) -> None:
    ids = {}
    for files in (made.train, made.val):
        ids[files.rec.name] = [unpack_image(payload)[0].id for _, payload in iter_records(str(files.rec))]
    assert sorted(ids["train.rec"] + ids["val.rec"]) == list(range(1797))


def test_make_digits_training_has_64_of_each_digit(made: digits.DigitsSet) -> None:
    labels = Counter(unpack_image(payload)[0].label for _, payload in iter_records(str(made.train.rec)))
    assert labels == {float(digit): 64 for digit in range(10)}


def test_make_digits_images_keep_the_drawing(made: digits.DigitsSet) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    _, payload = next(iter(iter_records(str(made.train.rec))))
    header, jpeg = unpack_image(payload)
    image = Image.open(io.BytesIO(jpeg))
    assert (image.size, image.mode) == ((32, 32), "RGB")
    small = image.convert("L").resize((8, 8), Image.Resampling.BOX)
    source = load_digits().images[header.id] * 255 / 16
    difference = [abs(a - b) for a, b in zip(small.tobytes(), source.reshape(-1), strict=True)]
    # Bicubic enlarging followed by box reduction keeps each source pixel to about a tenth of full scale.
    assert sum(difference) / 64 < 12


def test_make_digits_twice_gives_the_same_bytes(made: digits.DigitsSet, tmp_path: Path) -> None:
    again = make_digits(tmp_path)
    assert again.train.rec.read_bytes() == made.train.rec.read_bytes()
    assert again.val.idx.read_bytes() == made.val.idx.read_bytes()


def test_make_digits_into_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"train\.rec: cannot be written"):
        make_digits(tmp_path / "taken")


def test_make_digits_broken_half_way_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise InputError("stop")

    monkeypatch.setattr(digits, "_encode", broken)
    with pytest.raises(InputError, match="stop"):
        make_digits(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_split_indices_uneven_classes_takes_all_of_the_rare_one() -> None:
    train, val = split_indices([0] * 10 + [1] * 2, num_train=8)
    assert sorted(train + val) == list(range(12))
    assert {10, 11} <= set(train)
