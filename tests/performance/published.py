"""Published logs: import into SQLite against parsing by mlperf_logging, and `check` against its package checker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.performance.command import PEERS, mlbench, python, run_command, sample_of
from tests.performance.context import Context
from tests.performance.harness import Experiment, Goal, Metrics, Quantity, Ratio

CHECKED = ("v1.0", "Dell", "1.0.0")
"""Round, submitter and ruleset of the checked folder: five logs that both tools find compliant."""


def experiments(context: Context) -> Iterator[Experiment]:
    """Two; both need the published logs."""
    if context.published is None:
        missing = ["published MLPerf logs (set MLBENCH_PUBLISHED to their folder)"]
        yield Experiment(name="import", about="", contestants={}, ratios=[], missing=missing)
        yield Experiment(name="check", about="", contestants={}, ratios=[], missing=missing)
        return
    yield _import(context, context.published)
    yield _check(context, context.published)


def _import(context: Context, published: Path) -> Experiment:
    copies = context.sized(1, 4)
    tree = context.folder / "import-tree"

    @contextmanager
    def copied() -> Iterator[None]:
        for copy in range(copies):
            for submitter in sorted(published.glob("v*/*")):
                target = tree / f"training_results_{submitter.parent.name}" / f"{submitter.name}{copy}"
                shutil.copytree(submitter, target)
        yield

    def ours() -> Metrics:
        return {"import": sample_of(run_command(python(str(PEERS / "import_logs.py"), str(tree), "ours")).output)}

    def official() -> Metrics:
        return {"import": sample_of(run_command(python(str(PEERS / "import_logs.py"), str(tree), "official")).output)}

    return Experiment(
        name="import",
        about=f"{copies} copies of the published trees; the peer only parses, with mlperf_logging",
        contestants={"ours": ours, "official": official},
        ratios=[
            Ratio(
                name="import into SQLite / mlperf_logging's parser, goal for each core",
                unit="logs/s",
                quantity=Quantity.rate,
                ours=("ours", "import"),
                peer=("official", "import"),
                goal=Goal(bound=100, at_least=True, of_ratio=False, of_cpu=True),
            )
        ],
        setting=copied,
    )


def _check(context: Context, published: Path) -> Experiment:
    round_name, submitter, ruleset = CHECKED
    work = context.folder / "check"
    copy = work / submitter

    @contextmanager
    def copied() -> Iterator[None]:
        # The official tool writes into the folder that it reads.
        (copy / "benchmarks").mkdir(parents=True)
        for part in ("results", "systems"):
            shutil.copytree(published / round_name / submitter / part, copy / part, copy_function=shutil.copyfile)
        yield

    official = python("-m", "mlperf_logging.package_checker", str(copy), "training", ruleset)
    ours = mlbench("check", str(published / round_name / submitter))
    return Experiment(
        name="check",
        about="five published logs, all findings of both tools",
        contestants={
            "ours": lambda: {"check": run_command(ours, cwd=work).sample},
            "official": lambda: {"check": run_command(official, cwd=work).sample},
        },
        ratios=[
            Ratio(
                name="mlbench check / package_checker",
                unit="s",
                quantity=Quantity.time,
                ours=("ours", "check"),
                peer=("official", "check"),
                goal=Goal(bound=1.3, at_least=False),
            )
        ],
        setting=copied,
    )
