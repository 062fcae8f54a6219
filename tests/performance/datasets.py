"""Data sets: import against copying the files; verification against reading the file, and against libjpeg's entropy
decoding alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mlbench.worker.native.build import compiler
from tests.performance.command import PEERS, python, run_command, sample_of
from tests.performance.context import Context
from tests.performance.data import make_jpegs
from tests.performance.harness import Experiment, Goal, Metrics, PeerError, Quantity, Ratio, Sample

SMALL_BYTES = 2_000
NUM_CLASSES = 20


def experiments(context: Context) -> Iterator[Experiment]:
    """Many small images (what each one costs) and images of ImageNet's size (what their bytes cost)."""
    tree, out = context.folder / "small-tree", context.folder / "small-out"
    num_images = context.sized(2000, 20_000)
    rec, small_rec = context.folder / "jpegs" / "train.rec", out / "train.rec"
    coefficients = context.folder / "coefficients"

    @contextmanager
    def made() -> Iterator[None]:
        _small_tree(tree, num_images)
        make_jpegs(context)
        _build_coefficients(coefficients)
        yield

    yield Experiment(
        name="data",
        about=f"{num_images:,} images of about {SMALL_BYTES / 1e3:g} KB in a folder tree; a .rec file of 106 KB images",
        contestants={
            "import": _way("import", tree, out),
            "copy": _way("copy", tree, context.folder / "small-copy"),
            "verify": _way("verify", rec),
            "codes": lambda: _codes(coefficients, rec),
            "frames": _way("frames", rec),
            "read": _way("read", rec),
            "verify small": _way("verify", small_rec),
            "codes small": lambda: _codes(coefficients, small_rec),
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
            _bytes("data verify / libjpeg's entropy decoding, one core", "verify", "codes"),
            _bytes("the same, small images", "verify small", "codes small"),
            _bytes("data verify / reading the file", "verify", "read"),
            _bytes("data verify --no-decode / reading", "frames", "read"),
        ],
        setting=made,
    )


def _bytes(name: str, ours: str, peer: str) -> Ratio:
    return Ratio(name=name, unit="GB/s", quantity=Quantity.rate, ours=(ours, "work"), peer=(peer, "work"))


def _build_coefficients(program: Path) -> None:
    """What needs it says so when there is no compiler or no libjpeg."""
    command = compiler()
    if command is not None:
        with suppress(PeerError):
            run_command([*command, "-O3", "-o", str(program), str(PEERS / "coefficients.c"), "-ljpeg"])


def _codes(program: Path, rec: Path) -> Metrics:
    if not program.is_file():
        raise PeerError("coefficients.c was not built: it needs a C compiler and libjpeg62-turbo-dev")
    return {"work": _gigabytes(run_command([str(program), str(rec)]).output)}


def _gigabytes(output: str) -> Sample:
    sample = sample_of(output)
    return replace(sample, amount=sample.amount / 1e9)


def _way(way: str, *paths: Path) -> Callable[[], Metrics]:
    def measure() -> Metrics:
        output = run_command(python(str(PEERS / "images.py"), way, *map(str, paths))).output
        return {"work": sample_of(output) if way in ("import", "copy") else _gigabytes(output)}

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
