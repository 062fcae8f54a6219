"""`mlbench baseline`: names for run sets that others are compared with."""

from __future__ import annotations

from typing import Annotated

import typer

from mlbench.cli.main import verb_app
from mlbench.cli.options import DbOption, JsonOption
from mlbench.errors import ConfigError, near_miss

app = verb_app("Name and pin run sets to compare against.")


@app.command("pin")
def pin(
    name: Annotated[str, typer.Argument(help="The baseline's name, as release-3.")],
    run_set: Annotated[str, typer.Argument(help="Id, its beginning, `latest` or `latest~1`.")],
    db: DbOption = None,
) -> None:
    """Give a run set a name; a name that was given before moves."""
    from mlbench.cli.console import print_text
    from mlbench.store.engine import open_database
    from mlbench.store.repository import find_run_set, pin_baseline

    engine = open_database(db)
    public_id = find_run_set(engine, run_set)
    pin_baseline(engine, name, public_id)
    print_text(f"{name}: {public_id}")


@app.command("list")
def list_(as_json: JsonOption = False, db: DbOption = None) -> None:
    """Every baseline and the run set it names."""
    from mlbench.cli.console import add_row, make_console, make_table, print_json, print_text
    from mlbench.store.engine import open_database
    from mlbench.store.repository import baselines
    from mlbench.store.summary import iso_utc

    found = baselines(open_database(db, readonly=True))
    if as_json:
        print_json([{"name": n, "run_set": r, "pinned_at": iso_utc(at)} for n, (r, at) in found.items()])
        return
    if not found:
        print_text("no baseline is pinned; `mlbench baseline pin NAME RUN_SET` pins one")
        return
    table = make_table(("baseline", "run set", "pinned"))
    for name, (run_set, moment) in found.items():
        add_row(table, (name, run_set, iso_utc(moment)))
    make_console().print(table)


@app.command("drop")
def drop(name: Annotated[str, typer.Argument(help="The baseline's name.")], db: DbOption = None) -> None:
    """Forget a name; the run set stays."""
    from mlbench.cli.console import print_text
    from mlbench.store.engine import open_database
    from mlbench.store.repository import baselines, unpin_baseline

    engine = open_database(db)
    if not unpin_baseline(engine, name):
        known = baselines(engine)
        raise ConfigError(
            f"baseline {name!r} is not pinned{near_miss(name, known) or '.'} Known: {', '.join(known) or 'none'}"
        )
    print_text(f"{name}: forgotten")
