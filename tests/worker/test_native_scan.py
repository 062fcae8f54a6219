"""Sound JPEGs are told without libjpeg; on any bytes nothing is sound that libjpeg complains of, and what it does not
complain of is sound unless a code is none."""

from __future__ import annotations

import io
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker.native import library as native
from mlbench.worker.recordio import RecordWriter, pack_image, read_index

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

NUM_MUTATIONS = 6000
MEMORY_SLACK_KB = 30_000
"""Less than one decoded row of blocks of the images that declare gigantic sizes, and far less than their pixels."""

PLAIN: dict[str, dict[str, Any]] = {
    "4:2:0": {},
    "4:2:2": {"subsampling": 1},
    "4:4:4 of best quality": {"subsampling": 0, "quality": 100},
    "coarse": {"quality": 20},
    "own Huffman tables": {"optimize": True},
    "a restart marker behind each unit": {"restart_marker_blocks": 1},
    "a restart marker behind each row": {"restart_marker_rows": 1, "quality": 95},
    "a comment": {"comment": b"\xff\xd9 is no marker here"},
}


def picture(mode: str = "RGB", width: int = 90, height: int = 67) -> Any:
    numbers = random.Random(5)
    smooth = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    noise = Image.frombytes("RGB", (width, height), numbers.randbytes(width * height * 3))
    return Image.blend(smooth, noise, 0.3).convert(mode)


def jpeg(mode: str = "RGB", width: int = 90, height: int = 67, **settings: Any) -> bytes:
    stream = io.BytesIO()
    picture(mode, width, height).save(stream, "JPEG", **settings)
    return stream.getvalue()


class Judges:
    """Both ways to a verdict: the walk over records, which scans first, and libjpeg alone."""

    def __init__(self, library: Any, folder: Path) -> None:
        self._library = library
        self._folder = folder
        self._checker = native.Checker(library)
        self.num_damaged = 0
        """Of the last verdicts: images with codes that are none."""

    def scanned(self, image: bytes) -> bool:
        """Whether the image was told sound without libjpeg."""
        walk, _ = self.walk([image])
        return int(walk.num_scanned) == 1

    def walk(self, images: list[bytes], decode: bool = True) -> tuple[native.Walk, list[int]]:
        """A walk over records of these images from the first on, and the offsets of those that are sound."""
        path = self._folder / "walk.rec"
        with RecordWriter(str(path), str(path) + ".idx") as writer:
            for number, image in enumerate(images):
                writer.write(number, pack_image(1.0, number, image))
        with path.open("rb") as stream:
            walker = native.Walker(self._library, stream.fileno(), decode)
            walk, offsets, _ = walker.walk(0, path.stat().st_size)
            walker.close()
        return walk, list(offsets)

    def is_sound(self, image: bytes) -> bool:
        """The walk's verdict, which must be that of libjpeg alone."""
        (found,) = self.verdicts([image])
        return found

    def verdicts(self, images: list[bytes]) -> list[bool]:
        """Of each image the walk's verdict, which must be that of libjpeg alone, except that codes which are none are
        always damage."""
        first, sound = self.walk(images)
        path = self._folder / "walk.rec"
        size, starts = path.stat().st_size, read_index(str(path) + ".idx").offsets
        with path.open("rb") as stream:
            walker = native.Walker(self._library, stream.fileno(), True)
            at, walk = first.behind, first
            damaged = set()
            while at < size:
                if walk.is_damaged:
                    damaged.add(at)
                if walk.is_odd:
                    at = starts[starts.index(at) + 1] if at < starts[-1] else size
                walk, offsets, _ = walker.walk(at, size)
                sound += offsets
                at = walk.behind
            walker.close()
        found = set(sound)
        for start, image in zip(starts, images, strict=True):
            status, num_warnings, _ = self._checker.check(image)
            libjpeg_sound = status == native.OK and num_warnings == 0
            assert (start in found) == (libjpeg_sound and start not in damaged), image
        self.num_damaged = len(damaged)
        return [start in found for start in starts]

    def close(self) -> None:
        self._checker.close()


@pytest.fixture
def judges(library: Any, tmp_path: Path) -> Iterator[Judges]:
    both = Judges(library, tmp_path)
    yield both
    both.close()


def scan_at(image: bytes) -> int:
    """Where the codes of the (first) scan begin."""
    at = image.index(b"\xff\xda")
    return at + 2 + int.from_bytes(image[at + 2 : at + 4], "big")


def replaced(image: bytes, at: int, new: bytes) -> bytes:
    return image[:at] + new + image[at + len(new) :]


def with_size(image: bytes, width: int, height: int) -> bytes:
    return replaced(image, image.index(b"\xff\xc0") + 5, height.to_bytes(2, "big") + width.to_bytes(2, "big"))


@pytest.mark.parametrize("settings", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_scan_plain_jpeg_is_sound_without_libjpeg(judges: Judges, mode: str, settings: dict[str, Any]) -> None:
    image = jpeg(mode, **settings)
    assert judges.is_sound(image)
    assert judges.scanned(image)


@pytest.mark.parametrize("side", [1, 7, 8, 9, 16, 17, 640])
def test_scan_any_size_is_sound_without_libjpeg(judges: Judges, side: int) -> None:
    assert judges.scanned(jpeg(width=side, height=side + 1, quality=90))


def test_scan_record_larger_than_a_read_is_sound(judges: Judges) -> None:
    image = jpeg(width=1600, height=1400, quality=98, subsampling=0)
    assert len(image) > 2 << 20
    walk, offsets = judges.walk([jpeg(), image, jpeg()])
    assert (walk.num_scanned, len(offsets), walk.is_odd) == (3, 3, 0)
    assert walk.image_bytes == len(image) + 2 * len(jpeg())


def test_scan_trailing_bytes_and_filled_markers_are_sound(judges: Judges) -> None:
    image = jpeg()
    for odd in (image + b"behind the end", image[:2] + b"\xff\xff\xff" + image[2:]):
        assert judges.is_sound(odd)
        assert judges.scanned(odd)


def test_scan_progressive_jpeg_is_left_to_libjpeg(judges: Judges) -> None:
    image = jpeg(progressive=True)
    assert judges.is_sound(image)
    assert not judges.scanned(image)
    assert not judges.is_sound(image[: len(image) // 2])


def test_scan_other_format_is_odd(judges: Judges) -> None:
    stream = io.BytesIO()
    picture().save(stream, "PNG")
    walk, offsets = judges.walk([jpeg(), stream.getvalue(), jpeg()])
    assert (walk.num_records, walk.is_odd, len(offsets)) == (1, 1, 1)


def _tables_swapped(image: bytes) -> bytes:
    """The scan's components take each other's Huffman tables."""
    at = image.index(b"\xff\xda") + 5
    return image[: at + 1] + b"\x11" + image[at + 2 : at + 3] + b"\x00" + image[at + 4 :]


def _too_many_codes(image: bytes) -> bytes:
    return replaced(image, image.index(b"\xff\xc4") + 5, b"\x09")


def _restart_out_of_order(image: bytes) -> bytes:
    at = image.index(b"\xff\xd1", scan_at(image))
    return replaced(image, at, b"\xff\xd5")


def _thirds(image: bytes) -> bytes:
    """Three samples of the first component for two of the second."""
    at = image.index(b"\xff\xc0") + 11
    return replaced(replaced(image, at, b"\x31"), at + 3, b"\x21")


def _without_part_of_scan(image: bytes) -> bytes:
    at = scan_at(image) + 200
    return image[:at] + image[at + 400 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], dict[str, Any]]] = {
    "cut within the scan": (lambda image: image[: (scan_at(image) + len(image)) // 2], {}),
    "cut within the tables": (lambda image: image[: scan_at(image) - 60], {}),
    "no end marker": (lambda image: image[:-2], {}),
    "half an end marker": (lambda image: image[:-1], {}),
    "an end marker amid the scan": (lambda image: replaced(image, scan_at(image) + 300, b"\xff\xd9"), {}),
    "zeros amid the scan": (lambda image: replaced(image, scan_at(image) + 100, bytes(len(image) // 3)), {}),
    "part of the scan lost": (_without_part_of_scan, {}),
    "more codes than there can be": (_too_many_codes, {}),
    "no quantisers": (lambda image: image.replace(b"\xff\xdb", b"\xff\xe3"), {}),
    "restart markers out of order": (_restart_out_of_order, {"restart_marker_blocks": 1}),
    "a frame twice as high": (lambda image: with_size(image, 90, 134), {}),
    "JFIF of an unknown version": (lambda image: replaced(image, 11, b"\x07"), {}),
    "sixteen bits a sample": (lambda image: replaced(image, image.index(b"\xff\xc0") + 4, b"\x10"), {}),
    "components that do not scale": (_thirds, {}),
}


@pytest.mark.parametrize(("damage", "settings"), DAMAGES.values(), ids=DAMAGES)
def test_scan_damaged_jpeg_gets_the_verdict_of_libjpeg(
    judges: Judges, damage: Callable[[bytes], bytes], settings: dict[str, Any]
) -> None:
    image = jpeg(**settings)
    damaged = damage(image)
    assert damaged != image
    assert not judges.scanned(damaged)
    assert not judges.is_sound(damaged)


def test_scan_without_huffman_tables_gets_the_verdict_of_libjpeg(judges: Judges) -> None:
    # libjpeg takes the standard's example tables then, and these are not those: it may or may not notice.
    lacking = jpeg(optimize=True).replace(b"\xff\xc4", b"\xff\xe3")
    judges.is_sound(lacking)
    assert not judges.scanned(lacking)


@pytest.mark.parametrize("quality", [30, 75, 98])
@pytest.mark.parametrize("subsampling", [0, 2])
def test_scan_with_another_components_huffman_tables_gets_the_verdict_of_libjpeg(
    judges: Judges, quality: int, subsampling: int
) -> None:
    # Whether libjpeg notices depends on where the codes end; bytes that are left over are none of its concern.
    damaged = _tables_swapped(jpeg(quality=quality, subsampling=subsampling))
    judges.is_sound(damaged)
    assert not judges.scanned(damaged)


def test_scan_finds_changed_codes_that_libjpeg_passes_over_in_silence(judges: Judges) -> None:
    numbers = random.Random(3)
    image = jpeg(width=400, height=300, quality=90)
    begin = scan_at(image)
    changed: list[bytes] = []
    while len(changed) < 200:
        at = numbers.randrange(begin + 10, len(image) - 2000)  # near its end libjpeg looks closer
        if 0xFF not in image[at - 1 : at + 1]:
            changed.append(replaced(image, at, bytes([image[at] ^ 0x5A])))
    found = judges.verdicts(changed)
    assert judges.num_damaged > 40  # of 200; where the codes fall into step again within the block nobody can tell
    assert found.count(False) >= judges.num_damaged


def test_scan_codes_of_too_few_units_are_damage(judges: Judges) -> None:
    assert judges.verdicts([with_size(jpeg(), 90, 600)]) == [False]
    assert judges.num_damaged == 1


def test_scan_verdict_does_not_depend_on_earlier_images(judges: Judges) -> None:
    lacking = jpeg(optimize=True).replace(b"\xff\xdb", b"\xff\xe3")
    assert not judges.is_sound(lacking)
    assert judges.is_sound(jpeg(progressive=True, optimize=True))
    assert not judges.is_sound(lacking)
    walk, _ = judges.walk([jpeg(progressive=True), lacking])
    assert (walk.num_records, walk.is_odd) == (1, 1)


def test_scan_unknown_colour_transform_gets_the_verdict_of_libjpeg(judges: Judges) -> None:
    image = jpeg("CMYK")
    odd = replaced(image, image.index(b"Adobe") + 11, b"\x01")
    assert not judges.is_sound(odd)


@pytest.mark.parametrize(("width", "height"), [(65_500, 65_500), (65_500, 1500)])
def test_scan_gigantic_declared_size_takes_no_memory(judges: Judges, width: int, height: int) -> None:
    image = with_size(jpeg(), width, height)
    assert judges.is_sound(jpeg())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not judges.is_sound(image)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_SLACK_KB


def mutated(image: bytes, numbers: random.Random) -> bytes:
    """The image after one or some of the things that happen to bytes."""
    data = bytearray(image)
    head = scan_at(image)
    for _ in range(numbers.randint(1, 3)):
        at = numbers.randrange(numbers.choice((head, len(data))))
        match numbers.randrange(7):
            case 0:
                data[at] ^= 1 << numbers.randrange(8)
            case 1:
                data[at] = numbers.choice((0, 1, 0xFF, numbers.randrange(256)))
            case 2:
                del data[at : at + numbers.randint(1, 12)]
            case 3:
                data[at:at] = numbers.randbytes(numbers.randint(1, 12))
            case 4:
                data[at : at + 2] = bytes((0xFF, numbers.randint(0xC0, 0xFE)))
            case 5:
                del data[max(at, 4) :]
            case _:
                data[at:at] = data[at // 2 : at // 2 + numbers.randint(1, 80)]
        if len(data) < 8:
            break
        head = min(head, len(data))
    return bytes(data)


def test_scan_of_mangled_bytes_gets_the_verdict_of_libjpeg(judges: Judges) -> None:
    numbers = random.Random(20121)
    kinds = [
        jpeg(mode, width, height, **settings)
        for mode in ("RGB", "L", "CMYK")
        for width, height in ((8, 8), (33, 18))
        for settings in (*PLAIN.values(), {"progressive": True})
    ]
    verdicts = judges.verdicts([mutated(numbers.choice(kinds), numbers) for _ in range(NUM_MUTATIONS)])
    assert NUM_MUTATIONS / 20 < sum(verdicts) < NUM_MUTATIONS * 19 / 20  # both verdicts were put to the test


def test_walk_passes_batches_until_the_end(library: Any, judges: Judges, tmp_path: Path) -> None:
    images = [jpeg(width=8, height=8)] * (native.Walker.BATCH + 10)
    walk, offsets = judges.walk(images)
    assert (walk.num_records, walk.is_odd) == (native.Walker.BATCH, 0)
    path = tmp_path / "walk.rec"
    with path.open("rb") as stream:
        walker = native.Walker(library, stream.fileno(), True)
        first, _, _ = walker.walk(0, path.stat().st_size)
        rest, more, labels = walker.walk(first.behind, path.stat().st_size)
        nothing, _, _ = walker.walk(rest.behind, path.stat().st_size)
        walker.close()
    assert (rest.num_records, rest.behind, rest.is_odd) == (10, path.stat().st_size, 0)
    assert more[0] == first.behind
    assert set(labels) == {1.0}
    assert (nothing.num_records, nothing.is_odd) == (0, 0)
    assert len(offsets) == native.Walker.BATCH


def test_scan_optimised_tables_of_many_images_are_told_apart(judges: Judges) -> None:
    # more definitions than are kept, in turns, small and large, so that tables are built anew and wider
    sizes = [(8 + 9 * n, 8 + 5 * n) for n in range(30)] * 2
    images = [jpeg(width=w, height=h, optimize=True, quality=30 + 2 * (w % 30)) for w, h in sizes]
    walk, _ = judges.walk(images)
    assert (walk.num_scanned, walk.is_odd) == (60, 0)
    assert all(judges.verdicts(images))


def test_walk_damaged_and_sound_in_turns_are_told_apart(judges: Judges) -> None:
    sound = [jpeg(quality=quality) for quality in range(20, 96)]
    images = [image for each in sound for image in (each, each[:-40], b"no image")]
    assert judges.verdicts(images) == [True, False, False] * len(sound)


def test_walk_without_decoding_passes_what_is_no_image(judges: Judges) -> None:
    walk, _ = judges.walk([b"no image", jpeg()], decode=False)
    assert (walk.num_records, walk.num_scanned, walk.is_odd) == (2, 0, 0)


def test_walk_many_damaged_images_keeps_no_memory(judges: Judges) -> None:
    images = [jpeg(width=200, height=200)[:-700], jpeg(progressive=True)[:-300]]
    assert not any(judges.verdicts(images * 300))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        assert not any(judges.verdicts(images * 300))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_SLACK_KB / 3
