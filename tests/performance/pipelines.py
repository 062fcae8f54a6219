"""Input pipelines: native against MXNet's iterator, DALI, and the limit of whole-image decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.performance.command import python, run_command, sample_of
from tests.performance.context import Context, has_training
from tests.performance.data import make_jpegs
from tests.performance.harness import Experiment, Goal, Metrics, PeerError, Quantity, Ratio

_SITE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


def experiments(context: Context) -> Iterator[Experiment]:
    """One: all readers take turns on the same records with the same augmentation."""
    missing = []
    if not has_training():
        yield Experiment(
            name="pipelines", about="", contestants={}, ratios=[], missing=["MXNet (make run installs it)"]
        )
        return
    ratios = [
        _ratio("native / MXNet ImageRecordIter", "mxnet", Goal(bound=2.0, at_least=True)),
        _ratio("native / bare libjpeg-turbo decode", "decode", None),
    ]
    contestants = {name: _reader(context, name, None) for name in ("native", "mxnet", "decode")}
    site = dali_site(context.dali_python)
    if site is None:
        missing.append("DALI: not importable here; MLBENCH_DALI_PYTHON must name a Python with nvidia-dali 1.30")
    else:
        contestants |= {name: _reader(context, name, site or None) for name in ("dali", "dali_bare")}
        ratios += [
            _ratio("native / DALI on the CPU", "dali_bare", Goal(bound=1.0, at_least=True)),
            Ratio(
                name="DALI through us / bare DALI",
                unit="images/s",
                quantity=Quantity.rate,
                ours=("dali", "read"),
                peer=("dali_bare", "read"),
                goal=Goal(bound=0.97, at_least=True),
            ),
        ]
    yield Experiment(
        name="pipelines",
        about="random-resized crop, mirror, normalise, 224 px, batch 64, two threads; JPEGs of 106 KB",
        contestants=contestants,
        ratios=ratios,
        missing=missing,
    )


def dali_site(dali_python: str | None) -> str | None:
    """The folder that DALI is imported from, empty for our own environment; None when there is no DALI.

    The other Python must be of our version: its packages are put behind ours, so that MXNet stays ours."""
    from importlib.util import find_spec

    try:
        if find_spec("nvidia.dali") is not None:
            return ""
    except ModuleNotFoundError:
        pass
    if dali_python is None:
        return None
    return run_command([dali_python, "-c", _SITE], env={"PYTHONPATH": ""}).output.strip()


def _ratio(name: str, peer: str, goal: Goal | None) -> Ratio:
    return Ratio(
        name=name, unit="images/s", quantity=Quantity.rate, ours=("native", "read"), peer=(peer, "read"), goal=goal
    )


def _reader(context: Context, peer: str, site: str | None) -> Callable[[], Metrics]:
    """Each in a process of its own: one reader's threads and memory are no matter of another's."""

    def measure() -> Metrics:
        rec = make_jpegs(context) / "train.rec"
        arguments = [str(rec), "--one", peer, "--batches", str(context.sized(4, 20))]
        if site:
            if not Path(site).is_dir():
                raise PeerError(f"{site}: no such folder")
            arguments += ["--site", site]
        done = run_command(python("-W", "ignore", "-m", "tests.performance.pipeline_peers", *arguments))
        return {"read": sample_of(done.output)}

    return measure
