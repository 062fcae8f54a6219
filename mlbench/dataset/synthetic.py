"""JPEG images for load tests: as many, as large and of as many bytes as asked, each of them different.

The pictures are noise with the spectrum of photographs (each octave has the same share of the contrast), cut from one
large texture at random places; the share of the finest octave is set so that the mean size comes out as asked."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlbench.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

NUM_CLASSES = 1000
_QUALITY = 90
_SUBSAMPLING_420 = 2
_ASPECTS = ((4, 3), (4, 3), (3, 4), (1, 1))
"""As photographs are: mostly wide, some high, a few square."""
_SIZE_SPREAD = 0.2
_TEXTURE_PX = 2048
MAX_PX = 4096
"""The texture that images are cut from has twice this side and takes some hundred megabytes of each process."""
_SAMPLE_IMAGES = 128
_BISECTIONS = 12
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the images of one set are made. `fine_share`: of the finest octave in the contrast, 0 to 1."""

    seed: int
    px: int
    fine_share: float


def fit_recipe(*, px: int, mean_bytes: int, seed: int) -> Recipe:
    """The recipe whose images have `mean_bytes` on average (within 2 %). `px`: mean longer side, pixels.

    Raises: InputError: images of that side cannot be so small or so large."""
    if px > MAX_PX:
        raise InputError(f"images of {px} px: expected at most {MAX_PX}")
    low, high = 0.0, 1.0
    smallest, largest = (_mean_bytes(Recipe(seed, px, share)) for share in (low, high))
    if not smallest <= mean_bytes <= largest:
        raise InputError(
            f"mean bytes {mean_bytes}: images of {px} px have {smallest:.0f} to {largest:.0f}; change it or the side"
        )
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = _mean_bytes(Recipe(seed, px, middle))
        if abs(found - mean_bytes) <= mean_bytes * _TOLERANCE / 4:
            return Recipe(seed, px, middle)
        low, high = (middle, high) if found < mean_bytes else (low, middle)
    return Recipe(seed, px, (low + high) / 2)


def _mean_bytes(recipe: Recipe) -> float:
    maker = ImageMaker(recipe)
    return sum(len(maker.jpeg(number)) for number in range(_SAMPLE_IMAGES)) / _SAMPLE_IMAGES


class ImageMaker:
    """Makes the images of a recipe; image `number` is the same whoever makes it."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._texture = _texture(recipe)

    def jpeg(self, number: int) -> bytes:
        """The encoded image."""
        chance = random.Random(f"{self._recipe.seed} {number}")
        wide, high = chance.choice(_ASPECTS)
        side = self._recipe.px * chance.uniform(1 - _SIZE_SPREAD, 1 + _SIZE_SPREAD)
        width = max(8, round(side * wide / max(wide, high)))
        height = max(8, round(side * high / max(wide, high)))
        left = chance.randrange(max(1, self._texture.width - width))
        top = chance.randrange(max(1, self._texture.height - height))
        stream = io.BytesIO()
        window = self._texture.crop((left, top, left + width, top + height))
        window.save(stream, "JPEG", quality=_QUALITY, subsampling=_SUBSAMPLING_420)
        return stream.getvalue()

    def label(self, number: int) -> int:
        """The class of an image."""
        return random.Random(f"{self._recipe.seed} label {number}").randrange(NUM_CLASSES)


def _texture(recipe: Recipe) -> PillowImage:
    from PIL import Image

    chance = random.Random(recipe.seed)
    side = max(_TEXTURE_PX, 2 * recipe.px)
    texture = Image.new("RGB", (side, side))
    octave, count = 4, 1
    while octave < side:
        noise = Image.frombytes("RGB", (octave, octave), chance.randbytes(3 * octave * octave))
        texture = Image.blend(texture, noise.resize((side, side), Image.Resampling.BICUBIC), 1 / count)
        octave, count = octave * 2, count + 1
    grey = Image.frombytes("L", (side, side), chance.randbytes(side * side)).convert("RGB")
    return Image.blend(texture, grey, recipe.fine_share * 0.8)
