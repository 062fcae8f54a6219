"""The result as text in 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.performance.harness import Goal, Outcome, Report, Spread
from tests.performance.machine import MachineFacts

WIDTH = 80
_NAME, _NUMBER, _RATIO, _SPREAD, _GOAL = 30, 8, 6, 13, 6


def number(value: float) -> str:
    """Three figures that tell, in at most eight characters."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 999_500:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.01:
        return f"{value:.2f}" if size >= 1 else f"{value:.3f}"
    return f"{value:.4f}" if size >= 0.0001 else f"{value:.1e}"


def heading() -> list[str]:
    """Names of the columns."""
    title = _row("ours against peer, unit", "ours", "peer", "ratio", "min to max", "goal", "")
    return [title, "-" * WIDTH]


def report_lines(report: Report) -> list[str]:
    """An experiment: its name, two lines for each ratio (wall time, processor time), and what must be said."""
    lines = [report.experiment.name.upper()]
    for outcome in report.outcomes:
        lines += _outcome_lines(outcome, report.busy)
    lines += [f"  failed: {name}: {reason}"[: WIDTH * 3] for name, reason in report.failures.items()]
    lines += [f"  left out: {text}" for text in report.experiment.missing]
    if report.busy:
        lines.append(
            f"  ! others kept {report.others_cores:.1f} cores busy: wall times are doubtful, see the CPU lines"
        )
    return [piece for line in lines for piece in _folded(line)]


def machine_lines(machine: MachineFacts) -> list[str]:
    """Where and when, above the table."""
    load = " ".join(f"{value:.2f}" for value in machine.load_average)
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    commit = f", commit {machine.commit}" if machine.commit else ""
    lines = [
        f"{machine.date}{commit}, load average {load}",
        f"{machine.cpu_model}, {machine.num_cpus} CPUs, {machine.memory_gib:.0f} GiB",
        f"Linux {machine.kernel}, Python {machine.python}",
        packages,
    ]
    return [piece for line in lines for piece in _folded(line)]


def closing_lines(reports: Sequence[Report]) -> list[str]:
    """How many goals are met, and each one that is not, with by how much.

    `(busy)`: wall time misses the goal, processor time meets it, and others used the machine meanwhile."""
    judged = [(outcome, report.busy) for report in reports for outcome in report.outcomes if outcome.met is not None]
    missed = [(outcome, busy) for outcome, busy in judged if not outcome.met]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} goals met"]
    for outcome, busy in missed:
        goal, value, by_cpu = outcome.ratio.goal, outcome.judged, outcome.judged_by_cpu
        assert goal is not None
        assert value is not None
        excused = busy and outcome.met_by_cpu and by_cpu is not None
        how = f"(busy); by CPU time {number(by_cpu or 0.0)} meets it" if excused else f"({shortfall(goal, value)})"
        word = "not met" if excused else "missed"
        lines += _folded(f"  {word}: {outcome.ratio.name}: {number(value)}, goal {goal} {how}")
    return lines


def shortfall(goal: Goal, value: float) -> str:
    """By how much a value misses its goal, in percent of the goal."""
    return f"{abs(value / goal.bound - 1):.0%} {'below' if goal.at_least else 'above'}"


def json_value(machine: MachineFacts, reports: Sequence[Report]) -> dict[str, Any]:
    """Stable keys; seconds, and units as each ratio names them."""
    return {
        "schema_version": 1,
        "machine": asdict(machine),
        "experiments": [
            {
                "name": report.experiment.name,
                "about": report.experiment.about,
                "others_cores": report.others_cores,
                "left_out": report.experiment.missing,
                "failures": report.failures,
                "ratios": [_outcome_json(outcome) for outcome in report.outcomes],
                "rounds": {
                    name: [{metric: asdict(sample) for metric, sample in metrics.items()} for metrics in rounds]
                    for name, rounds in report.rounds.items()
                },
            }
            for report in reports
        ],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    ratio, goal = outcome.ratio, outcome.ratio.goal
    spreads = ("ours", "peer", "wall_ratio", "cpu_ours", "cpu_peer", "cpu_ratio")
    return {
        "name": ratio.name,
        "unit": ratio.unit,
        "quantity": ratio.quantity.value,
        "goal": None if goal is None else asdict(goal),
        "met": outcome.met,
        "num_rounds": outcome.num_rounds,
        **{name: None if (value := getattr(outcome, name)) is None else asdict(value) for name in spreads},
    }


def _verdict(outcome: Outcome, busy: bool) -> str:
    if outcome.met is None:
        return ""
    if outcome.met:
        return "met"
    return "(busy)" if busy and outcome.met_by_cpu else "MISSED"


def _outcome_lines(outcome: Outcome, busy: bool) -> list[str]:
    ratio, goal = outcome.ratio, outcome.ratio.goal
    verdict = _verdict(outcome, busy)
    name = f"  {ratio.name}, {ratio.unit}"
    first = []
    while len(name) > _NAME:
        cut = name.rfind(" ", 4, _NAME + 1)
        if cut <= 4:
            break
        first.append(name[:cut])
        name = f"    {name[cut + 1 :]}"
    shown = outcome.wall_ratio if outcome.wall_ratio is not None else outcome.ours
    is_ratio = outcome.wall_ratio is not None
    lines = [
        *first,
        _row(
            name,
            number(outcome.ours.median),
            "" if outcome.peer is None else number(outcome.peer.median),
            _ratio(shown.median) if is_ratio else "",
            _range(shown),
            "" if goal is None else str(goal),
            verdict,
        ),
    ]
    if outcome.cpu_ratio is not None and outcome.cpu_ours is not None and outcome.cpu_peer is not None:
        lines.append(
            _row(
                "    the same of CPU time",
                number(outcome.cpu_ours.median),
                number(outcome.cpu_peer.median),
                _ratio(outcome.cpu_ratio.median),
                _range(outcome.cpu_ratio),
                "",
                "",
            )
        )
    return lines


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _range(value: Spread) -> str:
    return f"{number(value.low)} to {number(value.high)}"


def _row(name: str, ours: str, peer: str, ratio: str, spread: str, goal: str, verdict: str) -> str:
    columns = f"{name:<{_NAME}}{ours:>{_NUMBER}}{peer:>{_NUMBER}}{ratio:>{_RATIO}} {spread:>{_SPREAD}} {goal:>{_GOAL}} "
    return f"{columns}{verdict}".rstrip()


def _folded(line: str) -> list[str]:
    """The line in pieces of at most 80 columns, cut at blanks."""
    found = []
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    while len(line) > WIDTH:
        cut = line.rfind(" ", len(indent) + 1, WIDTH + 1)
        if cut < 0:
            cut = WIDTH
        found.append(line[:cut].rstrip())
        line = indent + line[cut:].lstrip()
    return [*found, line.rstrip()]
