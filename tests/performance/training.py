"""Training: the worker against a bare Gluon loop and against PyTorch, the same model, cores and global batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlbench.dataset.synthetic import NUM_CLASSES
from mlbench.plan.types import Plan
from tests.performance.command import PEERS, python, run_command, sample_of
from tests.performance.context import Context, has_training, horovodrun, num_cpus
from tests.performance.data import digits, jpegs, make_digits_set, make_jpegs, num_jpegs
from tests.performance.harness import Experiment, Goal, Metrics, Quantity, Ratio

BARE_GOAL = Goal(bound=0.98, at_least=True)
TORCH_GOAL = Goal(bound=1.2, at_least=True)
WARMUP = 3
LIMIT_S = 150.0
BEST_SETTINGS = {"GOMP_SPINCOUNT": "1000", "HOROVOD_CYCLE_TIME": "5", "HOROVOD_FUSION_THRESHOLD": "8388608"}
"""The peers get what was found best too. Spinning: threads of libgomp spin for milliseconds at the end of each operator
while they wait for the slowest; where another process needs a core for a moment, that stalls a loop for minutes."""
DEFAULT_RANKS = 2
"""As mlbench starts on a CPU when nobody names a number."""
SMALL_PX = 64
"""Up to here the digits; larger images come from JPEGs of ImageNet's size."""
DIGITS = 640
"""Training images of the digits."""


@dataclass(frozen=True, slots=True)
class Load:
    """`batch` of one rank; `steps` are timed."""

    px: int
    batch: int
    steps: int

    @property
    def num_classes(self) -> int:
        """Of the digits, or of JPEGs as ImageNet's."""
        return 10 if self.px <= SMALL_PX else NUM_CLASSES


def experiments(context: Context) -> Iterator[Experiment]:
    """One for each image size: the smallest that trains, a middle one, and ImageNet's."""
    if not has_training():
        yield Experiment(
            name="training", about="", contestants={}, ratios=[], missing=["MXNet and Horovod (make run builds them)"]
        )
        return
    for load in (
        Load(32, 16, context.sized(6, 30)),
        Load(64, 16, context.sized(4, 15)),
        Load(224, 4, context.sized(3, 8)),
    ):
        yield _experiment(context, load)


def _experiment(context: Context, load: Load) -> Experiment:
    name = f"training.{load.px}"
    ranks, cpus = DEFAULT_RANKS, num_cpus()
    whole = load.batch * ranks
    contestants: dict[str, Callable[[], Metrics]] = {
        "worker": lambda: _worker(plan_of(context, load, ranks), context.folder / name),
        "gluon": lambda: _gluon(load, ranks, max(1, cpus // ranks)),
        "worker-1": lambda: _worker(plan_of(context, load, 1), context.folder / f"{name}-1"),
        "gluon-1": lambda: _gluon(load, 1, cpus),
    }
    ratios = [
        _ratio(load, f"{ranks} ranks: worker / bare Gluon loop", "worker", "gluon", BARE_GOAL),
        _ratio(load, f"1 rank, {cpus} threads: worker / bare Gluon loop", "worker-1", "gluon-1", BARE_GOAL),
        _ratio(load, f"worker, {ranks} ranks / 1 rank of {cpus} threads", "worker", "worker-1", None),
    ]
    missing = []
    if context.torch_python is None:
        missing.append("PyTorch: MLBENCH_TORCH_PYTHON must name a Python with torch")
    else:
        torch_python = context.torch_python
        contestants["torch"] = lambda: _torch(torch_python, load, whole)
        goal = TORCH_GOAL if load.px >= SMALL_PX else None
        ratios += [
            _ratio(load, "worker, 1 rank / PyTorch", "worker-1", "torch", goal),
            _ratio(load, f"worker, {ranks} ranks / PyTorch", "worker", "torch", None),
        ]
    return Experiment(
        name=name,
        about=f"ResNet-50 v1.5, {load.px} px, global batch {whole}, float32, {cpus} CPUs",
        contestants=contestants,
        ratios=ratios,
        setting=lambda: _data(context, load),
        missing=missing,
    )


@contextmanager
def _data(context: Context, load: Load) -> Iterator[None]:
    if load.px > SMALL_PX:
        make_jpegs(context)
    else:
        make_digits_set(context, load.px)
    yield


def _ratio(load: Load, what: str, ours: str, peer: str, goal: Goal | None) -> Ratio:
    return Ratio(
        name=f"{load.px} px, {what}",
        unit="samples/s",
        quantity=Quantity.rate,
        ours=(ours, "train"),
        peer=(peer, "train"),
        goal=goal,
    )


def plan_of(context: Context, load: Load, ranks: int) -> Plan:
    """As `mlbench benchmark=resnet50_throughput` plans it on this machine, for images of this size."""
    from mlbench.compose import compose
    from mlbench.plan.make import make_plan
    from mlbench.preflight.machine import probe_machine

    if load.px > SMALL_PX:
        data, count = jpegs(context), num_jpegs(context)
    else:
        data, count = digits(context, load.px), DIGITS
    overrides = [
        "benchmark=resnet50_throughput",
        f"benchmark.num_batches={load.steps}",
        f"benchmark.num_warmup_batches={WARMUP}",
        f"data.path={data}",
        f"data.image_px={load.px}",
        f"data.num_train={count}",
        f"data.num_classes={load.num_classes}",
        f"gpus={ranks}",
        f"training.batch_per_rank={load.batch * DEFAULT_RANKS // ranks}",
        f"runs_dir={context.folder}/runs",
    ]
    return make_plan(compose(overrides, None), probe_machine())


@dataclass(frozen=True, slots=True)
class _Folder:
    """Where a job writes, as `mlbench.plan.jobs` wants it."""

    path: Path

    @property
    def mllog(self) -> Path:
        return self.path / "result.txt"


def _worker(plan: Plan, folder: Path) -> Metrics:
    from mlbench.plan.jobs import job_for
    from mlbench.worker.job import dump

    folder.mkdir(parents=True, exist_ok=True)
    job = folder / "job.json"
    job.write_text(
        dump(job_for(plan, folder=_Folder(folder), seed=7, cache_clear=False, job_id="bench")), encoding="utf-8"
    )
    argv = [*_ranks(plan.num_ranks), *python(str(PEERS / "worker_loop.py"), str(job))]
    return {"train": sample_of(run_command(argv, env=plan.environment, limit_s=LIMIT_S).output)}


def _ranks(num_ranks: int) -> list[str]:
    return [horovodrun(), "--gloo", "-np", str(num_ranks), "--disable-cache"] if num_ranks > 1 else []


def _loop_arguments(load: Load, batch: int) -> list[str]:
    sizes = {
        "px": load.px,
        "batch": batch,
        "steps": load.steps,
        "warmup": WARMUP,
        "classes": load.num_classes,
    }
    return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def _gluon(load: Load, ranks: int, threads: int) -> Metrics:
    """With the best settings found for either layout; see docs/performance.md."""
    batch = load.batch * DEFAULT_RANKS // ranks
    argv = [*_ranks(ranks), *python(str(PEERS / "gluon_loop.py"), *_loop_arguments(load, batch))]
    environment = {**BEST_SETTINGS, "OMP_NUM_THREADS": str(threads)}
    return {"train": sample_of(run_command(argv, env=environment, limit_s=LIMIT_S).output)}


def _torch(torch_python: str, load: Load, batch: int) -> Metrics:
    arguments = [*_loop_arguments(load, batch), "--threads", str(num_cpus())]
    environment = {"GOMP_SPINCOUNT": BEST_SETTINGS["GOMP_SPINCOUNT"], "PYTHONPATH": ""}
    done = run_command([torch_python, str(PEERS / "torch_loop.py"), *arguments], env=environment, limit_s=LIMIT_S)
    return {"train": sample_of(done.output)}
