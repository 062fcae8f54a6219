"""Is one encoded image sound? JPEGs are read by the native decoder where it is built, all else by Pillow."""

from __future__ import annotations

import io
from enum import Enum
from typing import Any

from mlbench.worker.native import library as native


class Decoder(Enum):
    """What reads the JPEGs of a data set that is verified."""

    native = "native"
    """In C and in threads; names also damage that decoders mend in silence."""
    pillow = "pillow"
    """In processes; several times slower, and finds what cannot be decoded at all."""


def native_library() -> tuple[Any, str]:
    """The native decoder, or None and why it is not there."""
    try:
        return native.load(), ""
    except native.NativeError as error:
        return None, str(error)


class Judge:
    """Decodes images to see whether they can be; without the native `library` (None) all of them by Pillow."""

    def __init__(self, library: Any) -> None:
        self._checker = None if library is None else native.Checker(library)

    def fault(self, image: memoryview) -> str | None:
        """Why an encoded image is not sound; None when it is."""
        if self._checker is not None:
            status, num_warnings, message = self._checker.check(bytes(image))
            if status == native.OK:
                return f"JPEG is damaged: {message}" if num_warnings else None
            if status != native.OTHER_FORMAT:
                return f"image cannot be decoded: {message}"
        return pillow_fault(image)

    def close(self) -> None:
        if self._checker is not None:
            self._checker.close()


def pillow_fault(image: memoryview) -> str | None:
    """Why Pillow cannot decode an image; None when it can. JPEGs are decoded at an eighth of their size: every coded
    bit is read, only the arithmetic behind it is saved."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image)) as picture:
            width, height = picture.size
            if width * height > native.MAX_PIXELS:
                return f"image of {width} x {height} pixels, more than {native.MAX_PIXELS}"
            picture.draft(None, (max(1, width // 8), max(1, height // 8)))
            picture.load()
    except UnidentifiedImageError:  # its own text names an address in memory
        return "image cannot be decoded: cannot identify image file"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"image cannot be decoded: {error}"
    return None
