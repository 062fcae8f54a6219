"""`mlbench report`: run sets as a page, Markdown, plots and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlbench.analyse.sizing import DEFAULT_HEADROOM
from mlbench.cli.main import verb_app
from mlbench.cli.options import ConfigDirOption, DbOption
from mlbench.errors import ConfigError, MlbenchError, near_miss
from mlbench.wording import count_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mlbench.publish.charts import PlotFormat
    from mlbench.publish.report import Material, RunTelemetry
    from mlbench.publish.sizing import SizingAnswer
    from mlbench.store.tables import RunSet

app = verb_app()
_DEFAULT_FORMATS = "svg,png,pdf"


@app.command()
def report(
    run_sets: Annotated[
        list[str], typer.Argument(help="Ids, their beginnings, `latest`, `latest~1`; several stand side by side.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the report: new, empty, or an earlier one.")
    ],
    formats: Annotated[
        str,
        typer.Option(
            "--formats", metavar="LIST", help="Files of each plot: svg, png, pdf, html (interactive), or none."
        ),
    ] = _DEFAULT_FORMATS,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="COMPUTE,STORAGE", help="Profiles for the sizing, as dgxa100,f800."),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check the files against their ruleset.")] = True,
    config_dir: ConfigDirOption = None,
    db: DbOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write DIR/report.html, report.md, plots/ and csv/: verdict, plots, tables, findings, materials, commands.

    The page holds everything it shows, asks no network and can be sent as one file. A plot without data is not drawn;
    the report says which and why.
    """
    import shlex
    from datetime import UTC, datetime

    from mlbench.publish.report import build_report, refuse_foreign, write_folder
    from mlbench.store.engine import open_database
    from mlbench.store.repository import find_run_set, load_run_sets

    chosen = _formats(formats)
    target = out.absolute()
    refuse_foreign(target)
    engine = open_database(db, readonly=True)
    names = [find_run_set(engine, text) for text in run_sets]
    if len(set(names)) < len(names):
        raise ConfigError(f"report: {', '.join(names)} names one run set twice; name different ones")
    materials = [
        _material(engine, run_set, hardware=hardware, config_dir=config_dir, check=check)
        for run_set in load_run_sets(engine, names)
    ]
    options = ["--formats", formats] if formats != _DEFAULT_FORMATS else []
    options += ["--hardware", hardware] if hardware is not None else []
    command = shlex.join(["mlbench", "report", *names, "--out", str(out), *options])
    built = build_report(materials, formats=chosen, made_at=datetime.now(UTC), command=command)
    about: dict[str, object] = {"run_sets": names, "made": built.report.made}
    write_folder(target, built.files, about)
    plots = [figure.key for figure in built.report.figures]
    missing = built.report.missing
    size_bytes = len(built.files["report.html"])
    if as_json:
        from mlbench.cli.console import print_json

        print_json(
            {
                "path": str(target),
                "run_sets": names,
                "html": str(target / "report.html"),
                "html_bytes": size_bytes,
                "files": sorted(built.files),
                "plots": plots,
                "missing": [{"plot": title, "reason": reason} for title, reason in missing],
                "verdicts": [verdict.headline for verdict in built.report.verdicts],
            }
        )
        return
    from mlbench.cli.console import print_text

    if built.report.banner:
        print_text(built.report.banner, style="bold red")
    for verdict in built.report.verdicts:
        print_text(verdict.headline, style="bold")
    for title, reason in missing:
        print_text(f"not shown: {title}: {reason}")
    print_text(f"written: {count_of(len(plots), 'plot')}, {count_of(len(built.files), 'file')} in {out}")
    print_text(f"open {out / 'report.html'} ({size_bytes / 1e6:.1f} MB, works without a network)")


def _formats(text: str) -> list[PlotFormat]:
    """`svg,png` as formats; `none` for no files beside the page."""
    from mlbench.publish.charts import PlotFormat

    known = [form.value for form in PlotFormat]
    words = list(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if words == ["none"]:
        return []
    for word in words:
        if word not in known:
            raise ConfigError(
                f"--formats: found {word!r}, expected some of {', '.join(known)}, or none{near_miss(word, known)}"
            )
    return [PlotFormat(word) for word in words]


def _material(
    engine: Engine, run_set: RunSet, *, hardware: str | None, config_dir: Path | None, check: bool
) -> Material:
    from mlbench.publish.report import Material, compliance_of, not_checked

    telemetry = _telemetry(engine, run_set)
    sizing, reason = _sizing(run_set, hardware, config_dir)
    if run_set.rehearsal:
        why = "a rehearsal trains nothing"
    elif run_set.origin == "import":
        why = "published logs hold no telemetry"
    else:
        why = "no run of this set recorded telemetry"
    return Material(
        run_set=run_set,
        compliance=compliance_of(run_set) if check else not_checked("--no-check"),
        telemetry=telemetry,
        telemetry_reason=why,
        sizing=sizing,
        sizing_reason=reason,
    )


def _telemetry(engine: Engine, run_set: RunSet) -> RunTelemetry | None:
    """Time lines of the run that stands for the set best, of those that have some."""
    from mlbench.publish.report import RunTelemetry, candidates
    from mlbench.store.repository import telemetry_of

    for run in candidates(run_set):
        series = telemetry_of(engine, run.id)
        if series:
            return RunTelemetry(run=run, series=series)
    return None


def _sizing(run_set: RunSet, hardware: str | None, config_dir: Path | None) -> tuple[SizingAnswer | None, str]:
    """Storage for this run set's rate; the reason when it cannot be said. `hardware` given and unusable is an error."""
    from mlbench.publish.report.sizing import profiles_of, sizing_of

    if hardware is None:
        return sizing_of(run_set, profiles_of(run_set), headroom=DEFAULT_HEADROOM)
    from mlbench.compose import compose

    names = ",".join(name.strip() for name in hardware.split(",") if name.strip())
    composed = compose([f"+hardware=[{names}]"], config_dir).hardware
    if composed.compute is None or composed.storage is None:
        raise ConfigError(f"--hardware {hardware!r}: expected a compute and a storage profile, as dgxa100,f800")
    try:
        return sizing_of(run_set, (composed.compute, composed.storage), headroom=DEFAULT_HEADROOM)
    except MlbenchError as error:
        raise ConfigError(f"--hardware {hardware!r}: {error}") from error
