"""`mlbench db`: upgrade, rebuild, merge and verify the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlbench.cli.main import verb_app
from mlbench.cli.options import DbOption, JsonOption
from mlbench.errors import InputError
from mlbench.wording import count_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = verb_app("Upgrade, rebuild, merge and verify the database.")

RUNS_HELP = "Folder of the run sets; without it runs/ of MLBENCH_HOME or of this folder."
EXIT_UNREADABLE = 2
EXIT_DIFFERENT = 4
_SHOWN = 20

RunsOption = Annotated[
    Path | None,
    typer.Option("--runs-dir", metavar="DIR", help=RUNS_HELP),
]


@app.command("upgrade")
def upgrade(as_json: JsonOption = False, db: DbOption = None) -> None:
    """Bring the database to the schema of this mlbench. An SQLite file is copied first; cut short, nothing changes."""
    from mlbench.cli.console import print_json, print_text
    from mlbench.store.engine import open_unchecked
    from mlbench.store.faults import display_name
    from mlbench.store.upgrade import upgrade_database

    engine = open_unchecked(db)
    done = upgrade_database(engine)
    name = display_name(engine)
    if as_json:
        copy = str(done.copy) if done.copy else None
        print_json({"database": name, "old_schema": done.old, "new_schema": done.new, "copy": copy})
    elif done.old is None:
        print_text(f"{name}: made with schema {done.new}")
    elif done.old == done.new:
        print_text(f"{name}: has schema {done.new} already")
    else:
        kept = f"; as it was before: {done.copy}" if done.copy else ""
        print_text(f"{name}: schema {done.old} became {done.new}{kept}")


@app.command("rebuild")
def rebuild(runs_dir: RunsOption = None, as_json: JsonOption = False, db: DbOption = None) -> None:
    """Make the rows anew from the files of runs/ and of imports. Safe to cut short and run again."""
    from mlbench.cli.console import print_json, print_text
    from mlbench.ingest.care import rebuild as rebuild_rows

    folder = _runs_dir(runs_dir)
    engine, damaged = _open_or_replace(db)
    if damaged is not None:
        print_text(f"the database was damaged and is kept as {damaged}", stderr=True)
    with _progress("reading") as tell:
        report = rebuild_rows(engine, folder, tell)
    if as_json:
        print_json(
            {
                "inserted": report.inserted,
                "replaced": report.replaced,
                "removed": report.removed,
                "kept": report.kept,
                "unreadable": report.unreadable,
            }
        )
    else:
        print_text(
            f"{count_of(len(report.inserted) + len(report.replaced), 'run set')} read from files "
            f"({len(report.inserted)} of them new), "
            f"{len(report.removed)} removed because their folder in {folder} is gone"
        )
        _print_some(report.kept, "kept as it was, its files are not here")
    _end_unreadable(report.unreadable)


@app.command("merge")
def merge(
    other: Annotated[str, typer.Argument(metavar="OTHER", help="A folder of run sets, an SQLite file or a URL.")],
    as_json: JsonOption = False,
    db: DbOption = None,
) -> None:
    """Add another team's run sets to this database, without duplicates. OTHER is not changed."""
    from mlbench.cli.console import print_json, print_text
    from mlbench.ingest.merge import merge as merge_run_sets
    from mlbench.store.engine import open_database

    with _progress("merging") as tell:
        report = merge_run_sets(open_database(db), other, tell)
    if as_json:
        print_json(
            {
                "added": report.added,
                "known": report.known,
                "conflicts": report.conflicts,
                "unreadable": report.unreadable,
            }
        )
    else:
        print_text(
            f"{count_of(len(report.added), 'run set')} added, {count_of(len(report.known), 'was', 'were')} here already"
        )
        _print_some(report.conflicts, "not taken: another run set of this id is here, with other content")
    _end_unreadable(report.unreadable)
    if report.conflicts:
        raise typer.Exit(EXIT_DIFFERENT)


@app.command("verify")
def verify(runs_dir: RunsOption = None, as_json: JsonOption = False, db: DbOption = None) -> None:
    """Compare files, hashes and rows. Status 4 when anything differs."""
    from mlbench.cli.console import print_json, print_text
    from mlbench.ingest.care import Compared
    from mlbench.ingest.care import verify as verify_rows
    from mlbench.store.engine import open_database

    with _progress("comparing") as tell:
        report = verify_rows(open_database(db, readonly=True), _runs_dir(runs_dir), tell)
    counts = {kind: sum(item.result is kind for item in report.comparisons) for kind in Compared}
    if as_json:
        print_json(
            {
                "good": report.is_good,
                "database_faults": report.database_faults,
                "counts": {kind.value: number for kind, number in counts.items()},
                "differences": [
                    {"run_set": item.run_set, "result": item.result.value, "detail": item.detail}
                    for item in report.comparisons
                    if item.result is not Compared.equal
                ],
            }
        )
    else:
        for fault in report.database_faults:
            print_text(f"database: {fault}")
        for item in report.comparisons:
            if item.result is not Compared.equal:
                print_text(f"{item.run_set}: {item.result.value.replace('_', ' ')}: {item.detail}")
        missing = counts[Compared.files_missing]
        different = len(report.comparisons) - counts[Compared.equal] - missing + len(report.database_faults)
        not_compared = f", {missing} not compared because their files are not here" if missing else ""
        verdict = "nothing differs" if report.is_good else count_of(different, "differs", "differ")
        held = count_of(len(report.comparisons), "run set equals its files", "run sets equal their files")
        equal = f"{counts[Compared.equal]} of {held}"
        print_text(f"{equal}{not_compared}: {verdict}")
    if not report.is_good:
        raise typer.Exit(EXIT_DIFFERENT)


def _runs_dir(given: Path | None) -> Path:
    from mlbench.plan.paths import home

    if given is None:
        return home() / "runs"
    if not given.is_dir():
        raise InputError(f"--runs-dir: {given.absolute()} is not a folder; name the folder that holds the run sets")
    return given.absolute()


def _open_or_replace(db: str | None) -> tuple[Engine, Path | None]:
    """The database; a damaged SQLite file is moved aside first, because everything in it can be made anew."""
    from mlbench.store.engine import open_database
    from mlbench.store.integrity import set_damaged_aside

    damaged = set_damaged_aside(db)
    return open_database(db), damaged


def _print_some(names: list[str], what: str) -> None:
    from mlbench.cli.console import print_text

    for name in names[:_SHOWN]:
        print_text(f"{name}: {what}")
    if len(names) > _SHOWN:
        print_text(f"and {len(names) - _SHOWN} more: {what}")


def _end_unreadable(sentences: list[str]) -> None:
    from mlbench.cli.console import print_text

    for sentence in sentences:
        print_text(sentence, stderr=True)
    if sentences:
        print_text(f"mlbench: {len(sentences)} could not be read, all others were", stderr=True)
        raise typer.Exit(EXIT_UNREADABLE)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[str], None]]:
    """Tells which run set is at work: a moving line on a terminal, nothing in a pipe."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from mlbench.cli.console import escape_control, make_console

    with make_console(stderr=True).status(what) as status:
        yield lambda name: status.update(f"{what} {escape_control(name)}")
