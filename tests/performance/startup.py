"""Start-up of the verbs, as a user feels it: from the shell's fork to the last line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.performance.command import mlbench, python, run_command
from tests.performance.context import Context
from tests.performance.harness import Experiment, Goal, Metrics, Quantity, Ratio

NUM_RUN_SETS = 1000
VERBS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "--help": (("--help",), 0.3),
    "results list": (("results", "list"), 0.6),
    "plan": (("plan",), 1.0),
    "plan, 4096 GPUs": (("plan", "+hardware=dgxa100", "gpus=4096"), 2.0),
    "results show": (("results", "show", "latest"), None),
    "compare": (("compare", "latest", "latest~1"), None),
    "results query": (("results", "query", "SELECT count(*) FROM run_set"), None),
    "doctor": (("doctor",), None),
    "size": (("size", "+hardware=dgxa100", "gpus=32"), None),
    **{
        f"{name} --help": ((name, "--help"), None)
        for name in ("import", "check", "package", "report", "baseline", "resume", "reproduce", "data", "db")
    },
}
"""What is typed, and how long it may take, seconds. Verbs that need more than a database show what they import."""


def experiments(context: Context) -> Iterator[Experiment]:
    """One: every verb in turn, and the bare interpreter as the floor."""
    home = context.folder / "startup"

    @contextmanager
    def stored() -> Iterator[None]:
        from mlbench.store.engine import open_database
        from tests.performance.store_load import fill

        engine = open_database(f"sqlite:///{home / 'db' / 'mlbench.sqlite'}")
        fill(engine, NUM_RUN_SETS)
        engine.dispose()
        yield

    def start(arguments: tuple[str, ...]) -> Callable[[], Metrics]:
        # 2 and 4 are verdicts about what was asked, told as quickly as any.
        argv, env = mlbench(*arguments), {"MLBENCH_HOME": str(home)}
        return lambda: {"start": run_command(argv, env=env, cwd=home, good=(0, 2, 4)).sample}

    home.mkdir(parents=True, exist_ok=True)
    (home / "db").mkdir(exist_ok=True)
    bare = python("-c", "pass")
    contestants: dict[str, Callable[[], Metrics]] = {
        "interpreter": lambda: {"start": run_command(bare).sample},
        **{name: start(arguments) for name, (arguments, _) in VERBS.items()},
    }
    ratios = [
        Ratio(
            name=name,
            unit="s",
            quantity=Quantity.time,
            ours=(name, "start"),
            peer=("interpreter", "start"),
            goal=None if bound is None else Goal(bound=bound, at_least=False, of_ratio=False),
        )
        for name, (_, bound) in VERBS.items()
    ]
    yield Experiment(
        name="startup",
        about=f"a database of {NUM_RUN_SETS:,} run sets; the peer is `python -c pass`",
        contestants=contestants,
        ratios=ratios,
        setting=stored,
    )
