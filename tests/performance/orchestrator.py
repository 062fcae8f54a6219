"""What mlbench costs beside the workers: the training stage of five runs against the sum of the launchers' lifetimes,
and against the same five launches by a plain shell loop."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.performance.command import mlbench, run_command
from tests.performance.context import Context, has_training
from tests.performance.harness import Experiment, Goal, Metrics, PeerError, Quantity, Ratio, Sample

RUNS = 5
STAGE = re.compile(r"stage train: measured: .*?; ([0-9.]+) s in all, ([0-9.]+) s of them in the workers")
REAL_LIMIT_S = 600.0
FIVE_MINUTES = Goal(bound=300.0, at_least=False, of_ratio=False)


def experiments(context: Context) -> Iterator[Experiment]:
    """Rehearsals, whose launches are short, so that what a run costs beside them shows; with --full real training."""
    seconds = context.sized(1, 3)
    rehearsal = ["launcher=rehearsal", f"launcher.rehearsal.seconds_per_run={seconds}"]
    yield _experiment(context, "orchestrator", rehearsal, f"five rehearsals of {seconds} s each", real=False)
    if not context.full:
        return
    if not has_training():
        missing = ["MXNet and Horovod (make run builds them)"]
        yield Experiment(name="orchestrator.real", about="", contestants={}, ratios=[], missing=missing)
        return
    yield _experiment(context, "orchestrator.real", ["seed=11"], "five real trainings of the digits", real=True)


def _experiment(context: Context, name: str, overrides: list[str], about: str, *, real: bool) -> Experiment:
    state: dict[str, Path] = {}
    home = context.folder / name
    limit_s = REAL_LIMIT_S if real else 120.0
    contestants: dict[str, Callable[[], Metrics]] = {"mlbench": lambda: _run_set(home, overrides, state, limit_s)}
    five = Goal(bound=1.05, at_least=False) if real else None
    ratios = [
        _ratio("training stage / sum of lifetimes", ("mlbench", "stage"), ("mlbench", "lifetimes"), five),
        _ratio("mlbench's own time for one run", ("mlbench", "overhead"), None, None),
    ]
    if real:
        ratios.append(_ratio("five runs, training stage", ("mlbench", "stage"), None, FIVE_MINUTES))
    contestants["shell"] = lambda: _shell_loop(home, state, limit_s)
    ratios.append(_ratio("training stage / shell loop", ("mlbench", "stage"), ("shell", "stage"), five))
    return Experiment(name=name, about=about, contestants=contestants, ratios=ratios, max_rounds=1 if real else 3)


def _ratio(name: str, ours: tuple[str, str], peer: tuple[str, str] | None, goal: Goal | None) -> Ratio:
    return Ratio(name=name, unit="s", quantity=Quantity.time, ours=ours, peer=peer, goal=goal)


def _run_set(home: Path, overrides: list[str], state: dict[str, Path], limit_s: float) -> Metrics:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    argv = mlbench(*overrides, "benchmark.stages=[train]", f"repeats={RUNS}")
    done = run_command(argv, env={"MLBENCH_HOME": str(home)}, cwd=home, good=(0, 4), limit_s=limit_s)
    match = STAGE.search(done.output)
    if match is None:
        raise PeerError(f"mlbench said nothing of its training stage: {done.output[-200:]!r}")
    stage_s, lifetimes_s = float(match[1]), float(match[2])
    (state["run_set"],) = (home / "runs").glob("2*")
    return {
        "stage": Sample(wall_s=stage_s),
        "lifetimes": Sample(wall_s=lifetimes_s),
        "overhead": Sample(wall_s=stage_s - lifetimes_s, amount=RUNS),
        "whole": done.sample,
    }


def _shell_loop(home: Path, state: dict[str, Path], limit_s: float) -> Metrics:
    """The very launches of the run set before, in new folders, one after the other by sh."""
    run_set = state.get("run_set")
    if run_set is None:
        raise PeerError("mlbench's own run set is missing, so there is nothing to repeat")
    copy = home / "loop"
    shutil.rmtree(copy, ignore_errors=True)
    lines = ["set -e"]
    environment: dict[str, str] = {}
    for attempt in sorted(run_set.glob("runs/run_*/attempt_0")):
        folder = copy / attempt.relative_to(run_set)
        folder.mkdir(parents=True)
        job = (attempt / "job.json").read_text(encoding="utf-8").replace(str(run_set), str(copy))
        (folder / "job.json").write_text(job, encoding="utf-8")
        environment = json.loads(job)["environment"]
        argv = json.loads((attempt / "attempt.json").read_text(encoding="utf-8"))["argv"]
        words = [word.replace(str(run_set), str(copy)) for word in argv]
        lines.append(f"cd {shlex.quote(str(folder))}\n{shlex.join(words)} >launcher.log 2>&1")
    script = copy / "loop.sh"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run_command(["/bin/sh", str(script)], env=environment, cwd=copy, limit_s=limit_s)
    return {"stage": done.sample}
