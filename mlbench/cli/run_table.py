"""What stands at the end of a run set: the runs, the score with its formula, the verdict, what to do next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlbench.analyse.scaling import ScalingRow
from mlbench.check.finding import Verdict
from mlbench.choices import BenchmarkKind, Stage
from mlbench.cli.stage_tables import allreduce_json, allreduce_lines, storage_json, storage_lines
from mlbench.collect.runfolder import last_attempts
from mlbench.publish.input_pipeline import input_pipeline_text
from mlbench.runner.events import StageState
from mlbench.runner.outcome import Official, SeriesResult
from mlbench.runner.reproduce import Reproduction
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.store.tables import Run, RunSet

_COLUMNS = (
    ("run", 3),
    ("time, s", 8),
    ("epochs", 6),
    ("accuracy", 8),
    ("samples/s", 9),
    ("epoch 1", 9),
    ("seed", 10),
    ("status", 13),
)
"""Title and width; with two spaces between they fill 80 columns."""
_LABEL = 13
_WIDTH = 80


def result_text(result: SeriesResult, *, shown_path: str) -> str:
    """The whole closing text without its last line; every line fits 80 columns, long paths and reasons apart."""
    identity = result.identity
    lines = ["", f"{identity.benchmark}, {_size(result)}, {identity.division} division, ruleset {identity.ruleset}"]
    if identity.rehearsal:
        lines.append("REHEARSAL: nothing was trained; no number below is a result")
    if result.row is not None:
        if Stage.train in result.reports:
            lines += ["", *run_lines(result.row, has_target=_has_target(result)), "", *score_lines(result.row, result)]
        lines += _other_stages(result, result.row)
        used = input_pipeline_text(result.row)
        lines += [_labelled("Input", used)] if used is not None else []
    lines.append(_labelled("Compliance", official_text(result.official)))
    lines.append(_labelled("Files", shown_path))
    if result.store_fault is not None:
        lines.append(_labelled("Database", "not stored; `mlbench db rebuild` loads the files"))
    if result.differences:
        facts = count_of(len(result.differences), "fact")
        lines.append(_labelled("Differs", f"{facts}, accepted by --force and recorded"))
    lines += [_labelled("Next" if number == 0 else "", text) for number, text in enumerate(next_steps(result))]
    return "\n".join(lines)


def run_lines(row: RunSet, *, has_target: bool) -> list[str]:
    """The table of the runs: warm-ups first, each repetition with the attempt that counts."""
    counted = last_attempts(row.runs)
    warmups = [run for run in row.runs if run.warmup]
    lines = [_cells([title for title, _ in _COLUMNS])]
    lines += [_run_line(run, has_target=has_target) for run in [*warmups, *counted]]
    num_others = len(row.runs) - len(counted) - len(warmups)
    if num_others:
        others = count_of(num_others, "earlier attempt is", "earlier attempts are")
        lines.append(f"({others} kept in the files and shown by `mlbench results show`)")
    return lines


def _run_line(run: Run, *, has_target: bool) -> str:
    return _cells(
        [
            f"w{run.index}" if run.warmup else str(run.index),
            _number(run.time_to_train_s, ".2f"),
            _number(run.epochs, "g"),
            _number(run.final_accuracy, ".4f"),
            _number(run.samples_per_s, ".1f"),
            _number(run.samples_per_s_first_epoch, ".1f"),
            _number(run.seed, "d"),
            _status(run, has_target=has_target),
        ]
    )


def _has_target(result: SeriesResult) -> bool:
    return result.identity.benchmark_kind == BenchmarkKind.train.value


def _status(run: Run, *, has_target: bool) -> str:
    if run.warmup:
        return "warm-up"
    if run.status == "success":
        if not has_target:
            return "ended"
        return "converged" if run.converged else "not converged"
    return run.status


def _cells(texts: Sequence[str]) -> str:
    padded = [
        text.ljust(width) if title == "status" else text.rjust(width)
        for text, (title, width) in zip(texts, _COLUMNS, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def score_lines(row: RunSet, result: SeriesResult) -> list[str]:
    """Mean with formula and counts, spread, score or why there is none."""
    asked = row.repeats_asked if row.repeats_asked is not None else result.identity.repeats
    good = f"{row.num_converged} converged of {asked} asked"
    lines = []
    if row.olympic_mean_s is not None:
        kept = row.num_runs - 2
        formula = f"mean of {kept} of {row.num_runs}, fastest and slowest dropped; {good}"
        lines += [_labelled("Olympic mean", f"{row.olympic_mean_s:.3f} s"), _labelled("", formula)]
    elif row.mean_s is not None:
        lines.append(_labelled("Mean", f"{row.mean_s:.3f} s over the converged runs; {good}"))
    elif _has_target(result):
        lines.append(_labelled("Mean", f"none; {good}"))
    if row.min_s is not None and row.max_s is not None:
        cv = "" if row.cv is None else f", coefficient of variation {row.cv * 100:.2f} %"
        lines.append(_labelled("Spread", f"{row.min_s:.2f} to {row.max_s:.2f} s{cv}"))
    if row.samples_per_s is not None:
        first = _number(row.samples_per_s_first_epoch, ".1f")
        lines.append(_labelled("Throughput", f"{row.samples_per_s:.1f} samples/s, {first} in the first epoch"))
    lines.append(_labelled("Score", _score(row)))
    return lines


def _score(row: RunSet) -> str:
    if row.score_status == "valid" and row.score_s is not None:
        factor = f" (x {row.rcp_factor:.6g} by reference convergence)" if (row.rcp_factor or 0) > 1 else ""
        reason = f"; {row.score_reason}" if row.score_reason else ""
        return f"{row.score_s:.3f} s, valid{factor}{reason}"
    if row.score_status == "invalid":
        return f"none, invalid: {row.score_reason}"
    return f"raw, not a score: {row.score_reason}"


def official_text(official: Official) -> str:
    """`compliant with ruleset 4.0.0 (official checker)`, or why it was not checked."""
    if official.verdict is None:
        return f"not checked: {official.reason}"
    if official.verdict is Verdict.compliant:
        return f"compliant with ruleset {official.ruleset}, says the official checker"
    bad = [finding for finding in official.findings if finding.status.value == "fail"]
    first = f": {bad[0].file}: {bad[0].found}" if bad else ""
    return f"NOT compliant with ruleset {official.ruleset}, {count_of(len(bad), 'finding')}{first}"


def next_steps(result: SeriesResult) -> list[str]:
    """Commands that make sense now."""
    name = result.identity.run_set
    if result.num_missing:
        return [f"mlbench resume {name}"]
    steps = [f"mlbench results show {name}"]
    if not result.identity.rehearsal:
        steps.append(f"mlbench report {name} --out report")
    return steps


def _other_stages(result: SeriesResult, row: RunSet) -> list[str]:
    """The table of each stage beside training; without one, its sentence."""
    lines: list[str] = []
    tables = {
        Stage.allreduce: allreduce_lines(row.allreduce, all_sizes=Stage.train not in result.reports),
        Stage.storage: storage_lines(row.storage),
    }
    for stage, report in result.reports.items():
        if stage is Stage.train:
            continue
        if report.state is not StageState.measured or not tables[stage]:
            lines.append(_labelled(stage.value, f"{report.state.value.replace('_', ' ')}: {report.text}"))
        lines += ["", *tables[stage]] if tables[stage] else []
    return [*lines, ""] if lines else []


def _size(result: SeriesResult) -> str:
    identity = result.identity
    gpus = identity.num_accelerators
    what = count_of(gpus, "GPU") if gpus else count_of(identity.num_ranks, "CPU rank")
    nodes = f" on {count_of(identity.num_nodes, 'node')}" if identity.num_nodes > 1 else ""
    return f"{what}{nodes}, global batch {identity.global_batch_size}"


def _labelled(label: str, text: str) -> str:
    """The text beside its label, broken between words to fit `_WIDTH` columns; a longer word stays whole."""
    import textwrap

    first = f"{label:<{_LABEL}} "
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def scaling_lines(rows: Sequence[ScalingRow]) -> list[str]:
    """The scaling table of a sweep, against the smallest point."""
    titles = ("ranks", "samples/s", "epoch 1", "speed-up", "efficiency", "time, s", "time speed-up")
    widths = (6, 10, 10, 8, 10, 10, 13)
    lines = ["Scaling against the smallest point (efficiency = speed-up / growth in ranks):"]
    lines.append("  ".join(title.rjust(width) for title, width in zip(titles, widths, strict=True)))
    for row in rows:
        cells = (
            str(row.point.num_ranks),
            _number(row.point.samples_per_s, ".1f"),
            _number(row.point.samples_per_s_first_epoch, ".1f"),
            _number(row.speedup, ".2f"),
            "-" if row.efficiency is None else f"{row.efficiency * 100:.1f} %",
            _number(row.point.time_to_train_s, ".2f"),
            _number(row.time_speedup, ".2f"),
        )
        lines.append("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
    return lines


def reproduction_lines(reproduction: Reproduction) -> list[str]:
    lines = [_labelled("Reproduced", reproduction.sentence)]
    if reproduction.differences:
        lines.append(_labelled("Differs", f"{count_of(len(reproduction.differences), 'fact')}:"))
        lines += [_labelled("", text) for text in reproduction.differences]
    else:
        lines.append(_labelled("Differs", "nothing in software, hardware or environment"))
    return lines


def result_json(result: SeriesResult) -> dict[str, Any]:
    """The keys of `results show --json`, with what only the runner knows beside them."""
    from mlbench.cli.results_json import full_json, show_json

    kept = ("warmups", "path", "ruleset", "launcher", "cache")
    shown: dict[str, Any] = {"run_set": result.identity.run_set, "runs": [], "path": str(result.folder.path)}
    if result.row is not None:
        whole = full_json(result.row)
        shown = show_json(result.row) | {key: whole[key] for key in kept}
    official = result.official
    return {
        **shown,
        "rehearsal": result.identity.rehearsal,
        "stages": {
            stage.value: {"state": report.state.value, "text": report.text} for stage, report in result.reports.items()
        },
        "allreduce": [] if result.row is None else allreduce_json(result.row.allreduce),
        "storage": [] if result.row is None else storage_json(result.row.storage),
        "official": {
            "verdict": None if official.verdict is None else official.verdict.value,
            "ruleset": official.ruleset,
            "reason": official.reason,
            "findings": [_finding_json(dataclasses.asdict(finding)) for finding in official.findings],
        },
        "num_missing": result.num_missing,
        "interrupted": result.interrupted,
        "stored": result.store_fault is None,
        "exit_status": result.exit_status,
        "last_line": result.last_line,
    }


def _finding_json(finding: dict[str, Any]) -> dict[str, Any]:
    return finding | {"status": finding["status"].value, "severity": finding["severity"].value}


def scaling_json(rows: Sequence[ScalingRow]) -> list[dict[str, Any]]:
    return [
        dataclasses.asdict(row.point)
        | {
            "speedup": row.speedup,
            "efficiency": row.efficiency,
            "efficiency_first_epoch": row.efficiency_first_epoch,
            "time_speedup": row.time_speedup,
        }
        for row in rows
    ]


def reproduction_json(reproduction: Reproduction) -> dict[str, Any]:
    return dataclasses.asdict(reproduction) | {
        "verdict": reproduction.verdict.value,
        "differences": list(reproduction.differences),
        "sentence": reproduction.sentence,
    }
