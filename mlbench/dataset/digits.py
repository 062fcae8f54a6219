"""The small real data set: scikit-learn's 1,797 handwritten digits, as JPEG in RecordIO.

Source of the images: sklearn.datasets.load_digits (8 x 8 pixels, 16 grey levels, UCI "Optical Recognition of
Handwritten Digits", test part)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlbench.dataset.layout import RecordFiles, Split, split_files, writing
from mlbench.errors import PreflightError
from mlbench.worker.recordio import pack_image

NUM_IMAGES = 1797
NUM_TRAIN = 640
NUM_CLASSES = 10
SOURCE_PX = 8
_GREY_LEVELS = 16


@dataclass(frozen=True, slots=True)
class DigitsSet:
    """What was written."""

    train: RecordFiles
    val: RecordFiles
    num_train: int
    num_val: int
    px: int
    train_bytes: int
    val_bytes: int


def make_digits(folder: Path, *, px: int = 32, quality: int = 95) -> DigitsSet:
    """Write train.rec/.idx (640 images, 64 of each digit) and val.rec/.idx (the other 1,157) into `folder`.

    Args: px: side of the written images, pixels. quality: of the JPEG encoder, 1 to 95.
    The same arguments give the same bytes, and the split never changes: images are ordered by a hash of their number.
    Files appear whole or not at all, so two processes may make the set at the same time.
    Raises: PreflightError: scikit-learn or Pillow is not installed. InputError: the folder cannot be written."""
    images, labels = _load()
    train, val = split_indices(labels)
    sizes = {}
    for split, members in ((Split.train, train), (Split.val, val)):
        (files,) = split_files(folder, split)
        with writing(files) as writer:
            for key, number in enumerate(members):
                jpeg = _encode(images[number], px, quality)
                writer.write(key, pack_image(float(labels[number]), number, jpeg))
        sizes[split] = files.rec.stat().st_size
    return DigitsSet(
        train=split_files(folder, Split.train)[0],
        val=split_files(folder, Split.val)[0],
        num_train=len(train),
        num_val=len(val),
        px=px,
        train_bytes=sizes[Split.train],
        val_bytes=sizes[Split.val],
    )


def split_indices(labels: Sequence[int], num_train: int = NUM_TRAIN) -> tuple[list[int], list[int]]:
    """Numbers of the training and of the validation images, each in a fixed, mixed order.

    Training takes the classes in turn, so that each has the same count (or one more) as long as it lasts."""
    order = sorted(range(len(labels)), key=_hash_of)
    by_class = {label: [number for number in order if labels[number] == label] for label in sorted(set(labels))}
    train: list[int] = []
    rank = 0
    while len(train) < num_train:
        train += [members[rank] for members in by_class.values() if rank < len(members)][: num_train - len(train)]
        rank += 1
    chosen = set(train)
    return sorted(train, key=_hash_of), [number for number in order if number not in chosen]


def _hash_of(number: int) -> str:
    return hashlib.sha256(f"digits {number}".encode()).hexdigest()


def _load() -> tuple[list[bytes], list[int]]:
    """Each image as 64 grey bytes, and its digit."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise PreflightError(
            f"the digits data set needs scikit-learn, which cannot be imported ({error}); install 'mlbench[train]'"
        ) from error
    digits = load_digits()
    grey = (digits.images * (255 / _GREY_LEVELS) + 0.5).astype("uint8")
    return [image.tobytes() for image in grey], [int(label) for label in digits.target]


def _encode(grey: bytes, px: int, quality: int) -> bytes:
    from PIL import Image

    small = Image.frombytes("L", (SOURCE_PX, SOURCE_PX), grey)
    large = small.resize((px, px), Image.Resampling.BICUBIC).convert("RGB")
    stream = io.BytesIO()
    large.save(stream, "JPEG", quality=quality, subsampling=0)
    return stream.getvalue()
