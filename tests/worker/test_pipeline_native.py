"""The native decoder against Pillow, and the pipeline around it."""

from __future__ import annotations

import ctypes
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mlbench.dataset.synthetic import ImageMaker, Recipe
from mlbench.worker.native import build
from mlbench.worker.native import library as native
from mlbench.worker.recordio import MAGIC_BYTES

numpy = pytest.importorskip("numpy", reason="needs NumPy")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

# MXNet imports SciPy by names that SciPy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")


@pytest.fixture(scope="module")
def photos() -> list[bytes]:
    """JPEGs of about 500 pixels and 100 KB with the spectrum of photographs."""
    maker = ImageMaker(Recipe(seed=3, px=500, fine_share=0.26))
    return [maker.jpeg(number) for number in range(16)]


class Decoded:
    def __init__(self, images: Any, faults: list[tuple[int, int, str]], warnings: list[int]) -> None:
        self.images = images
        self.faults = faults
        self.warnings = warnings


def decode(library: Any, jpegs: Sequence[bytes], spec: native.Spec, numbers: Sequence[int] | None = None) -> Decoded:
    """Images of (n, px, px, 3), whatever is not filled NaN."""
    pool = native.Pool(library, 2)
    items = (native.Item * len(jpegs))()
    out = numpy.full((len(jpegs), spec.px, spec.px, 3), numpy.nan, dtype="float32")
    kept = [ctypes.create_string_buffer(jpeg, len(jpeg)) for jpeg in jpegs]
    for place, memory in enumerate(kept):
        items[place].data, items[place].size = ctypes.addressof(memory), len(jpegs[place])
        items[place].number = numbers[place] if numbers else place
    pool.wait(pool.submit(spec, items, len(jpegs), out.ctypes.data))
    pool.close()
    return Decoded(out, native.messages(items, len(jpegs)), [item.num_warnings for item in items])


def plain_spec(px: int, resize_px: int, **settings: Any) -> native.Spec:
    return native.make_spec(
        px=px, resize_px=resize_px, mean_rgb=(0, 0, 0), std_rgb=(1, 1, 1), channels_last=True, **settings
    )


def crop_spec(**settings: Any) -> native.Spec:
    return plain_spec(
        224, 256, random_resized_crop=True, area=(0.05, 1.0), aspect=(3 / 4, 4 / 3), mirror=True, **settings
    )


def pillow_validation(jpeg: bytes, px: int, resize_px: int) -> Any:
    """Resize of the whole image, then the centre: what evaluation scripts do."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    shorter = min(image.size)
    image = image.resize((image.width * resize_px // shorter, image.height * resize_px // shorter), 2)
    left, top = (image.width - px) // 2, (image.height - px) // 2
    return numpy.asarray(image.crop((left, top, left + px, top + px)), dtype="float32")


def as_jpeg(image: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


@pytest.mark.parametrize(("px", "resize_px"), [(224, 256), (32, 40), (64, 64), (299, 330)])
def test_validation_images_are_those_of_pillow(library: Any, photos: list[bytes], px: int, resize_px: int) -> None:
    found = decode(library, photos, plain_spec(px, resize_px))
    expected = numpy.stack([pillow_validation(jpeg, px, resize_px) for jpeg in photos])
    assert found.faults == []
    # The bound of issue 6: mean absolute difference under 1.5 of 255.
    assert abs(found.images - expected).mean() < 1.5


def test_training_crops_are_the_regions_that_the_placement_says(library: Any, photos: list[bytes]) -> None:
    spec = crop_spec(key=99)
    found = decode(library, photos, spec)
    for place, jpeg in enumerate(photos):
        image = Image.open(io.BytesIO(jpeg))
        where = native.placement(library, spec, place, *image.size)
        box = (where.x0, where.y0, where.x0 + 224 * where.step_x, where.y0 + 224 * where.step_y)
        expected = numpy.asarray(image.resize((224, 224), 2, box=box), dtype="float32")
        if where.mirrored:
            expected = expected[:, ::-1]
        assert abs(found.images[place] - expected).mean() < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_every_kind_of_jpeg_is_decoded(
    library: Any, photos: list[bytes], mode: str, subsampling: int, progressive: bool
) -> None:
    source = Image.open(io.BytesIO(photos[0]))
    options = {} if mode == "L" else {"subsampling": subsampling}
    for size in ((1, 1), (7, 5), (17, 33), (640, 31), (500, 375), (900, 1201)):
        jpeg = as_jpeg(source.resize(size).convert(mode), progressive=progressive, **options)
        found = decode(library, [jpeg], plain_spec(224, 256))
        assert found.faults == []
        assert abs(found.images[0] - pillow_validation(jpeg, 224, 256)).mean() < 1.5, size


def test_placement_area_and_aspect_stay_in_their_ranges(library: Any) -> None:
    spec = crop_spec(key=5)
    areas, mirrored = [], 0
    for number in range(2000):
        where = native.placement(library, spec, number, 500, 375)
        width, height = where.step_x * 224, where.step_y * 224
        assert 0 <= where.x0 <= where.x0 + width <= 500.001
        assert 0 <= where.y0 <= where.y0 + height <= 375.001
        assert 0.74 < width / height < 1.36  # 3/4 to 4/3, whole pixels
        areas.append(width * height / (500 * 375))
        mirrored += where.mirrored
    assert 0.045 < min(areas) < 0.08
    assert 0.9 < max(areas) <= 1.0
    assert 900 < mirrored < 1100  # half of 2,000; four standard deviations are 89


def test_placement_depends_on_key_and_number_only(library: Any) -> None:
    first = [native.placement(library, crop_spec(key=1), number, 500, 375) for number in range(50)]
    again = [native.placement(library, crop_spec(key=1), number, 500, 375) for number in range(50)]
    other = [native.placement(library, crop_spec(key=2), number, 500, 375) for number in range(50)]
    assert first == again
    assert len(set(first)) == 50
    assert not set(first) & set(other)


def test_shift_moves_whole_pixels_and_repeats_the_border(library: Any) -> None:
    pixels = (numpy.arange(32)[:, None, None] * 4 + numpy.arange(32)[None, :, None] + numpy.zeros((1, 1, 3))).astype(
        "u1"
    )
    jpeg = as_jpeg(Image.fromarray(pixels), subsampling=0)
    decoded = numpy.asarray(Image.open(io.BytesIO(jpeg)), dtype="float32")
    spec = plain_spec(32, 32, max_shift=3, key=11)
    found = decode(library, [jpeg] * 40, spec)
    shifts = set()
    padded = numpy.pad(decoded, ((3, 3), (3, 3), (0, 0)), mode="edge")
    for place in range(40):
        where = native.placement(library, spec, place, 32, 32)
        x, y = round(where.x0), round(where.y0)
        shifts.add((x, y))
        assert numpy.array_equal(found.images[place], padded[3 + y : 35 + y, 3 + x : 35 + x])
    assert {x for x, _ in shifts} == {y for _, y in shifts} == set(range(-3, 4))


def test_normalise_and_planar_layout_are_exact(library: Any, photos: list[bytes]) -> None:
    plain = decode(library, photos[:2], plain_spec(64, 64)).images
    spec = native.make_spec(px=64, resize_px=64, mean_rgb=(10, 20, 30), std_rgb=(2, 4, 5), channels_last=False)
    pool = native.Pool(library, 1)
    out = numpy.empty((2, 3, 64, 64), dtype="float32")
    items = (native.Item * 2)()
    kept = [ctypes.create_string_buffer(jpeg, len(jpeg)) for jpeg in photos[:2]]
    for place, memory in enumerate(kept):
        items[place].data, items[place].size = ctypes.addressof(memory), len(photos[place])
    assert pool.wait(pool.submit(spec, items, 2, out.ctypes.data)) == 0
    pool.close()
    expected = (plain - numpy.array([10, 20, 30])) / numpy.array([2, 4, 5])
    assert numpy.allclose(out, expected.transpose(0, 3, 1, 2), atol=1e-4)


def test_damaged_jpegs_are_reported_and_never_end_the_process(library: Any, photos: list[bytes]) -> None:
    chance = random.Random(1)
    spec = crop_spec(key=3)
    seen = set()
    for _ in range(300):
        jpeg = bytearray(chance.choice(photos[:4]))
        for _ in range(chance.randrange(1, 30)):
            jpeg[chance.randrange(len(jpeg) if chance.random() < 0.5 else 700)] = chance.randrange(256)
        if chance.random() < 0.3:
            del jpeg[chance.randrange(len(jpeg)) :]
        found = decode(library, [bytes(jpeg)], spec)
        seen.update(status for _, status, _ in found.faults)
        assert found.faults or not numpy.isnan(found.images).any()
        assert all(message for _, _, message in found.faults)
    assert native.BROKEN in seen


def test_image_above_the_pixel_limit_is_refused_before_decoding(library: Any, photos: list[bytes]) -> None:
    found = decode(library, photos[:1], plain_spec(32, 32, max_pixels=1000))
    assert found.faults[0][1] == native.TOO_LARGE
    assert "the limit is 1000" in found.faults[0][2]


def test_truncated_jpeg_counts_as_mended(library: Any, photos: list[bytes]) -> None:
    found = decode(library, [photos[0][: len(photos[0]) // 2]], plain_spec(224, 256))
    assert found.faults == []
    assert found.warnings[0] > 0


def test_checker_tells_sound_from_damaged(library: Any, photos: list[bytes]) -> None:
    checker = native.Checker(library)
    assert checker.check(photos[0]) == (native.OK, 0, "")
    status, num_warnings, message = checker.check(photos[0][:-500])
    assert (status, message) == (native.OK, "Premature end of JPEG file")
    assert num_warnings > 0
    assert checker.check(b"\x89PNG")[0] == native.OTHER_FORMAT
    assert checker.check(photos[0][:100])[0] == native.BROKEN
    checker.close()


def test_load_of_a_missing_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(native.NativeError, match=r"not built \(python -m"):
        native.load(str(tmp_path / "libmlbench_native.so"))


def test_load_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libmlbench_native.so"
    path.write_bytes(b"no library")
    with pytest.raises(native.NativeError, match="cannot be loaded"):
        native.load(str(path))


def test_build_without_compiler_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "compiler", lambda: None)
    with pytest.raises(build.BuildError, match="no C compiler"):
        build.build(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_build_without_libjpeg_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'decode.c:7: fatal error: jpeglib.h: No such file or directory' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: [str(script)])
    with pytest.raises(build.BuildError, match="libjpeg62-turbo-dev"):
        build.build(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["cc"]


@pytest.fixture
def mxnet() -> Any:
    return pytest.importorskip("mxnet", reason="needs MXNet", exc_type=ImportError)


def _job(tmp_path: Path, images: Sequence[bytes], **settings: Any) -> Any:
    from tests.support.pipeline_jobs import pipeline_job, write_images

    pair = write_images(tmp_path, "train", images)
    return pipeline_job(train=[pair], val=[pair], num_train=len(images), num_val=len(images), **settings)


def _labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in batch.labels.asnumpy()[: batch.num_valid]]


@pytest.mark.slow
def test_training_epochs_show_each_image_once_over_all_ranks(
    mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]
) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    small = [as_jpeg(Image.open(io.BytesIO(jpeg)).resize((40, 36))) for jpeg in photos] * 3
    job = _job(tmp_path, small, batch=8, num_ranks=3)
    epochs: list[list[int]] = [[], []]
    for rank in range(3):
        training = pipeline.NativeTraining(job, Rank(rank, 3, rank))
        for epoch in (1, 2):
            epochs[epoch - 1] += _labels(training.epoch(epoch))
        training.close()
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(48))
    assert epochs[0] != epochs[1]


def test_validation_shows_each_image_once_and_pads_with_zeros(mxnet: Any, library: Any, tmp_path: Path) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    images = [as_jpeg(Image.new("RGB", (32, 32), (200, 10 * number, 50))) for number in range(21)]
    job = _job(tmp_path, images, batch=8, num_ranks=2)
    seen = []
    for rank in range(2):
        validation = pipeline.NativeValidation(job, Rank(rank, 2, rank))
        for _ in range(2):  # one pass for each evaluation
            batches = list(validation.batches())
            seen += _labels(batches)
        last = batches[-1]
        assert last.images.shape == (8, 3, 32, 32)
        assert float(abs(last.images[last.num_valid :]).sum().asscalar()) == 0
        validation.close()
    assert sorted(seen) == sorted([*range(21), *range(21)])


def test_png_and_cmyk_named_jpeg_are_read(mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    picture = Image.open(io.BytesIO(photos[0])).resize((64, 48))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    images = [stream.getvalue(), as_jpeg(picture.convert("CMYK")), as_jpeg(picture, subsampling=0)]
    validation = pipeline.NativeValidation(_job(tmp_path, images, batch=3), Rank(0, 1, 0))
    (batch,) = validation.batches()
    validation.close()
    pixels = batch.images.asnumpy().transpose(0, 2, 3, 1)
    for place, encoded in enumerate(images):
        assert abs(pixels[place] - pillow_validation(encoded, 32, 32)).mean() < 1.5


def test_broken_jpeg_names_file_record_and_offset(
    mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]
) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.pipelines.records import DataFault
    from mlbench.worker.ranks import Rank

    validation = pipeline.NativeValidation(_job(tmp_path, [photos[0], photos[1][:120]], batch=2), Rank(0, 1, 0))
    with pytest.raises(DataFault, match=r"train\.rec, record 1, offset \d+: "):
        list(validation.batches())
    validation.close()


def test_record_with_escaped_magic_is_joined(mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    comment = b"\xff\xfe\x00\x12" + MAGIC_BYTES * 4  # a JPEG comment of four magics at offset 6 of the image
    jpeg = photos[0][:2] + b"\xff\xfe\x00\x04ab" + comment + photos[0][2:]
    images = [jpeg, b"\xff\xd8" + b"\xff\xfe\x00\x12" + b"cd" + MAGIC_BYTES * 3 + b"ef" + photos[0][2:]]
    validation = pipeline.NativeValidation(_job(tmp_path, images, batch=2), Rank(0, 1, 0))
    (batch,) = validation.batches()
    validation.close()
    pixels = batch.images.asnumpy().transpose(0, 2, 3, 1)
    for place in range(2):
        assert abs(pixels[place] - pillow_validation(photos[0], 32, 32)).mean() < 1.5


def test_close_in_the_middle_of_an_epoch_ends_all_threads(
    mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]
) -> None:
    import threading

    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    before = threading.active_count()
    training = pipeline.NativeTraining(_job(tmp_path, photos, batch=4), Rank(0, 1, 0))
    next(iter(training.epoch(1)))
    training.close()
    assert threading.active_count() == before


def test_other_number_of_records_is_refused(mxnet: Any, library: Any, tmp_path: Path, photos: list[bytes]) -> None:
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.pipelines.records import DataFault
    from mlbench.worker.ranks import Rank
    from tests.support.pipeline_jobs import pipeline_job, write_images

    pair = write_images(tmp_path, "train", photos)
    job = pipeline_job(train=[pair], val=[pair], num_train=17, num_val=16)
    with pytest.raises(DataFault, match="16 records, expected 17"):
        pipeline.NativeTraining(job, Rank(0, 1, 0))


def test_without_library_the_pipeline_falls_back_and_says_so(
    mxnet: Any, tmp_path: Path, photos: list[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlbench.worker.pipelines import fallback
    from mlbench.worker.pipelines import native as pipeline
    from mlbench.worker.ranks import Rank

    def absent() -> Any:
        raise native.NativeError("not built here")

    monkeypatch.setattr(native, "load", absent)
    monkeypatch.setattr(fallback, "has_simplejpeg", lambda: False)
    assert fallback.used("native") == ("mxnet", "not built here; simplejpeg is not installed")
    assert fallback.used("dali") == ("dali", "")
    validation = pipeline.open_validation(_job(tmp_path, photos[:4], batch=4), Rank(0, 1, 0))
    assert _labels(validation.batches()) == [0, 1, 2, 3]
    validation.close()
    assert "input pipeline: mxnet (not built here" in capsys.readouterr().err
