"""The verbs that run: `run` (also the default), `resume` and `reproduce`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlbench.cli.console import escape_control, print_json
from mlbench.cli.main import verb_app
from mlbench.cli.options import ConfigDirOption, OverridesArgument, tell_repeats

if TYPE_CHECKING:
    from mlbench.cli.run_progress import Guarded
    from mlbench.config import Config
    from mlbench.plan.machine import Machine
    from mlbench.runner.interrupt import StopRequest
    from mlbench.runner.outcome import SeriesResult
    from mlbench.runner.ready import Ready
    from mlbench.runner.sweep import SweepPoint

app = verb_app()
resume_app = verb_app()
reproduce_app = verb_app()

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end; progress goes to stderr.")]
Database = Annotated[str | None, typer.Option("--db", metavar="URL", help="Database instead of the run set's own.")]
RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Folder of the run sets instead of ./runs.")]
RunSetName = Annotated[str, typer.Argument(metavar="RUN_SET", help="Id, the beginning or end of one, or its folder.")]


@app.command()
def run(
    overrides: OverridesArgument = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="One run set for each value of gpus=8,16,32, and a scaling table.")
    ] = False,
    config_dir: ConfigDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Run a run set: preflight, the stages, score and verdict; all of it on disk and in the database."""
    from mlbench.compose import compose
    from mlbench.preflight.machine import probe_machine

    given = list(overrides or [])
    tell_repeats(given)
    machine = probe_machine()
    if multirun:
        raise typer.Exit(_sweep(given, config_dir, machine, as_json))
    ready = _ready(compose(given, config_dir), machine)
    raise typer.Exit(_single(ready, as_json))


@resume_app.command()
def resume(
    run_set: RunSetName,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although software or hardware differ; it is recorded.")
    ] = False,
    db: Database = None,
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Run only what is missing of a run set: the same configuration, fresh seeds."""
    from mlbench.preflight.machine import probe_machine
    from mlbench.runner.interrupt import StopRequest
    from mlbench.runner.resume import resume_series
    from mlbench.runner.stored import open_stored

    stored = open_stored(run_set, runs_dir=runs_dir, url=db)
    ready = _ready(stored.config, probe_machine())
    listener = _listener(as_json)
    try:
        result = resume_series(
            stored.folder,
            ready,
            command_line=_command_line(),
            listener=listener,
            stop=StopRequest(),
            force=force,
        )
    finally:
        listener.close()
    raise typer.Exit(_show(result, as_json))


@reproduce_app.command()
def reproduce(
    run_set: RunSetName,
    db: Database = None,
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a stored configuration again as a new run set, and say whether it came out within the old one's spread."""
    from mlbench.preflight.machine import probe_machine
    from mlbench.runner.reproduce import reproduce_stored
    from mlbench.runner.stored import open_stored

    stored = open_stored(run_set, runs_dir=runs_dir, url=db)
    ready = _ready(stored.config, probe_machine())
    result = _start(ready, as_json, reproduces=stored.identity.run_set)
    reproduction = reproduce_stored(stored, result, ready.volatile)
    if as_json:
        from mlbench.cli.run_table import reproduction_json, result_json

        status = reproduction.exit_status(result.exit_status)
        print_json(result_json(result) | {"reproduction": reproduction_json(reproduction), "exit_status": status})
        raise typer.Exit(status)
    from mlbench.cli.run_table import reproduction_lines

    _print(_result_text(result))
    _print("\n".join(reproduction_lines(reproduction)))
    _print(f"\n{reproduction.last_line(result.exit_status, result.last_line)}")
    raise typer.Exit(reproduction.exit_status(result.exit_status))


def _ready(config: Config, machine: Machine) -> Ready:
    from mlbench.runner.ready import make_ready, plan_here

    return make_ready(plan_here(config, machine), machine)


def _single(ready: Ready, as_json: bool) -> int:
    return _show(_start(ready, as_json), as_json)


def _start(
    ready: Ready,
    as_json: bool,
    *,
    reproduces: str | None = None,
    sweep: str | None = None,
    stop: StopRequest | None = None,
) -> SeriesResult:
    from mlbench.runner.interrupt import StopRequest
    from mlbench.runner.series import start_series

    listener = _listener(as_json)
    try:
        return start_series(
            ready,
            command_line=_command_line(),
            listener=listener,
            stop=stop or StopRequest(),
            reproduces=reproduces,
            sweep=sweep,
        )
    finally:
        listener.close()


def _show(result: SeriesResult, as_json: bool) -> int:
    if as_json:
        from mlbench.cli.run_table import result_json

        print_json(result_json(result))
    else:
        _print(f"{_result_text(result)}\n\n{result.last_line}")
    return result.exit_status


def _sweep(overrides: list[str], config_dir: Path | None, machine: Machine, as_json: bool) -> int:
    """Every point is planned and made ready before the first one is started."""
    from datetime import UTC, datetime

    from mlbench.compose import compose, expand_sweep
    from mlbench.runner.interrupt import StopRequest
    from mlbench.runner.ready import make_ready, plan_here
    from mlbench.runner.sweep import new_sweep_id, run_points, sweep_labels

    points = expand_sweep(overrides)
    plans = [plan_here(compose(point, config_dir), machine) for point in points]
    readies = [make_ready(plan, machine) for plan in plans]
    sweep, stop = new_sweep_id(datetime.now(UTC)), StopRequest()
    done: list[SweepPoint] = run_points(
        [
            (label, lambda ready=ready: _start(ready, as_json, sweep=sweep, stop=stop))  # type: ignore[misc]
            for label, ready in zip(sweep_labels(points), readies, strict=True)
        ],
        on_result=lambda point: (
            None if as_json else _print(f"{_result_text(point.result)}\n\n{point.result.last_line}")
        ),
    )
    return _show_sweep(sweep, done, len(points), as_json)


def _show_sweep(sweep: str, done: list[SweepPoint], num_points: int, as_json: bool) -> int:
    from mlbench.cli.run_table import result_json, scaling_json, scaling_lines
    from mlbench.runner.sweep import scaling_rows, sweep_last_line, sweep_status

    rows = scaling_rows(done)
    status = sweep_status(done)
    if as_json:
        points = [{"label": point.label, **result_json(point.result)} for point in done]
        print_json({"sweep": sweep, "points": points, "scaling": scaling_json(rows), "exit_status": status})
    else:
        _print("\n" + "\n".join(scaling_lines(rows)))
        _print(f"\n{sweep_last_line(done, num_points)}")
    return status


def _result_text(result: SeriesResult) -> str:
    from mlbench.cli.run_table import result_text

    return result_text(result, shown_path=_shown(result.folder.path))


def _shown(path: Path) -> str:
    """Relative to the current folder when it lies below it, and when that is still there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _listener(as_json: bool) -> Guarded:
    from mlbench.cli.run_progress import make_listener

    return make_listener(sys.stderr if as_json else sys.stdout)


def _command_line() -> list[str]:
    return [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119 - argv[0] need not be a path


def _print(text: str) -> None:
    sys.stdout.write(escape_control(text) + "\n")
