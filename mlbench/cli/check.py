"""`mlbench check PATH|RUN_SET`: findings and verdict. Status 0 compliant, 4 not compliant or nothing checked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlbench.cli.main import verb_app

if TYPE_CHECKING:
    from mlbench.check.checker import Report

app = verb_app()
EXIT_NOT_COMPLIANT = 4


@app.command()
def check(
    path: Annotated[str, typer.Argument(help="A log, a result folder, a submission tree, a repository, or a run set.")],
    ruleset: Annotated[
        str | None,
        typer.Option(help="For example 4.0.0; default: the run set's own, or the round of the tree, else 4.0.0."),
    ] = None,
    division: Annotated[
        str | None, typer.Option(help="Division that the results must be of: closed or open; default: the logged one.")
    ] = None,
    format: Annotated[str, typer.Option(help="text, json, junit or github.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Check logs or a run set against the rules of MLPerf Training and mlbench's own; nothing is written."""
    from mlbench.check.checker import check as run_check
    from mlbench.check.finding import Verdict
    from mlbench.check.formats import Format
    from mlbench.check.rulesets import parse_division, parse_ruleset
    from mlbench.errors import ConfigError, near_miss

    known = [item.value for item in Format]
    if format not in known:
        raise ConfigError(f"--format {format!r} is not known; known are {', '.join(known)}{near_miss(format, known)}")
    chosen = Format.json if json else Format(format)
    report = run_check(
        resolve(path),
        ruleset=parse_ruleset(ruleset) if ruleset is not None else None,
        division=parse_division(division) if division is not None else None,
    )
    _print(report, chosen)
    if report.verdict is not Verdict.compliant:
        raise typer.Exit(EXIT_NOT_COMPLIANT)


def resolve(name: str) -> Path:
    """The path meant by a path, or by a run set as the database or the runs folder knows it.

    Raises: InputError: it is neither.
    """
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    from mlbench.errors import InputError
    from mlbench.plan.paths import home
    from mlbench.runner.identity import find_run_folder

    try:
        return find_run_folder(name, home() / "runs").path
    except InputError as error:
        stored = _stored_path(name)
        if stored is None:
            raise InputError(f"{name}: no such file or folder; {error}") from error
        return stored


def _stored_path(name: str) -> Path | None:
    """Where the database says that the files of a run set are; None when it knows none of that name.

    Raises InputError: it knows the run set, but the files are not on this machine."""
    from mlbench.errors import InputError, StoreError
    from mlbench.store.engine import open_database
    from mlbench.store.repository import load_run_set

    try:
        engine = open_database(readonly=True)
        found = load_run_set(engine, name)
    except (InputError, StoreError):
        return None
    if found.path is not None and Path(found.path).exists():
        return Path(found.path)
    where = f" ({found.path})" if found.path is not None else ""
    raise InputError(
        f"{found.run_set}: is in the database, but its files{where} are not on this machine; do it where they are, or "
        "bring them here with `mlbench results export --bundle` and `mlbench import --bundle`"
    )


def _print(report: Report, chosen: object) -> None:
    from mlbench.check import formats
    from mlbench.check.finding import Severity
    from mlbench.cli.console import escape_control, print_json

    if chosen is formats.Format.json:
        print_json(formats.json_value(report))
    elif chosen is formats.Format.junit:
        typer.echo(formats.junit_xml(report), nl=False)
    elif chosen is formats.Format.github:
        for line in formats.github_lines(report, Path.cwd()):
            typer.echo(escape_control(line))
    elif sys.stdout.isatty():
        from mlbench.cli.console import make_console

        styles = {Severity.error: "red", Severity.warning: "yellow", Severity.note: "dim"}
        console = make_console()
        for text, severity in formats.text_lines(report):
            style = styles[severity] if severity is not None else None
            console.print(escape_control(text), style=style, soft_wrap=True)
    else:
        # a pipe has no colours, and a gate in CI need not wait for the library that makes them
        for text, _ in formats.text_lines(report):
            typer.echo(escape_control(text))
