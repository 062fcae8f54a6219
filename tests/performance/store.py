"""The database: the verbs on one that is full of years of results, against an empty one; each dialect that is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from tests.performance.command import mlbench, run_command
from tests.performance.context import Context
from tests.performance.harness import Experiment, Goal, Metrics, Quantity, Ratio, Sample

QUERIES: dict[str, tuple[str, float]] = {
    "list_s": ("newest 50 run sets", 0.3),
    "list_filtered_s": ("newest 50 with filters", 0.3),
    "load_two_s": ("two run sets in full, for compare", 0.5),
    "insert_one_s": ("insert of one run set", 0.1),
}
"""What is asked, and how long it may take, seconds."""
VERBS: dict[str, tuple[str, ...]] = {
    "results list": ("results", "list"),
    "results list, filters": ("results", "list", "--system", "dss", "--status", "valid"),
    "compare": ("compare", "latest~4", "latest~5"),
}


@dataclass(slots=True)
class _Databases:
    """Filled when the setting is entered."""

    full: Engine | None = None


def experiments(context: Context) -> Iterator[Experiment]:
    """SQLite always; PostgreSQL where a server is named."""
    num_run_sets = context.sized(200, 10_000)
    folder = context.folder / "store"
    folder.mkdir(exist_ok=True)
    full, empty = f"sqlite:///{folder / 'full.sqlite'}", f"sqlite:///{folder / 'empty.sqlite'}"
    yield _experiment("store.sqlite", full, empty, num_run_sets)
    if context.postgres_url is None:
        missing = ["PostgreSQL: MLBENCH_TEST_POSTGRES_URL (tests/support/postgres.sh start prints one)"]
        yield Experiment(name="store.postgresql", about="", contestants={}, ratios=[], missing=missing)
        return
    base = context.postgres_url.rsplit("/", 1)[0]
    yield _experiment(
        "store.postgresql",
        f"{base}/mlbench_bench_full",
        f"{base}/mlbench_bench_empty",
        num_run_sets,
        context.postgres_url,
    )


def _experiment(name: str, full: str, empty: str, num_run_sets: int, server: str | None = None) -> Experiment:
    databases = _Databases()

    @contextmanager
    def filled() -> Iterator[None]:
        from mlbench.store.engine import open_database
        from tests.performance.store_load import fill

        _create(server, full, empty)
        databases.full = open_database(full)
        open_database(empty).dispose()
        fill(databases.full, num_run_sets)
        try:
            yield
        finally:
            databases.full.dispose()
            _drop(server, full, empty)

    def queries() -> Metrics:
        from tests.performance.store_load import time_in_process

        assert databases.full is not None
        times = time_in_process(databases.full)
        return {key: Sample(wall_s=times[key]) for key in QUERIES}

    def verb(arguments: tuple[str, ...], url: str) -> Callable[[], Metrics]:
        argv, env = mlbench(*arguments), {"MLBENCH_DB_URL": url}
        # An empty database has nothing to compare: status 2, as quickly as it can be told.
        return lambda: {"verb": run_command(argv, env=env, good=(0, 2)).sample}

    contestants: dict[str, Callable[[], Metrics]] = {"queries": queries}
    ratios = [
        Ratio(
            name=shown,
            unit="s",
            quantity=Quantity.time,
            ours=("queries", key),
            goal=Goal(bound=bound, at_least=False, of_ratio=False),
        )
        for key, (shown, bound) in QUERIES.items()
    ]
    for shown, arguments in VERBS.items():
        contestants[f"{shown}, full"] = verb(arguments, full)
        contestants[f"{shown}, empty"] = verb(arguments, empty)
        ratios.append(
            Ratio(
                name=f"{shown}: full / empty database",
                unit="s",
                quantity=Quantity.time,
                ours=(f"{shown}, full", "verb"),
                peer=(f"{shown}, empty", "verb"),
            )
        )
    return Experiment(
        name=name,
        about=f"{num_run_sets:,} run sets of five runs with epochs, settings and telemetry",
        contestants=contestants,
        ratios=ratios,
        setting=filled,
    )


def _create(server: str | None, *urls: str) -> None:
    _drop(server, *urls)
    if server is not None:
        _administer(server, [f'CREATE DATABASE "{_database(url)}"' for url in urls])


def _drop(server: str | None, *urls: str) -> None:
    if server is not None:
        _administer(server, [f'DROP DATABASE IF EXISTS "{_database(url)}" WITH (FORCE)' for url in urls])


def _database(url: str) -> str:
    from sqlalchemy import make_url

    return make_url(url).database or ""


def _administer(server: str, statements: list[str]) -> None:
    from sqlalchemy import create_engine, make_url

    url = make_url(server)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()
