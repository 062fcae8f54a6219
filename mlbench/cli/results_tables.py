"""Run sets on a terminal: one line each, or one in full. Tables fit into 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from mlbench.cli.console import add_row, make_console, make_table, print_text
from mlbench.cli.moments import shown
from mlbench.collect.allreduce import peak_row
from mlbench.publish.input_pipeline import input_pipeline_text
from mlbench.store.summary import RunSetSummary
from mlbench.store.tables import AllReduceResult, Run, RunSet, StorageResult
from mlbench.wording import count_of

_WIDE = 180
_COLUMNS = ("run set", "system", "good", "score, s", "samples/s")
_NUMBERS = ("ranks", "batch", "good", "score, s", "cv, %", "samples/s", "first epoch")
_WIDE_COLUMNS = ("run set", "started", "org", "system", *_NUMBERS)


def print_list(run_sets: Sequence[RunSetSummary], total: int, *, filtered: bool) -> None:
    if not run_sets:
        none_yet = "no run sets yet: `mlbench` runs one, `mlbench import` reads them"
        print_text("no run set fits these filters" if filtered else none_yet)
        return
    console = make_console()
    wide = console.width >= _WIDE
    columns = _WIDE_COLUMNS if wide else _COLUMNS
    table = make_table(columns, right=_NUMBERS)
    reasons: dict[str, int] = {}
    for item in run_sets:
        cells = _list_cells(item, reasons)
        add_row(table, [cells[column] for column in columns])
    console.print(table)
    for reason, number in reasons.items():
        print_text(f"({number}) {reason}")
    if total > len(run_sets):
        print_text(f"the newest {len(run_sets)} of {total} run sets; all with --limit {total}")
    print_text("mlbench results show RUN_SET tells more of one; latest names the newest")


def _list_cells(item: RunSetSummary, reasons: dict[str, int]) -> dict[str, object]:
    return {
        "run set": item.run_set,
        "started": shown(item.started_at),
        "org": item.org,
        "system": item.system,
        "ranks": item.num_ranks,
        "batch": item.global_batch_size,
        "good": f"{item.num_converged}/{item.num_runs}",
        "score, s": _score_cell(item, reasons),
        "cv, %": None if item.cv is None else f"{100 * item.cv:.2f}",
        "samples/s": _rate(item.samples_per_s),
        "first epoch": _rate(item.samples_per_s_first_epoch),
    }


def print_run_set(run_set: RunSet) -> None:
    """Facts, score with its formula, every attempt, stages, notes, files, what to type next."""
    print_text(run_set.run_set, style="bold")
    for name, text in _facts(run_set):
        print_text(f"  {name:<11} {text}")
    print_text()
    print_text(_score_sentence(run_set))
    spread = _spread(run_set)
    if spread:
        print_text(spread)
    _print_runs(run_set.runs)
    _print_allreduce(run_set.allreduce)
    _print_storage(run_set.storage)
    for note in run_set.notes[:20]:
        where = ":".join(str(part) for part in (note.file, note.line) if part is not None)
        origin = [part for part in (where, note.rule) if part]
        print_text(": ".join([note.severity, *origin, note.text]))
    if len(run_set.notes) > 20:
        print_text(f"and {len(run_set.notes) - 20} more notes: mlbench results show {run_set.run_set} --json --full")
    if run_set.path:
        print_text(f"files: {run_set.path}")


def _facts(run_set: RunSet) -> list[tuple[str, str]]:
    size = [
        count_of(number, unit)
        for number, unit in (
            (run_set.num_nodes, "node"),
            (run_set.num_accelerators, "accelerator"),
            (run_set.num_ranks, "rank"),
        )
        if number is not None
    ]
    ruleset, batch = _named("ruleset", run_set.ruleset), run_set.global_batch_size
    origin = "imported" if run_set.origin == "import" else "own runs"
    facts = [
        ("origin", ", ".join(filter(None, [origin, run_set.round, "REHEARSAL" if run_set.rehearsal else None]))),
        ("org", _both(run_set.org, run_set.org_logged)),
        ("system", run_set.system or "-"),
        ("size", ", ".join(size) or "-"),
        ("benchmark", ", ".join(filter(None, [run_set.benchmark, run_set.division, ruleset]))),
        ("software", ", ".join(filter(None, [run_set.framework, _named("launcher", run_set.launcher)])) or "-"),
        ("batch", "-" if batch is None else f"{count_of(batch, 'sample')} over all ranks"),
        ("input", input_pipeline_text(run_set) or "-"),
        ("cache", run_set.cache or "-"),
        ("started", shown(run_set.started_at)),
    ]
    return facts


def _both(name: str | None, logged: str | None) -> str:
    if name is None or logged is None or name == logged:
        return name or logged or "-"
    return f"{name} (the logs say {logged})"


def _named(name: str, value: str | None) -> str | None:
    return None if value is None else f"{name} {value}"


def _score_sentence(run_set: RunSet) -> str:
    good = f"{run_set.num_converged} of {count_of(run_set.num_runs, 'run')} converged"
    if run_set.repeats_asked is not None and run_set.repeats_asked != run_set.num_runs:
        good += f", {run_set.repeats_asked} asked"
    if run_set.score_status != "valid" or run_set.score_s is None:
        status = "Invalid, no score" if run_set.score_status == "invalid" else "Raw, not a score"
        return f"{status}: {run_set.score_reason or 'no reason is known'} ({good})."
    formula = "olympic mean"
    if run_set.scaling_factor is not None:
        formula += f" {run_set.olympic_mean_s:.3f} s x {run_set.scaling_factor:.6g} (scaling.json)"
    elif run_set.rcp_factor is not None and run_set.rcp_factor > 1:
        formula += f" {run_set.olympic_mean_s:.3f} s x {run_set.rcp_factor:.6g} (reference convergence)"
    reason = f"; {run_set.score_reason}" if run_set.score_reason else ""
    return f"Score {run_set.score_s:.3f} s ({run_set.score_s / 60:.3f} min): {formula}, {good}{reason}."


def _spread(run_set: RunSet) -> str | None:
    if run_set.mean_s is None or run_set.min_s is None or run_set.max_s is None:
        return None
    spread = "" if run_set.cv is None else f", coefficient of variation {100 * run_set.cv:.2f} %"
    ends = f"fastest {run_set.min_s:.3f} s, slowest {run_set.max_s:.3f} s"
    return f"Converged runs: mean {run_set.mean_s:.3f} s, {ends}{spread}."


def _print_runs(runs: Sequence[Run]) -> None:
    if not runs:
        return
    table = make_table(
        ["run", "status", "time, s", "epochs", "accuracy", "samples/s", "1st epoch", "seed"],
        right=("time, s", "epochs", "accuracy", "samples/s", "1st epoch", "seed"),
    )
    for run in runs:
        name = f"warm-up {run.index}" if run.warmup else str(run.index)
        add_row(
            table,
            [
                name if not run.attempt else f"{name}, attempt {run.attempt}",
                "converged" if run.converged else run.status if run.status != "success" else "not converged",
                None if run.time_to_train_s is None else f"{run.time_to_train_s:.3f}",
                None if run.epochs is None else f"{run.epochs:g}",
                None if run.final_accuracy is None else f"{run.final_accuracy:.4f}",
                _rate(run.samples_per_s),
                _rate(run.samples_per_s_first_epoch),
                run.seed,
            ],
        )
    make_console().print(table)
    for run in runs:
        if run.status_reason:
            print_text(f"run {run.index}, attempt {run.attempt}: {run.status_reason}")


def _print_allreduce(rows: Sequence[AllReduceResult]) -> None:
    for table in dict.fromkeys((row.num_ranks, row.backend, row.transport) for row in rows):
        own = [row for row in rows if (row.num_ranks, row.backend, row.transport) == table]
        peak = peak_row(own)
        if peak is None:
            continue
        num_ranks, backend, transport = table
        wrong = sum(row.num_wrong or 0 for row in own)
        verified = "not verified" if any(row.num_wrong is None for row in own) else f"{wrong} wrong values"
        print_text(
            f"All-reduce, {count_of(num_ranks, 'rank')}, {backend} over {transport}: peak bus bandwidth "
            f"{peak.busbw_gb_per_s:.3f} GB/s at {peak.size_bytes} bytes, {verified}."
        )


def _print_storage(rows: Sequence[StorageResult]) -> None:
    for row in rows:
        what = f"Storage, {row.pattern} reads, {row.tool}, {row.cache}, {row.host or 'all hosts'}"
        if row.bandwidth_bytes_per_s is None or row.status != "measured":
            print_text(f"{what}: {row.status}{f', {row.reason}' if row.reason else ''}.")
        else:
            print_text(
                f"{what}: {row.bandwidth_bytes_per_s / 1e9:.3f} GB/s in blocks of {row.block_bytes} bytes"
                f"{'' if row.iops is None else f', {row.iops:.0f} operations/s'}."
            )


def _score_cell(item: RunSetSummary, reasons: dict[str, int]) -> str:
    if item.score_status == "valid" and item.score_s is not None:
        return f"{item.score_s:.3f}"
    what = "invalid, no score" if item.score_status == "invalid" else "raw, not a score"
    reason = f"{what}: {item.score_reason or 'no reason is known'}"
    return f"{item.score_status} ({reasons.setdefault(reason, len(reasons) + 1)})"


def _rate(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
