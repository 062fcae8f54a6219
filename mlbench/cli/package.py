"""`mlbench package RUN_SET... --org X --out DIR`: a submission tree. Status 4 when something is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlbench.cli.main import verb_app
from mlbench.wording import count_of

app = verb_app()


@app.command()
def package(
    run_sets: Annotated[list[str], typer.Argument(help="Run sets: ids, or folders runs/<id>.")],
    out: Annotated[Path, typer.Option(help="Folder of the package; the tree becomes OUT/<org>.")],
    org: Annotated[
        str | None, typer.Option(help="The submitter; must equal what was logged, or fills in `unnamed`.")
    ] = None,
    include: Annotated[
        Path | None, typer.Option(help="Folder with more files for the implementation, for example a Dockerfile.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the system description, as you know it better; can be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Build a submission tree from run sets; nothing is written when anything is refused."""
    from mlbench.cli.check import resolve
    from mlbench.cli.console import print_json, print_text
    from mlbench.collect.runfolder import RunFolder
    from mlbench.errors import InputError
    from mlbench.publish.package import package as build

    folders: list[RunFolder] = []
    for name in run_sets:
        folder = RunFolder(resolve(name).absolute())
        if not folder.identity.is_file():
            raise InputError(
                f"{name}: not a run set of mlbench (no run_set.json in it); mlbench results list shows them"
            )
        folders.append(folder)
    made = build(folders, out=out.absolute(), org=org, include=include, given=_fields(field or []))
    if json:
        print_json(
            {
                "path": str(made.root),
                "org": made.org,
                "systems": list(made.systems),
                "num_files": made.num_files,
                "notes": list(made.notes),
            }
        )
        return
    for note in made.notes:
        print_text(f"note: {note}")
    print_text(f"packaged: {count_of(len(made.systems), 'system')}, {count_of(made.num_files, 'file')} in {made.root}")
    print_text(f"next: mlbench check {made.root}")


def _fields(texts: list[str]) -> dict[str, str]:
    from mlbench.errors import ConfigError

    given: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not value.strip():
            raise ConfigError(f"--field {text!r}: expected NAME=VALUE, for example --field cooling=air")
        given[name.strip()] = value.strip()
    return given
