"""`mlbench doctor`: preflight alone, every check with what was found and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mlbench.cli.console import add_row, make_console, make_table, print_json, print_text
from mlbench.cli.main import verb_app
from mlbench.cli.options import ConfigDirOption, JsonOption, OverridesArgument, tell_repeats
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.preflight.check import Check

app = verb_app()

EXIT_CANNOT_RUN = 2
_STYLES = {"pass": "green", "fail": "red", "not checked": "yellow"}


@app.command()
def doctor(
    overrides: OverridesArgument = None,
    config_dir: ConfigDirOption = None,
    json: JsonOption = False,
) -> None:
    """Check whether this machine can run what is asked; nothing is launched. Status 2 when a run would be refused."""
    from mlbench.compose import compose
    from mlbench.plan.make import make_plan
    from mlbench.preflight.checks import check_all
    from mlbench.preflight.machine import probe_machine

    tell_repeats(overrides or [])
    machine = probe_machine()
    checks = check_all(make_plan(compose(overrides or [], config_dir), machine), machine)
    refused = [check for check in checks if check.required and check.outcome.value == "fail"]
    if json:
        print_json({"can_run": not refused, "checks": [_values(check) for check in checks]})
    else:
        _print(checks, refused)
    if refused:
        raise typer.Exit(EXIT_CANNOT_RUN)


def _values(check: Check) -> dict[str, object]:
    return {
        "check": check.name,
        "outcome": check.outcome.value,
        "required": check.required,
        "found": check.found,
        "remedy": check.remedy,
    }


def _print(checks: list[Check], refused: list[Check]) -> None:
    table = make_table(["check", "outcome", "found", "what to do"], title="Preflight")
    for check in checks:
        outcome = check.outcome.value if check.required or check.outcome.value != "fail" else "fail (not required)"
        style = _STYLES[check.outcome.value] if check.required else None
        add_row(table, (check.name, outcome, check.found, check.remedy or ""), style=style)
    make_console().print(table)
    if refused:
        print_text(f"This machine cannot run it: {len(refused)} of {count_of(len(checks), 'check')} failed.")
    else:
        print_text("This machine can run it.")
