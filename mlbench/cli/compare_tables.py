"""The comparison as a reader sees it: the verdict first, then the numbers, then what explains and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlbench.cli.console import add_row, make_console, make_table, print_text

if TYPE_CHECKING:
    from mlbench.analyse.compare import Comparison, Difference, Outlier, Sample
    from mlbench.publish.comparison import SideBySide
    from mlbench.publish.storage_profile import StorageProfileRow
    from mlbench.store.tables import RunSet

_MAX_DIFFERENCES = 30
_MAX_VALUE = 60


def print_side_by_side(item: SideBySide) -> None:
    """Base on the left. Means are over good runs; the n beside each says over how many of how many."""
    print_text(f"base   {describe(item.base)}")
    print_text(f"other  {describe(item.other)}")
    for warning in item.warnings:
        print_text(f"warning: {warning}", style="yellow")
    main = item.main
    style = {"better": "bold green", "worse": "bold red"}.get(main.outcome.value, "bold")
    print_text()
    print_text(f"{main.metric.label}: {verdict_sentence(main)}", style=style)
    if item.explanation is not None:
        print_text(item.explanation)
    table = make_table(("metric", "base", "other", "change", "95 % interval", "verdict"), right=("base", "other"))
    for found in item.comparisons:
        if not found.base.values and not found.other.values:
            continue
        interval = f"{found.interval[0]:.4f} to {found.interval[1]:.4f}" if found.interval else "-"
        add_row(
            table,
            (
                found.metric.label,
                cell(found.base, found.metric.unit),
                cell(found.other, found.metric.unit),
                found.in_words,
                interval,
                found.verdict,
            ),
        )
    make_console().print(table)
    for name, run_set, outliers in (
        ("base", item.base, item.base_outliers),
        ("other", item.other, item.other_outliers),
    ):
        _print_outliers(name, run_set, outliers)
    _print_differences(item.differs)


def verdict_sentence(found: Comparison) -> str:
    """`21.2 % faster (p = 0.008)`, or why nothing can be said."""
    if found.outcome.value in ("better", "worse"):
        return f"{found.in_words} (permutation test, p = {found.p_value:.3f})"
    if found.outcome.value == "n/a":
        return found.in_words
    reason = f"p = {found.p_value:.3f}" if found.p_value is not None else found.reason
    return f"{found.verdict}: means {found.in_words}, {reason}"


def describe(run_set: RunSet) -> str:
    score = f"score {run_set.score_s / 60:.3f} min" if run_set.score_s is not None else run_set.score_status
    parts = [run_set.system, run_set.benchmark, run_set.division, score]
    return f"{run_set.run_set} ({', '.join(part for part in parts if part)})"


def cell(sample: Sample, unit: str) -> str:
    """`2182.2 s ± 0.1 % (5/5)`; `-` when nothing was measured."""
    mean = sample.mean
    if mean is None:
        return f"- (0/{sample.num_asked})"
    value, shown = (mean / 1e9, "GB/s") if unit == "bytes/s" else (mean, unit)
    spread = "" if sample.cv is None else f" ± {sample.cv * 100:.2f} %"
    return f"{value:,.5g} {shown}{spread} ({len(sample.values)}/{sample.num_asked})".replace(" samples/s", "/s")


def _print_outliers(name: str, run_set: RunSet, outliers: Sequence[Outlier]) -> None:
    for outlier in outliers:
        cause = outlier.cause.value if outlier.cause else "the log does not tell epochs, so the cause is not known"
        print_text(
            f"{name}: good run number {outlier.position} of {run_set.run_set} took {outlier.time_excess:.1%} longer "
            f"than the middle one: {cause}"
        )


def _print_differences(differs: Mapping[str, Sequence[Difference]]) -> None:
    if not differs:
        print_text("Differs: nothing that was recorded")
        return
    for section, items in differs.items():
        print_text(f"Differs in {section}:")
        for item in items[:_MAX_DIFFERENCES]:
            print_text(f"  {item.key}: {_short(item.base)} -> {_short(item.other)}")
        if len(items) > _MAX_DIFFERENCES:
            print_text(f"  and {len(items) - _MAX_DIFFERENCES} more; --json shows all")


def _short(value: object) -> str:
    if value is None:
        return "(not there)"
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."


def print_storage_profile(rows: Sequence[StorageProfileRow]) -> None:
    """A column a run set, as the Ready Solutions guide prints it; `-` was not measured."""
    table = make_table(("", *(f"{row.model or '-'}" for row in rows)), right=[f"{row.model or '-'}" for row in rows])

    def line(name: str, values: Sequence[float | None], form: str, scale: float = 1.0) -> None:
        add_row(table, (name, *("-" if value is None else format(value * scale, form) for value in values)))

    found = [row.consistency for row in rows]
    line("training, images/s", [row.samples_per_s for row in rows], ",.1f")
    line("mean image, KB", [row.mean_sample_bytes for row in rows], ",.1f", 1e-3)
    line("expected, Mb/s", [item.expected_bytes_per_s if item else None for item in found], ",.1f", 8e-6)
    line("measured, Mb/s", [item.measured_bytes_per_s if item else None for item in found], ",.1f", 8e-6)
    line("apart, %", [item.difference if item else None for item in found], ".1f", 100)
    line("disk reads, operations/s", [row.operations_per_s for row in rows], ",.1f")
    line("mean disk operation, MB", [row.mean_operation_bytes for row in rows], ",.3f", 1e-6)
    make_console().print(table)
    for row in rows:
        print_text(f"{row.model or '-'}: {row.run_set}")
    print_text("expected = images/s x mean image x 8; measured = disks read + networks received, mean over the run")
