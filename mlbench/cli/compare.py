"""`mlbench compare`: run sets and published systems side by side, and a gate for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlbench.cli.main import verb_app
from mlbench.cli.options import DbOption, JsonOption
from mlbench.errors import ConfigError, near_miss

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mlbench.analyse.compare import Comparison
    from mlbench.publish.comparison import SideBySide
    from mlbench.store.tables import RunSet

app = verb_app()
EXIT_WORSE = 4


@app.command()
def compare(
    run_sets: Annotated[
        list[str], typer.Argument(help="Ids, their beginnings, `latest`, `latest~1`; the first is the base.")
    ],
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME", help="Compare against this pinned run set.")
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option("--tolerance", metavar="PERCENT", help="As 2%: exit 4 when worse by more than this.")
    ] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Speed-up and efficiency over numbers of ranks.")] = False,
    storage: Annotated[
        bool, typer.Option("--storage", help="What each run set's model asks of storage, from measured rates.")
    ] = False,
    as_json: JsonOption = False,
    db: DbOption = None,
) -> None:
    """Each metric with n good of n asked, mean, spread, ratio, 95 % interval and verdict; what differs; the noise.

    The verdict comes from an exact permutation test at 5 %, made for few runs; "within noise" means that these runs
    cannot tell the two apart, not that they are equal. Exit status 4 when worse by more than --tolerance.
    """
    from mlbench.store.engine import open_database
    from mlbench.store.repository import find_run_set, load_run_sets

    limit = None if tolerance is None else parse_percent(tolerance)
    engine = open_database(db, readonly=True)
    names = [find_run_set(engine, text) for text in run_sets]
    if baseline is not None:
        names.insert(0, _pinned(engine, baseline))
    if len(set(names)) < len(names):
        raise ConfigError(f"compare: {', '.join(names)} names one run set twice; name different ones")
    loaded = load_run_sets(engine, names, telemetry=storage)
    if storage:
        _storage(loaded, as_json)
        return
    if scaling:
        _scaling(loaded, as_json)
        return
    if len(names) < 2:
        raise ConfigError("compare: one run set alone; name another, or a pinned one with --baseline NAME")
    raise typer.Exit(_show(loaded, limit, as_json))


def _pinned(engine: Engine, name: str) -> str:
    from mlbench.store.repository import baselines

    known = baselines(engine)
    if name not in known:
        raise ConfigError(
            f"--baseline: {name!r} is not pinned{near_miss(name, known) or '.'} Known: {', '.join(known) or 'none'}; "
            f"`mlbench baseline pin {name} RUN_SET` pins one"
        )
    return known[name][0]


def parse_percent(text: str) -> float:
    """`2%`, `2 %` or `2` as 0.02. Raises ConfigError."""
    try:
        value = float(text.strip().removesuffix("%").strip()) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(f"--tolerance: found {text!r}, expected a percentage from 0 to below 100, as 2%")
    return value


def _show(loaded: list[RunSet], limit: float | None, as_json: bool) -> int:
    from mlbench.publish.comparison import side_by_side

    base, *others = loaded
    found = [side_by_side(base, other) for other in others]
    gates = [gate_sentence(item.main, limit) for item in found] if limit is not None else []
    worse = any(bad for bad, _ in gates)
    if as_json:
        from mlbench.cli.console import print_json

        comparisons = [_json(item) for item in found]
        for comparison, (bad, sentence) in zip(comparisons, gates, strict=False):
            comparison["gate"] = {"tolerance": limit, "passed": not bad, "sentence": sentence}
        print_json({"base": base.run_set, "comparisons": comparisons})
        return EXIT_WORSE if worse else 0
    from mlbench.cli.compare_tables import print_side_by_side
    from mlbench.cli.console import print_text

    for item in found:
        print_side_by_side(item)
    for bad, sentence in gates:
        print_text(sentence, style="bold red" if bad else None)
    return EXIT_WORSE if worse else 0


def gate_sentence(main: Comparison, limit: float) -> tuple[bool, str]:
    """Whether the gate is shut, and why. What cannot be compared does not pass."""
    worsening = main.worsening
    if worsening is None:
        return True, f"Not within tolerance: {main.metric.label} cannot be compared: {main.reason}."
    noise = "" if main.outcome.value in ("better", "worse") else f"; {main.outcome.value}"
    if worsening > limit:
        return True, f"Not within tolerance: {main.metric.label} {main.in_words}, allowed {limit:.1%}{noise}."
    return False, f"Within tolerance: {main.metric.label} {main.in_words}, allowed {limit:.1%} worse{noise}."


def _json(item: SideBySide) -> dict[str, Any]:
    return {
        "run_set": item.other.run_set,
        "verdict": item.main.verdict,
        "metric": item.main.metric.key,
        "metrics": [_metric_json(found) for found in item.comparisons],
        "explanation": item.explanation,
        "warnings": list(item.warnings),
        "differs": {
            section: [{"key": d.key, "base": d.base, "other": d.other} for d in differences]
            for section, differences in item.differs.items()
        },
        "outliers": {
            name: [
                {
                    "run": outlier.position,
                    "time_excess": outlier.time_excess,
                    "cause": outlier.cause.value if outlier.cause else None,
                }
                for outlier in outliers
            ]
            for name, outliers in (("base", item.base_outliers), ("other", item.other_outliers))
        },
    }


def _metric_json(found: Comparison) -> dict[str, Any]:
    def side(sample: Any) -> dict[str, Any]:
        return {"n_good": len(sample.values), "n_asked": sample.num_asked, "mean": sample.mean, "cv": sample.cv}

    return {
        "metric": found.metric.key,
        "unit": found.metric.unit,
        "direction": found.metric.direction.value,
        "base": side(found.base),
        "other": side(found.other),
        "ratio": found.ratio,
        "interval": list(found.interval) if found.interval else None,
        "p_value": found.p_value,
        "change": found.in_words,
        "verdict": found.verdict,
        "reason": found.reason,
    }


def _scaling(loaded: list[RunSet], as_json: bool) -> None:
    from mlbench.analyse.scaling import scaling_table, serial_fraction
    from mlbench.cli.console import print_json, print_text
    from mlbench.cli.run_table import scaling_json, scaling_lines
    from mlbench.publish.comparison import scaling_point

    rows = scaling_table([point for run_set in loaded if (point := scaling_point(run_set)) is not None])
    if not rows:
        raise ConfigError("compare --scaling: none of these run sets says how many ranks or accelerators it had")
    fraction = serial_fraction(rows)
    if as_json:
        print_json({"scaling": scaling_json(rows), "serial_fraction": fraction})
        return
    for line in scaling_lines(rows):
        print_text(line)
    if fraction is not None:
        print_text(f"Serial fraction (Amdahl, fitted to the speed-ups): {fraction:.4f}")


def _storage(loaded: list[RunSet], as_json: bool) -> None:
    from mlbench.cli.console import print_json
    from mlbench.publish.storage_profile import storage_profile

    rows = [storage_profile(run_set) for run_set in loaded]
    if as_json:
        print_json(
            [
                {
                    "run_set": row.run_set,
                    "model": row.model,
                    "samples_per_s": row.samples_per_s,
                    "mean_sample_bytes": row.mean_sample_bytes,
                    "expected_bytes_per_s": row.consistency.expected_bytes_per_s if row.consistency else None,
                    "measured_bytes_per_s": row.consistency.measured_bytes_per_s if row.consistency else None,
                    "difference": row.consistency.difference if row.consistency else None,
                    "operations_per_s": row.operations_per_s,
                    "mean_operation_bytes": row.mean_operation_bytes,
                }
                for row in rows
            ]
        )
        return
    from mlbench.cli.compare_tables import print_storage_profile

    print_storage_profile(rows)
