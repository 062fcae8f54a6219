"""`make bench`: mlbench against its peers, side by side.

    make bench                                     everything, five rounds
    make bench ARGS="--only startup --rounds 9"    one group, or several: --only startup,check
    make bench ARGS="--quick"                      small loads, two rounds: does the suite still work?
    make bench ARGS="--full --json bench.json"     five real trainings too

Peers that are not here are left out, and said: MLBENCH_TORCH_PYTHON and MLBENCH_DALI_PYTHON name Pythons with torch and
with DALI, MLBENCH_TEST_POSTGRES_URL a server, MLBENCH_PUBLISHED the published logs. Status 0 when everything that could
be measured was; 1 when a contestant failed; goals that are missed do not change it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.performance import (
    allreduce,
    datasets,
    limits,
    orchestrator,
    pipelines,
    published,
    startup,
    store,
    telemetry,
    training,
)
from tests.performance.context import Context, make_context
from tests.performance.harness import Experiment, PeerError, Report, run
from tests.performance.machine import BUSY_CORES, LoadWatch, machine_facts
from tests.performance.table import closing_lines, heading, json_value, machine_lines, report_lines

GROUPS: tuple[Callable[[Context], Iterator[Experiment]], ...] = (
    limits.experiments,
    startup.experiments,
    published.experiments,
    orchestrator.experiments,
    store.experiments,
    datasets.experiments,
    telemetry.experiments,
    pipelines.experiments,
    allreduce.experiments,
    training.experiments,
)
ROUNDS, QUICK_ROUNDS = 5, 2
_LOOK_S = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for and print it as it comes. Returns the status of the process."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="mlbench-bench-") as folder:
        context = make_context(Path(folder), quick=options.quick, full=options.full)
        chosen = select(experiments_of(context), options.only)
        if not chosen:
            print(f"--only {options.only}: no such comparison; --list names them", file=sys.stderr)
            return 2
        if options.list:
            for experiment in chosen:
                print(f"{experiment.name:<20} {experiment.about}")
            return 0
        return _measure(chosen, options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS), options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,...", help="names of comparisons, or their beginnings")
    parser.add_argument("--rounds", type=_at_least_one, metavar="N", help=f"rounds of turns; default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help=f"small loads, {QUICK_ROUNDS} rounds")
    parser.add_argument("--full", action="store_true", help="five real trainings too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON, each round too")
    parser.add_argument("--list", action="store_true", help="name the comparisons and measure nothing")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected at least 1")
    return value


def experiments_of(context: Context) -> list[Experiment]:
    """All comparisons, those that lack their peers too."""
    return [experiment for group in GROUPS for experiment in group(context)]


def select(experiments: Sequence[Experiment], only: str | None) -> list[Experiment]:
    """Those whose name begins with one of the names in `only`, parted by commas; all when it is None."""
    if only is None:
        return list(experiments)
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    return [experiment for experiment in experiments if experiment.name.startswith(names)]


def _measure(chosen: Sequence[Experiment], num_rounds: int, json_path: Path | None) -> int:
    machine = machine_facts()
    print("\n".join(machine_lines(machine)))
    _warn_of_others()
    print()
    print("\n".join(heading()), flush=True)
    reports = []
    for experiment in chosen:
        report = _run(experiment, num_rounds)
        _progress("")
        print("\n".join(report_lines(report)), flush=True)
        reports.append(report)
        if json_path is not None:
            json_path.write_text(json.dumps(json_value(machine, reports), indent=1) + "\n", encoding="utf-8")
    print()
    print("\n".join(closing_lines(reports)))
    return 1 if any(report.failures for report in reports) else 0


def _run(experiment: Experiment, num_rounds: int) -> Report:
    """A setting that cannot be made is the failure of everybody in it."""
    try:
        return run(experiment, num_rounds, on_go=lambda name, number: _progress(f"{experiment.name}: {name}, {number}"))
    except PeerError as error:
        failures = {name: str(error) for name in experiment.contestants}
        return Report(experiment=experiment, outcomes=[], failures=failures, others_cores=None, rounds={})


def _progress(text: str) -> None:
    """What runs now, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{text:<79}\r", end="", file=sys.stderr, flush=True)


def _warn_of_others() -> None:
    watch = LoadWatch()
    time.sleep(_LOOK_S)
    others = watch.others_cores()
    if others is not None and others > BUSY_CORES:
        print(f"! other processes keep {others:.1f} of {os.cpu_count()} CPUs busy: wall times will be doubtful")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; what is finished stands above, and in the file of --json", file=sys.stderr)
        sys.exit(130)
