"""Data sets: import against copying the files, verification against reading the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.performance.command import PEERS, python, run_command, sample_of
from tests.performance.context import Context
from tests.performance.data import make_jpegs
from tests.performance.harness import Experiment, Goal, Metrics, Quantity, Ratio

SMALL_BYTES = 2_000
NUM_CLASSES = 20


def experiments(context: Context) -> Iterator[Experiment]:
    """Many small images (what each one costs) and images of ImageNet's size (what their bytes cost)."""
    tree, out = context.folder / "small-tree", context.folder / "small-out"
    num_images = context.sized(2000, 20_000)
    rec = context.folder / "jpegs" / "train.rec"

    @contextmanager
    def made() -> Iterator[None]:
        _small_tree(tree, num_images)
        make_jpegs(context)
        yield

    yield Experiment(
        name="data",
        about=f"{num_images:,} images of about {SMALL_BYTES / 1e3:g} KB in a folder tree; a .rec file of 106 KB images",
        contestants={
            "import": _way("import", tree, out),
            "copy": _way("copy", tree, context.folder / "small-copy"),
            "verify": _way("verify", rec),
            "frames": _way("frames", rec),
            "read": _way("read", rec),
        },
        ratios=[
            Ratio(
                name="data import / copy into one file",
                unit="images/s",
                quantity=Quantity.rate,
                ours=("import", "work"),
                peer=("copy", "work"),
                goal=Goal(bound=5000, at_least=True, of_ratio=False),
            ),
            _bytes("data verify / reading the file", "verify"),
            _bytes("data verify --no-decode / reading", "frames"),
        ],
        setting=made,
    )


def _bytes(name: str, ours: str) -> Ratio:
    return Ratio(name=name, unit="GB/s", quantity=Quantity.rate, ours=(ours, "work"), peer=("read", "work"))


def _way(way: str, *paths: Path) -> Callable[[], Metrics]:
    scale = 1.0 if way in ("import", "copy") else 1e9

    def measure() -> Metrics:
        from dataclasses import replace

        sample = sample_of(run_command(python(str(PEERS / "images.py"), way, *map(str, paths))).output)
        return {"work": replace(sample, amount=sample.amount / scale)}

    return measure


def _small_tree(tree: Path, num_images: int) -> None:
    """train/ and val/ of class folders, as ILSVRC2012; the pictures repeat, their files do not."""
    from mlbench.dataset.synthetic import ImageMaker, fit_recipe

    maker = ImageMaker(fit_recipe(px=64, mean_bytes=SMALL_BYTES, seed=1))
    pictures = [maker.jpeg(number) for number in range(50)]
    for split, count in (("train", num_images), ("val", NUM_CLASSES)):
        for number in range(NUM_CLASSES):
            (tree / split / f"n{number:08d}").mkdir(parents=True, exist_ok=True)
        for number in range(count):
            label = number % NUM_CLASSES
            path = tree / split / f"n{label:08d}" / f"n{label:08d}_{number}.JPEG"
            path.write_bytes(pictures[number % len(pictures)])
