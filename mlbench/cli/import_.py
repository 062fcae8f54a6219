"""`mlbench import PATH...`: published results, or single logs, into the database."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlbench.cli.main import verb_app
from mlbench.cli.options import DbOption, JsonOption
from mlbench.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Engine

    from mlbench.collect.tree import ResultFolder
    from mlbench.store.repository import SaveOutcome
    from mlbench.store.tables import RunSet

app = verb_app("Read published results or single logs into the database.")

EXIT_UNREADABLE = 2
PLAIN_PROGRESS_EVERY = 100
"""Folders between two lines of progress when there is no terminal."""


@dataclass(slots=True)
class _Outcome:
    saved: list[tuple[RunSet, SaveOutcome]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@app.command()
def import_results(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="A log, a result folder, a submitter's or a round's tree.")
    ],
    round_name: Annotated[
        str | None, typer.Option("--round", metavar="R", help="Round such as v2.1; default: from the path.")
    ] = None,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="PATHs are bundles written by `mlbench results export --bundle`.")
    ] = False,
    as_json: JsonOption = False,
    db: DbOption = None,
) -> None:
    """Read published results or single logs into the database; the same files twice change nothing."""
    from mlbench.collect.tree import parse_round, scan_tree
    from mlbench.errors import InputError
    from mlbench.store.engine import open_database

    given_round = parse_round(round_name) if round_name is not None else None
    outcome = _Outcome()
    folders: list[ResultFolder] = []
    if bundle:
        _read_bundles(open_database(db), paths, outcome)
    for path in () if bundle else paths:
        if (path / "run_set.json").is_file():
            raise InputError(f"{path}: a run set of mlbench itself; `mlbench db rebuild` reads those")
        tree = scan_tree(path, round_name=given_round)
        folders += tree.folders
        outcome.unreadable += tree.unreadable
        if not tree.folders and not tree.unreadable:
            raise InputError(f"{path}: no result logs here; result_*.txt with MLLOG records were expected")
    if folders:
        _save_all(open_database(db), folders, outcome)
    if as_json:
        _print_json(outcome)
    else:
        _print_table(outcome)
    if outcome.unreadable:
        raise typer.Exit(EXIT_UNREADABLE)


def _save_all(engine: Engine, folders: list[ResultFolder], outcome: _Outcome) -> None:
    from mlbench.ingest.published import import_folder
    from mlbench.store.repository import save_run_set

    for folder in _with_progress(folders):
        imported = import_folder(folder)
        outcome.unreadable += imported.unreadable
        for run_set in imported.run_sets:
            outcome.saved.append((run_set, save_run_set(engine, run_set)))


def _read_bundles(engine: Engine, paths: list[Path], outcome: _Outcome) -> None:
    from mlbench.ingest.bundle import read_bundle
    from mlbench.plan.paths import home

    for path in paths:
        report = read_bundle(engine, path, home() / "runs", home() / "imports")
        outcome.saved += report.saved
        outcome.unreadable += [
            f"{path}: {name}: another run set of this id is here, with other content; ours was left alone"
            for name in report.conflicts
        ]


def _with_progress(folders: list[ResultFolder]) -> Iterable[ResultFolder]:
    """The same folders, with a bar on a terminal and a line now and then elsewhere; both on stderr."""
    if sys.stderr.isatty():
        from rich.progress import track

        from mlbench.cli.console import make_console

        return track(folders, description="importing", console=make_console(stderr=True), transient=True)
    return _plain_progress(folders)


def _plain_progress(folders: list[ResultFolder]) -> Iterator[ResultFolder]:
    for number, folder in enumerate(folders):
        if number and number % PLAIN_PROGRESS_EVERY == 0:
            print(f"importing: {number} of {count_of(len(folders), 'folder')}", file=sys.stderr, flush=True)
        yield folder


def _row(run_set: RunSet, saved: SaveOutcome) -> dict[str, Any]:
    return {
        "run_set": run_set.run_set,
        "outcome": saved.value,
        "round": run_set.round,
        "org": run_set.org,
        "system": run_set.system,
        "benchmark": run_set.benchmark,
        "num_runs": run_set.num_runs,
        "num_converged": run_set.num_converged,
        "score_s": run_set.score_s,
        "score_status": run_set.score_status,
        "score_reason": run_set.score_reason,
        "olympic_mean_s": run_set.olympic_mean_s,
        "mean_s": run_set.mean_s,
        "num_notes": len(run_set.notes),
    }


def _print_json(outcome: _Outcome) -> None:
    from mlbench.cli.console import print_json

    rows = [_row(run_set, saved) for run_set, saved in outcome.saved]
    print_json({"imported": rows, "unreadable": outcome.unreadable})


def _print_table(outcome: _Outcome) -> None:
    from mlbench.cli.console import add_row, make_console, make_table, print_text

    columns = ["run set", "round", "org", "system", "minutes", "status", "converged", "notes", "database"]
    table = make_table(columns, right=("minutes", "converged", "notes"))
    for run_set, saved in outcome.saved:
        minutes = None if run_set.score_s is None else f"{run_set.score_s / 60:.5f}"
        converged = f"{run_set.num_converged} of {run_set.num_runs}"
        status, num_notes = run_set.score_status, len(run_set.notes)
        cells = (run_set.run_set, run_set.round, run_set.org, run_set.system, minutes, status, converged)
        add_row(table, (*cells, num_notes, saved.value))
    if outcome.saved:
        make_console().print(table)
    for run_set, _ in outcome.saved:
        if run_set.score_status != "valid":
            print_text(f"{run_set.run_set}: {run_set.score_status}, not a score: {run_set.score_reason}")
    for sentence in outcome.unreadable:
        print_text(f"not read: {sentence}", stderr=True)
    counts = {value: sum(saved.value == value for _, saved in outcome.saved) for value in _OUTCOMES}
    said = ", ".join(f"{count} {value}" for value, count in counts.items() if count) or "nothing stored"
    runs = sum(run_set.num_runs for run_set, _ in outcome.saved)
    unread = f"; {len(outcome.unreadable)} could not be read" if outcome.unreadable else ""
    print_text(f"{count_of(len(outcome.saved), 'run set')} with {count_of(runs, 'run')}: {said}{unread}.")


_OUTCOMES = ("inserted", "replaced", "unchanged")
