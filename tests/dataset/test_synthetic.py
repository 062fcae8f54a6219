"""Synthetic sets: as many, as large and of as many bytes as asked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from mlbench.dataset.making import CopyMode, SyntheticSet, make_synthetic
from mlbench.dataset.synthetic import ImageMaker, Recipe, fit_recipe
from mlbench.dataset.verify import quick_check
from mlbench.errors import InputError
from mlbench.worker.recordio import iter_records, unpack_image

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def make(out: Path, **changes: Any) -> SyntheticSet:
    settings: dict[str, Any] = {"num_images": 30, "num_val": 4, "px": 64, "mean_bytes": 2600, "copies": 1}
    return make_synthetic(out, **{"num_workers": 1, "copy_mode": CopyMode.stream, **settings, **changes})


@pytest.mark.slow
def test_fit_recipe_mean_of_other_images_is_near_what_was_asked() -> None:
    # 113 KB: mean image of ILSVRC2012 in the reference papers.
    maker = ImageMaker(fit_recipe(px=500, mean_bytes=113_000, seed=1))
    sizes = [len(maker.jpeg(number)) for number in range(1000, 1200)]
    assert abs(sum(sizes) / len(sizes) - 113_000) < 113_000 * 0.05


@pytest.mark.slow
def test_fit_recipe_impossible_size_names_the_range() -> None:
    with pytest.raises(InputError, match=r"images of 64 px have \d+ to \d+"):
        fit_recipe(px=64, mean_bytes=900_000, seed=1)


@pytest.mark.slow
def test_jpeg_same_number_same_bytes_and_no_two_alike() -> None:
    recipe = Recipe(seed=1, px=64, fine_share=0.3)
    first = [ImageMaker(recipe).jpeg(number) for number in (0, 1, 2)]
    assert first[0] == ImageMaker(recipe).jpeg(0)
    assert len(set(first)) == 3
    sides = [max(Image.open(io.BytesIO(jpeg)).size) for jpeg in first]
    assert all(64 * 0.79 <= side <= 64 * 1.21 for side in sides)


@pytest.mark.slow
def test_make_synthetic_copies_have_the_same_bytes_in_their_own_files(tmp_path: Path) -> None:
    made = make(tmp_path, copies=3)
    recs = sorted(tmp_path.glob("train-*.rec"))
    assert [rec.name for rec in recs] == [f"train-{n:05d}-of-00003.rec" for n in range(3)]
    assert len({rec.read_bytes() for rec in recs}) == 1
    assert len({rec.stat().st_ino for rec in recs}) == 3
    assert made.num_train == 90
    assert quick_check(recs[2], recs[2].with_suffix(".idx"), 30) == []
    assert not (tmp_path / ".making").exists()
    train = {unpack_image(payload)[0].id for _, payload in iter_records(str(recs[0]))}
    val = {unpack_image(payload)[0].id for _, payload in iter_records(str(tmp_path / "val.rec"))}
    assert (len(train), len(val), train & val) == (30, 4, set())


@pytest.mark.slow
def test_make_synthetic_linked_copies_are_one_file(tmp_path: Path) -> None:
    make(tmp_path, copies=2, copy_mode=CopyMode.link)
    assert len({rec.stat().st_ino for rec in tmp_path.glob("train-*.rec")}) == 1


@pytest.mark.slow
def test_make_synthetic_over_existing_files_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(InputError, match="is there already"):
        make(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3)])
def test_make_synthetic_beside_a_set_of_other_shards_is_refused(tmp_path: Path, first: int, second: int) -> None:
    make(tmp_path, copies=first)
    with pytest.raises(InputError, match="is there already"):
        make(tmp_path, copies=second)


@pytest.mark.slow
def test_make_synthetic_stopped_between_copies_leaves_no_part_of_a_set_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlbench.dataset.making._copy", stop)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "out", copies=3)
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    make(tmp_path / "out", copies=3)
    assert len(list((tmp_path / "out").iterdir())) == 8


@pytest.mark.slow
def test_make_synthetic_what_a_killed_one_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    (tmp_path / ".making/whole").mkdir(parents=True)
    (tmp_path / ".making/whole/train-00000-of-00002.rec").write_bytes(b"of another set")
    (tmp_path / ".making/0000000000.rec").write_bytes(b"half")
    make(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.idx", "train.rec", "val.idx", "val.rec"]


def test_make_synthetic_images_larger_than_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"100000 px: expected at most 4096"):
        make(tmp_path, px=100_000)
