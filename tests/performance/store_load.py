"""A database as a team has it after years: filled in bulk, and the verbs timed on it against an empty one.

    python -m tests.performance.store_load [--run-sets 10000] [--db URL]

The default is 10,000 run sets, 50,000 runs, 2 million epochs and 20 million telemetry points in an SQLite file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select

from mlbench.store.bulk import insert_rows
from mlbench.store.engine import open_database, reading, retried
from mlbench.store.repository import (
    RunSetFilter,
    find_run_set,
    list_run_sets,
    load_run_sets,
    save_run_set,
)
from mlbench.store.rows import RunSetRows, build_rows
from mlbench.store.tables import (
    Epoch,
    EvaluationRow,
    HostFact,
    Hyperparameter,
    Run,
    RunSet,
    System,
    TelemetrySeries,
)
from mlbench.store.url import sqlite_path

SYSTEMS = ("4xNVIDIA DGX A100", "DSS8440", "8xDSS8440", "dgx1", "XE9680x8H100-SXM-80GB")
RUNS, EPOCHS, EVALUATIONS, SETTINGS = 5, 40, 10, 30
METRICS, POINTS = 8, 50
BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is in the database, and how large it is. Sizes in bytes."""

    num_run_sets: int
    num_runs: int
    num_epochs: int
    num_telemetry_points: int
    size_bytes: int
    bytes_per_run_set: float


def _identity(number: int) -> dict[str, Any]:
    started = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=6 * number)
    return {
        "run_set": f"{started:%Y%m%d-%H%M%S}-resnet50-{number:08x}",
        "content_hash": f"{number:064x}",
        "started_at": started,
        "benchmark": "resnet" if number % 4 else "resnet50_throughput",
        "score_status": ("valid", "valid", "raw", "invalid")[number % 4],
    }


def make_run_set(number: int) -> RunSet:
    """A run set of true proportions; the same number gives the same rows."""
    draw = random.Random(number)
    identity = _identity(number)
    started = identity["started_at"]
    system = SYSTEMS[number % len(SYSTEMS)]
    time_s = draw.uniform(800, 4800)
    return RunSet(
        **identity,
        origin="run",
        org="Lab",
        system=system,
        division="closed" if number % 3 else "open",
        model="resnet50",
        framework="MXNet 1.9.1",
        ruleset="4.0.0",
        launcher="slurm",
        num_nodes=4,
        num_accelerators=32,
        num_ranks=32,
        global_batch_size=3264,
        repeats_asked=RUNS,
        num_runs=RUNS,
        num_converged=RUNS,
        score_s=time_s,
        olympic_mean_s=time_s,
        mean_s=time_s,
        min_s=time_s * 0.99,
        max_s=time_s * 1.01,
        cv=0.0012,
        samples_per_s=78454.0,
        samples_per_s_first_epoch=76714.0,
        throughput_method="epochs",
        cache="cold",
        finished_at=started + timedelta(seconds=5 * time_s),
        path=None,
        config={"gpus": 32, "hardware": {"compute": {"name": "dgxa100", "environment": {"NCCL_SOCKET_IFNAME": "ib0"}}}},
        provenance={"git_commit": "0" * 40, "packages": {f"package{item}": "1.0" for item in range(20)}},
        description=System(origin="run", org="Lab", name=system, description={"name": system}),
        host_facts=[
            HostFact(host=f"node-{node}", key=f"fact{key}", value="x" * 20) for node in range(4) for key in range(10)
        ],
        runs=[_run(index, draw, started, time_s) for index in range(RUNS)],
    )


def _run(index: int, draw: random.Random, started: datetime, time_s: float) -> Run:
    epoch_s = time_s / EPOCHS
    return Run(
        index=index,
        status="success",
        converged=True,
        time_to_train_s=time_s * draw.uniform(0.99, 1.01),
        epochs=float(EPOCHS),
        final_accuracy=0.7591,
        best_accuracy=0.7591,
        quality_target=0.759,
        seed=draw.randrange(2**31),
        samples_per_s=78454.0,
        samples_per_s_first_epoch=76714.0,
        train_samples=1281167,
        global_batch_size=3264,
        cache_clear=True,
        started_at=started + timedelta(seconds=index * time_s),
        exit_status=0,
        log_path=f"runs/run_{index}/attempt_0/result.txt",
        log_sha256=f"{index:064x}",
        epoch_rows=[
            Epoch(
                kind="epoch",
                epoch_num=float(number + 1),
                num_epochs=1.0,
                start_s=number * epoch_s,
                duration_s=epoch_s * draw.uniform(0.99, 1.01),
                samples_per_s=1281167 / epoch_s,
            )
            for number in range(EPOCHS)
        ],
        evaluations=[
            EvaluationRow(epoch_num=4.0 * number + 1, accuracy=0.07 * number + 0.1, time_s=number * epoch_s)
            for number in range(EVALUATIONS)
        ],
        hyperparameters=[Hyperparameter(key=f"opt_setting_{number}", value="0.9") for number in range(SETTINGS)],
        telemetry=[
            TelemetrySeries(
                host="node-0",
                metric=f"gpu{number}_power_w",
                num_points=POINTS,
                mean=300.0,
                min=100.0,
                max=400.0,
                times_s=[round(point * time_s / POINTS, 1) for point in range(POINTS)],
                points=[round(draw.uniform(100, 400), 1) for _ in range(POINTS)],
            )
            for number in range(METRICS)
        ],
    )


def fill(engine: Engine, num_run_sets: int) -> None:
    """Insert run sets in bulk, numbered by ourselves, far faster than one by one; for an empty database.

    Runs of one system share their rows below, so that making them costs less than storing them.
    """
    patterns = [build_rows(make_run_set(number)) for number in range(len(SYSTEMS))]
    systems = [item.system for item in patterns]
    retried(engine, lambda connection: _insert_systems(connection, systems))
    for begin in range(0, num_run_sets, BATCH):
        numbers = range(begin, min(begin + BATCH, num_run_sets))
        retried(engine, lambda connection, numbers=numbers: _insert(connection, patterns, numbers))  # type: ignore[misc]
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in (RunSet, Run, System):
                name = table.__tablename__
                connection.exec_driver_sql(f"SELECT setval('{name}_id_seq', (SELECT max(id) FROM {name}))")
            connection.exec_driver_sql("ANALYZE")


def _insert_systems(connection: Connection, systems: Sequence[dict[str, Any] | None]) -> None:
    connection.execute(insert(System), [(row or {}) | {"id": index + 1} for index, row in enumerate(systems)])


def _insert(connection: Connection, patterns: Sequence[RunSetRows], numbers: Sequence[int]) -> None:
    by_table: dict[str, list[dict[str, Any]]] = {}
    for number in numbers:
        pattern = patterns[number % len(patterns)]
        by_table.setdefault("run_set", []).append(
            pattern.row | _identity(number) | {"id": number + 1, "system_id": number % len(patterns) + 1}
        )
        for table, children in pattern.children.items():
            by_table.setdefault(table.name, []).extend(row | {"run_set_id": number + 1} for row in children)
        for index, run in enumerate(pattern.runs):
            run_id = number * RUNS + index + 1
            by_table.setdefault("run", []).append(run.row | {"id": run_id, "run_set_id": number + 1})
            for table, children in run.children.items():
                by_table.setdefault(table.name, []).extend(row | {"run_id": run_id} for row in children)
    for table in RunSet.metadata.sorted_tables:
        if by_table.get(table.name):
            insert_rows(connection, table, by_table[table.name])


def shape(engine: Engine) -> Shape:
    """Counts and size as the database tells them."""
    with reading(engine) as connection:
        counts = [
            connection.execute(select(func.count()).select_from(item)).scalar_one() for item in (RunSet, Run, Epoch)
        ]
        points = connection.execute(select(func.sum(TelemetrySeries.num_points))).scalar_one()
        if engine.dialect.name == "postgresql":
            size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
        else:
            path = sqlite_path(engine.url.render_as_string(hide_password=False))
            assert path is not None
            size = path.stat().st_size
    return Shape(
        num_run_sets=counts[0],
        num_runs=counts[1],
        num_epochs=counts[2],
        num_telemetry_points=int(points or 0),
        size_bytes=int(size),
        bytes_per_run_set=size / max(1, counts[0]),
    )


def time_in_process(engine: Engine) -> dict[str, float]:
    """Seconds of what the verbs do in the database, the median of several goes."""
    filters = RunSetFilter(system="dss", benchmark="resnet", status="valid", since=datetime(2021, 1, 1, tzinfo=UTC))
    names = [find_run_set(engine, "latest"), find_run_set(engine, "latest~5")]
    fresh = iter(range(1_000_000, 1_100_000))
    return {
        "list_s": _median(lambda: list_run_sets(engine)),
        "list_filtered_s": _median(lambda: list_run_sets(engine, filters)),
        "list_rare_s": _median(lambda: list_run_sets(engine, RunSetFilter(org="nobody"))),
        "list_all_s": _median(lambda: list_run_sets(engine, None, None), rounds=3),
        "find_s": _median(lambda: find_run_set(engine, "latest~1")),
        "load_two_s": _median(lambda: load_run_sets(engine, names)),
        "load_two_with_telemetry_s": _median(lambda: load_run_sets(engine, names, telemetry=True)),
        "insert_one_s": _median(lambda: save_run_set(engine, make_run_set(next(fresh)))),
    }


def time_verbs(
    url: str, empty_url: str, verbs: Sequence[Sequence[str]], rounds: int = 5
) -> dict[str, dict[str, float]]:
    """CPU seconds of each verb on the full and on an empty database, alternating; the medians and their difference."""
    found = {}
    for verb in verbs:
        full, empty = [], []
        for _ in range(rounds):
            full.append(_cpu_s(verb, url))
            empty.append(_cpu_s(verb, empty_url))
        both = {"full_s": statistics.median(full), "empty_s": statistics.median(empty)}
        found[" ".join(verb)] = both | {"beyond_start_s": both["full_s"] - both["empty_s"]}
    return found


def _cpu_s(verb: Sequence[str], url: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", *verb],
        env={**os.environ, "MLBENCH_DB_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _median(action: Any, rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(url: str, empty_url: str, num_run_sets: int) -> dict[str, Any]:
    """Fill the database at `url` and time everything; both databases must be new."""
    engine = open_database(url)
    open_database(empty_url)
    begin = time.perf_counter()
    fill(engine, num_run_sets)
    filled_s = time.perf_counter() - begin
    found = shape(engine)
    verbs = [
        ["results", "list"],
        ["results", "list", "--system", "dss", "--benchmark", "resnet", "--status", "valid", "--json", "--limit", "50"],
        ["results", "show", "latest"],
    ]
    return {
        "dialect": engine.dialect.name,
        "fill_s": filled_s,
        **asdict(found),
        "in_process": time_in_process(engine),
        "verbs": time_verbs(url, empty_url, verbs),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-sets", type=int, default=10_000)
    parser.add_argument("--db", help="URL of a new database; default: an SQLite file in a temporary folder")
    parser.add_argument("--empty", help="URL of another new database to compare with")
    return parser.parse_args()


def places(folder: Path) -> Iterator[str]:
    yield from (str(folder / "full.sqlite"), str(folder / "empty.sqlite"))


def main() -> None:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="mlbench-load-") as folder:
        full, empty = places(Path(folder))
        print(json.dumps(measure(given.db or full, given.empty or empty, given.run_sets), indent=1))


if __name__ == "__main__":
    main()
