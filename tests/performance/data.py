"""The data sets of the experiments, made once for each run of the suite."""

from __future__ import annotations

import os
from pathlib import Path

from tests.performance.context import Context

MEAN_BYTES = 106_000
"""Near ILSVRC2012's mean image of 113 KB (144.8 GB in 1,281,167 files)."""
JPEG_PX = 500


def num_jpegs(context: Context) -> int:
    return context.sized(100, 400)


def jpegs(context: Context) -> Path:
    """Folder of train.rec with JPEGs of ImageNet's size; `make_jpegs` fills it."""
    return context.folder / "jpegs"


def make_jpegs(context: Context) -> Path:
    """The same, made if it is not there."""
    from mlbench.dataset.making import CopyMode, make_synthetic

    out = jpegs(context)
    if not (out / "train.rec").is_file():
        make_synthetic(
            out,
            num_images=num_jpegs(context),
            num_val=0,
            px=JPEG_PX,
            mean_bytes=MEAN_BYTES,
            copies=1,
            copy_mode=CopyMode.stream,
            num_workers=len(os.sched_getaffinity(0)),
        )
    return out


def digits(context: Context, px: int) -> Path:
    """Folder of the digits at this size; `make_digits_set` fills it."""
    return context.folder / f"digits-{px}"


def make_digits_set(context: Context, px: int) -> Path:
    """The same, made if it is not there."""
    from mlbench.dataset.digits import make_digits

    out = digits(context, px)
    if not (out / "train.rec").is_file():
        make_digits(out, px=px)
    return out
