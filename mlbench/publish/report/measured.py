"""Sections of what was measured: throughput, runs, accuracy, stages, telemetry, consistency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlbench.analyse.consistency import Consistency
from mlbench.analyse.scaling import scaling_table, serial_fraction
from mlbench.analyse.units import size_text
from mlbench.collect.allreduce import average_busbw_gb_per_s, peak_row
from mlbench.collect.runfolder import last_attempts
from mlbench.publish.charts import (
    accuracy_figure,
    allreduce_figure,
    consistency_figure,
    epochs_figure,
    spread_figure,
    storage_figure,
    telemetry_figures,
    throughput_figure,
)
from mlbench.publish.charts.labels import grouped, rate_unit
from mlbench.publish.charts.runs import DROPPED, KEPT, LOST, run_roles
from mlbench.publish.charts.throughput import is_scaling
from mlbench.publish.comparison import outliers_of, scaling_point
from mlbench.publish.report.blocks import Block, Section, TableBlock, Text, Tone
from mlbench.publish.report.collected import Collected, Named
from mlbench.publish.report.telemetry import consistency_of, mean_sample_bytes, summary_table
from mlbench.publish.report.words import cache_word, number, run_name, run_status
from mlbench.store.tables import RunSet
from mlbench.wording import count_of


def measured_sections(named: Sequence[Named], shelf: Collected) -> Iterator[Section]:
    """In the order in which a reader asks. Plots that cannot be drawn are put on `shelf` with their reasons."""
    run_sets = plotted([item.run_set for item in named])
    for item in named:
        if item.run_set not in run_sets:
            shelf.absent(f"{item.label} beside the others", "a rehearsal has no place in a plot of real run sets")
    yield Section(
        key="throughput",
        title="Throughput and scaling",
        blocks=[
            *shelf.plot(throughput_figure(run_sets)),
            *_scaling(run_sets),
            *shelf.plot(epochs_figure(run_sets)),
        ],
    )
    yield Section(
        key="runs",
        title="Runs",
        blocks=[*shelf.plot(spread_figure(run_sets)), *[block for item in named for block in _runs(item)]],
    )
    yield Section(key="accuracy", title="Accuracy", blocks=shelf.plot(accuracy_figure(run_sets)))
    yield Section(
        key="allreduce",
        title="All-reduce",
        blocks=[*shelf.plot(allreduce_figure(run_sets)), *[block for item in named for block in _allreduce(item)]],
    )
    yield Section(
        key="storage",
        title="Storage",
        blocks=[*shelf.plot(storage_figure(run_sets)), *[block for item in named for block in _storage(item)]],
    )
    yield Section(
        key="telemetry", title="Telemetry", blocks=[block for item in named for block in _telemetry(item, shelf)]
    )
    yield Section(
        key="consistency",
        title="Consistency",
        blocks=[block for item in named for block in _consistency(item, shelf)],
    )


def plotted(run_sets: Sequence[RunSet]) -> list[RunSet]:
    """Rehearsals are plotted only among themselves: their numbers are no measurements and would hide those that are."""
    real = [run_set for run_set in run_sets if not run_set.rehearsal]
    return real or list(run_sets)


def _scaling(run_sets: Sequence[RunSet]) -> list[Block]:
    if not is_scaling(run_sets):
        return []
    rows = scaling_table([point for run_set in run_sets if (point := scaling_point(run_set)) is not None])
    fraction = serial_fraction(rows)
    cells = [
        [
            str(row.point.num_ranks),
            number(row.point.samples_per_s, ",.1f"),
            number(row.point.samples_per_s_first_epoch, ",.1f"),
            number(row.speedup, ".3f"),
            number(row.efficiency, ".1%"),
            number(row.efficiency_first_epoch, ".1%"),
            number(row.point.time_to_train_s, ",.1f"),
            number(row.time_speedup, ".3f"),
        ]
        for row in rows
    ]
    columns = (
        "size", "samples/s", "first epoch", "speed-up", "efficiency", "efficiency, first epoch", "time to train, s",
        "time speed-up",
    )  # fmt: skip
    note = "Efficiency is speed-up over the growth in size, against the smallest size that was measured."
    if fraction is not None:
        note += f" Serial fraction (Amdahl, fitted): {fraction:.4f}."
    return [TableBlock(title="Scaling", columns=columns, rows=cells, numbers=columns, note=note)]


def _runs(named: Named) -> list[Block]:
    run_set = named.run_set
    if not run_set.runs:
        return []
    roles = run_roles(run_set)
    last = {run.index: run.attempt for run in last_attempts(run_set.runs)}
    columns = (
        "run", "status", "time to train, s", "epochs", "accuracy", "samples/s", "first epoch", "cache", "seed",
        "in the mean",
    )  # fmt: skip
    rows = [
        [
            run_name(run),
            run_status(run),
            number(run.time_to_train_s, ",.3f"),
            number(run.epochs, "g"),
            number(run.final_accuracy, ".4f"),
            number(run.samples_per_s, ",.1f"),
            number(run.samples_per_s_first_epoch, ",.1f"),
            cache_word(run),
            None if run.seed is None else str(run.seed),
            "no, warm-up"
            if run.warmup
            else _IN_THE_MEAN.get(roles[run.index])
            if run.attempt == last.get(run.index)
            else "no, an earlier attempt",
        ]
        for run in run_set.runs
    ]
    numbers = ("time to train, s", "epochs", "accuracy", "samples/s", "first epoch", "seed")
    blocks: list[Block] = [
        TableBlock(title=named.title("Runs"), columns=columns, rows=rows, numbers=numbers, note=_spread_note(run_set))
    ]
    blocks += [
        Text(text=f"{named.prefix}Run {run_name(run)}: {run.status_reason}.", tone=Tone.warn)
        for run in run_set.runs
        if run.status_reason
    ]
    for outlier in outliers_of(run_set):
        cause = outlier.cause.value if outlier.cause else "the log does not tell epochs, so the cause is not known"
        blocks.append(
            Text(
                text=f"{named.prefix}Good run number {outlier.position} took {outlier.time_excess:.1%} longer than the "
                f"middle one: {cause}.",
                tone=Tone.warn,
            )
        )
    return blocks


_IN_THE_MEAN = {KEPT: "yes", DROPPED: "dropped", LOST: "no"}


def _spread_note(run_set: RunSet) -> str | None:
    if run_set.cv is None:
        return None
    return (
        f"Coefficient of variation {run_set.cv * 100:.2f} % over {count_of(run_set.num_converged, 'converged run')}; "
        "published five-run sets have a median of 0.12 %."
    )


def _allreduce(named: Named) -> list[Block]:
    blocks: list[Block] = []
    rows = named.run_set.allreduce
    for group in dict.fromkeys((row.backend, row.transport, row.num_ranks, tuple(row.hosts)) for row in rows):
        backend, transport, num_ranks, hosts = group
        chosen = [row for row in rows if (row.backend, row.transport, row.num_ranks, tuple(row.hosts)) == group]
        peak, average = peak_row(chosen), average_busbw_gb_per_s(chosen)
        assert peak is not None
        assert average is not None
        columns = ("size", "place", "time, µs", "algbw, GB/s", "busbw, GB/s", "wrong values")
        blocks.append(
            TableBlock(
                title=named.title(f"{backend} over {transport}, {count_of(num_ranks, 'rank')} on {', '.join(hosts)}"),
                columns=columns,
                rows=[
                    [
                        size_text(row.size_bytes),
                        "in place" if row.in_place else "out of place",
                        f"{row.time_us:,.1f}",
                        f"{row.algbw_gb_per_s:.4g}",
                        f"{row.busbw_gb_per_s:.4g}",
                        "not verified" if row.num_wrong is None else str(row.num_wrong),
                    ]
                    for row in chosen
                ],
                numbers=("size", "time, µs", "algbw, GB/s", "busbw, GB/s", "wrong values"),
                note=f"Peak at large sizes {grouped(peak.busbw_gb_per_s)} GB/s at {size_text(peak.size_bytes)}; "
                f"average over all {count_of(len(chosen), 'row')} {grouped(average)} GB/s.",
                folded=len(chosen) > 12,
            )
        )
    return blocks


def _storage(named: Named) -> list[Block]:
    rows = named.run_set.storage
    if not rows:
        return []
    columns = (
        "where", "pattern", "tool", "cache", "block", "readers", "GB/s", "GiB/s", "operations/s", "p99, ms", "status",
    )  # fmt: skip
    cells = [
        [
            row.endpoint or row.host or "all hosts",
            row.pattern,
            row.tool,
            "WARM" if row.cache == "warm" else row.cache,
            size_text(row.block_bytes),
            str(row.num_readers),
            number(row.bandwidth_bytes_per_s and row.bandwidth_bytes_per_s / 1e9, ",.3f"),
            number(row.bandwidth_bytes_per_s and row.bandwidth_bytes_per_s / 2**30, ",.3f"),
            number(row.iops, ",.0f"),
            number(row.latency_p99_s and row.latency_p99_s * 1e3, ",.2f"),
            row.status if row.reason is None else f"{row.status}: {row.reason}",
        ]
        for row in rows
    ]
    numbers = ("block", "readers", "GB/s", "GiB/s", "operations/s", "p99, ms")
    return [TableBlock(title=named.title("Storage"), columns=columns, rows=cells, numbers=numbers)]


def _telemetry(named: Named, shelf: Collected) -> list[Block]:
    found = named.telemetry
    if found is None:
        shelf.absent(named.title("Telemetry"), named.telemetry_reason)
        return []
    name = named.title(found.name)
    blocks: list[Block] = [
        Text(text=f"{named.prefix}{found.name} stands for the set: the good run nearest to the median of time.")
    ]
    for plot in telemetry_figures(found.run, found.series, name=name):
        blocks += shelf.plot(plot, named.key)
    table = summary_table(found)
    return [*blocks, table] if table is not None else blocks


def _consistency(named: Named, shelf: Collected) -> list[Block]:
    found, reason = consistency_of(named.run_set, named.telemetry)
    run = named.telemetry.name if named.telemetry is not None else "the median run"
    plot = consistency_figure(found, reason, run=named.title(run))
    blocks: list[Block] = list(shelf.plot(plot, named.key))
    if found is not None:
        blocks.insert(0, Text(text=named.prefix + _consistency_text(named.run_set, found), tone=_tone(found)))
    blocks += [
        Text(text=f"{named.prefix}{note.text}.", tone=Tone.warn if note.severity == "warning" else Tone.plain)
        for note in named.run_set.notes
        if note.rule == "CONSISTENCY"
    ]
    return blocks


def _tone(found: Consistency) -> Tone:
    too_little = (
        found.measured_bytes_per_s is not None and found.measured_bytes_per_s < 0.8 * found.expected_bytes_per_s
    )
    share = found.share_of_ceiling
    return Tone.warn if too_little or (share is not None and share > 1.05) else Tone.plain


def _consistency_text(run_set: RunSet, found: Consistency) -> str:
    mean = mean_sample_bytes(run_set)
    assert mean is not None
    factor, unit = rate_unit(found.expected_bytes_per_s)
    parts = [
        f"{grouped(found.expected_bytes_per_s / mean[0], 5)} samples/s in the first epoch × {mean[0] / 1e3:,.4g} KB a "
        f"mean image ({mean[1]}) need "
        f"{grouped(found.expected_bytes_per_s / factor)} {unit}"
    ]
    if found.measured_bytes_per_s is None:
        parts.append("what disks and networks moved was not measured")
    else:
        difference = "" if found.difference is None else f", {found.difference:.1%} apart"
        parts.append(f"disks and networks moved {grouped(found.measured_bytes_per_s / factor)} {unit}{difference}")
        if found.measured_bytes_per_s < 0.8 * found.expected_bytes_per_s:
            parts.append("the data came from memory, not from storage")
    share = found.share_of_ceiling
    if share is not None:
        parts.append(f"that is {grouped(share * 100, 3)} % of what the storage stage measured in this pattern")
    return "; ".join(parts) + "."
