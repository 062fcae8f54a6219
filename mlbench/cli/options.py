"""Options that several verbs share, so that they are called and explained alike everywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mlbench.cli.console import escape_control

DbOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="Database: a file or a URL; without it MLBENCH_DB_URL, else db/mlbench.sqlite of MLBENCH_HOME or of this "
        "folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: stable keys, SI base units.")]
ConfigDirOption = Annotated[
    Path | None, typer.Option("--config-dir", help="Folder of profiles of your own, besides ./conf.")
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="KEY=VALUE, +hardware=PROFILE; as for a run.", show_default=False)
]


def tell_repeats(overrides: Sequence[str]) -> None:
    """Say on stderr which keys are given more than once, and what counts. Raises ConfigError as `repeats`."""
    from mlbench.overrides import repeats

    for sentence in repeats(overrides):
        sys.stderr.write(f"mlbench: {escape_control(sentence)}\n")
