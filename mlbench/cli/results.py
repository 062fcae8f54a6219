"""`mlbench results`: list, show, query and export what is in the database."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlbench.cli.main import verb_app
from mlbench.cli.moments import parse_since
from mlbench.cli.options import DbOption, JsonOption
from mlbench.errors import InputError
from mlbench.wording import count_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mlbench.store.repository import RunSetFilter

app = verb_app("List, show, query and export what is in the database.")

MAX_LIMIT = 1_000_000_000
"""What the driver of a database can still count."""
MAX_TIME_S = 1_000_000.0
"""As much as a server takes for a limit."""
CELL_LENGTH = 2000
GRACE_S = 2.0
"""What a query gets beyond its time limit to end by itself, with the better sentence."""
EXIT_TOO_LONG = 2

SystemOption = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="A part of the system's name.")]
BenchmarkOption = Annotated[str | None, typer.Option("--benchmark", metavar="NAME", help="For example resnet.")]
OrgOption = Annotated[str | None, typer.Option("--org", metavar="NAME", help="Who ran or submitted it.")]
RoundOption = Annotated[str | None, typer.Option("--round", metavar="ROUND", help="Round of an import, as v3.1.")]
OriginOption = Annotated[str | None, typer.Option("--origin", metavar="run|import", help="Own runs or imports.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="DATE", help="Started on 2024-05-01 or later; 7d: in the last 7 days.")
]
StatusOption = Annotated[str | None, typer.Option("--status", metavar="valid|invalid|raw", help="State of the score.")]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=MAX_LIMIT, metavar="N", help="Only the newest N (a table shows 50 otherwise)."),
]


@app.command("list")
def list_(
    system: SystemOption = None,
    benchmark: BenchmarkOption = None,
    org: OrgOption = None,
    round_: RoundOption = None,
    origin: OriginOption = None,
    since: SinceOption = None,
    status: StatusOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
    db: DbOption = None,
) -> None:
    """One line for each run set, the newest first."""
    from mlbench.cli.console import print_json
    from mlbench.store.repository import NEWEST, count_run_sets, list_run_sets

    filters = _filters(system, benchmark, org, round_, origin, since, status)
    engine = _open_if_there(db)
    shown = limit if limit is not None else (None if as_json else NEWEST)
    found = list_run_sets(engine, filters, shown) if engine is not None else []
    if as_json:
        print_json([item.as_json() for item in found])
        return
    from mlbench.cli.results_tables import print_list

    total = len(found) if engine is None or len(found) != shown else count_run_sets(engine, filters)
    print_list(found, total, filtered=any(getattr(filters, name) is not None for name in filters.__slots__))


@app.command("show")
def show(
    run_set: Annotated[str, typer.Argument(help="Id, its beginning, `latest`, `latest~1`, or a run folder.")],
    as_json: JsonOption = False,
    full: Annotated[bool, typer.Option("--full", help="With --json: stages, notes, hosts, settings too.")] = False,
    db: DbOption = None,
) -> None:
    """One run set in full: score, every attempt, stages, notes, where the files are."""
    from mlbench.cli.console import print_json
    from mlbench.cli.results_json import full_json, show_json
    from mlbench.store.engine import open_database
    from mlbench.store.repository import load_run_set

    found = load_run_set(open_database(db, readonly=True), run_set)
    if as_json:
        print_json(full_json(found) if full else show_json(found))
        return
    from mlbench.cli.results_tables import print_run_set

    print_run_set(found)


@app.command("query")
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT, in quotes.")],
    as_json: JsonOption = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MAX_LIMIT, metavar="N", help="Rows to show at most.")
    ] = 1000,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.1, max=MAX_TIME_S, metavar="SECONDS", help="End the query after this time."),
    ] = 10.0,
    db: DbOption = None,
) -> None:
    """Ask the database in SQL. It is opened read only: a statement that writes is refused by the database."""
    from mlbench.cli.console import add_row, make_console, make_table, print_json, print_text
    from mlbench.store.engine import open_database
    from mlbench.store.export import plain, unique_names
    from mlbench.store.query import run_query

    with _ended_at(time_limit):
        result = run_query(open_database(db, readonly=True), sql, max_rows=limit, time_limit_s=time_limit)
    if as_json:
        names = list(unique_names(result.columns))
        print_json([dict(zip(names, map(_json_value, row), strict=True)) for row in result.rows])
    else:
        table = make_table(list(unique_names(result.columns)))
        for row in result.rows:
            add_row(table, (_cell(plain(value)) for value in row))
        make_console().print(table)
    if result.truncated:
        print_text(f"the first {count_of(limit, 'row')}; more with --limit", stderr=True)


@app.command("export")
def export(
    format_: Annotated[str, typer.Option("--format", metavar="csv|json|parquet", help="Form of the file.")] = "csv",
    what: Annotated[
        str,
        typer.Option(
            "--rows",
            metavar="KIND",
            help="What a row is: run_sets, runs, epochs, evaluations, allreduce, storage or hosts.",
        ),
    ] = "run_sets",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Without it: standard output.")] = None,
    system: SystemOption = None,
    benchmark: BenchmarkOption = None,
    org: OrgOption = None,
    round_: RoundOption = None,
    origin: OriginOption = None,
    since: SinceOption = None,
    status: StatusOption = None,
    limit: LimitOption = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write run sets with their files into one file to send."),
    ] = None,
    run_sets: Annotated[list[str] | None, typer.Argument(metavar="[RUN_SET]...", help="With --bundle.")] = None,
    db: DbOption = None,
) -> None:
    """Write rows as CSV, JSON or Parquet, or whole run sets with their files as a bundle."""
    from mlbench.store.engine import open_database

    filters = _filters(system, benchmark, org, round_, origin, since, status)
    engine = open_database(db, readonly=True)
    if bundle is not None:
        from mlbench.cli.results_export import export_bundle

        export_bundle(engine, bundle, run_sets or [], filters, limit)
        return
    if run_sets:
        raise InputError(f"results export: found run set {run_sets[0]!r}; naming run sets goes with --bundle FILE")
    from mlbench.cli.results_export import export_rows_to

    export_rows_to(engine, format_, what, out, filters, limit)


@contextmanager
def _ended_at(limit_s: float) -> Iterator[None]:
    """End this process when the query within takes longer still: one call of a function of the database, a search
    in a long value for one, never looks at the clock, and a server may have stopped to answer."""

    def end() -> None:
        print(f"mlbench: results query: took longer than {limit_s:g} s and was ended; ask for less", file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_TOO_LONG)

    timer = threading.Timer(limit_s + GRACE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _filters(
    system: str | None,
    benchmark: str | None,
    org: str | None,
    round_: str | None,
    origin: str | None,
    since: str | None,
    status: str | None,
) -> RunSetFilter:
    from mlbench.store.repository import RunSetFilter

    _known("--origin", origin, ("run", "import"))
    _known("--status", status, ("valid", "invalid", "raw"))
    moment: datetime | None = parse_since(since) if since is not None else None
    return RunSetFilter(
        system=system, benchmark=benchmark, org=org, round=round_, origin=origin, since=moment, status=status
    )


def _known(option: str, value: str | None, words: tuple[str, ...]) -> None:
    if value is not None and value.lower() not in words:
        raise InputError(f"{option}: found {value!r}, expected one of {', '.join(words)}")


def _open_if_there(db: str | None) -> Engine | None:
    """The database for reading; None when there is none yet, which is an empty list and no fault."""
    from mlbench.store.engine import NoDatabaseError, open_database

    try:
        return open_database(db, readonly=True)
    except NoDatabaseError as error:
        if db is not None:
            raise
        print(f"mlbench: {error}", file=sys.stderr)
        return None


def _cell(value: object) -> object:
    """A value as a table shows it: of megabytes nobody reads more than the beginning, and a terminal would choke."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, bytes | list | dict) else None
    if text is None or len(text) <= CELL_LENGTH:
        return value
    return f"{text[:CELL_LENGTH]}... ({count_of(len(text), 'character')}; --json shows all)"


def _json_value(value: object) -> object:
    from mlbench.store.export import plain

    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value not in (float("inf"), float("-inf")) and value == value:
        return value
    known = isinstance(value, str | int | bool | list | dict) or value is None
    return value if known else (None if isinstance(value, float) else str(plain(value)))
