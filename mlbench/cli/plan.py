"""`mlbench plan`: everything that a run would do, in figures and command lines, without doing it."""

from __future__ import annotations

import copy
import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mlbench.choices import LauncherName, Stage
from mlbench.cli.console import add_row, make_console, make_table, print_json, print_text
from mlbench.cli.main import verb_app
from mlbench.cli.options import ConfigDirOption, JsonOption, OverridesArgument, tell_repeats
from mlbench.plan.types import Placement, Plan
from mlbench.secret_names import MASK, holds_secret, mask_override
from mlbench.wording import count_of

app = verb_app()

MAX_HOSTS_SHOWN = 8
_RUN_SET = "RUN_SET"
"""Stands in the paths for the id that a run set gets when it starts."""


@app.command()
def plan(
    overrides: OverridesArgument = None,
    config_dir: ConfigDirOption = None,
    profiles: Annotated[bool, typer.Option("--profiles", help="List the profiles and choices there are.")] = False,
    multirun: Annotated[bool, typer.Option("--multirun", help="One plan for each value given with commas.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what a run would do: nodes, rank map, batch, command lines, files, storage need, time. Runs nothing."""
    from mlbench.compose import expand_sweep
    from mlbench.preflight.machine import probe_machine

    if profiles:
        _list_profiles(config_dir, as_json=json)
        return
    tell_repeats(overrides or [])
    machine = probe_machine()
    points = expand_sweep(overrides or []) if multirun else [overrides or []]
    plans = [_make(point, config_dir, machine) for point in points]
    if json:
        values = [plan_values(item) for item in plans]
        print_json(values if multirun else values[0])
        return
    for number, (point, item) in enumerate(zip(points, plans, strict=True)):
        if number:
            print_text()
        if multirun:
            print_text(f"Point {number + 1} of {len(points)}: {shlex.join(map(mask_override, point))}")
        print_plan(item)


def _make(overrides: Sequence[str], config_dir: Path | None, machine: Any) -> Plan:
    from mlbench.compose import compose
    from mlbench.plan.make import make_plan

    return make_plan(compose(overrides, config_dir), machine)


def _list_profiles(config_dir: Path | None, *, as_json: bool) -> None:
    from mlbench.compose import GROUPS, describe, options, search_path

    folders = search_path(config_dir)
    rows = [
        {"group": group, "name": name, "about": describe(file), "file": str(file)}
        for group in GROUPS
        for name, file in options(group, folders).items()
    ]
    if as_json:
        print_json(rows)
        return
    table = make_table(["group", "name", "about", "file"], title="Profiles and choices; the first folder wins")
    for row in rows:
        add_row(table, row.values())
    make_console().print(table)


def command_line(plan: Plan) -> list[str]:
    """The exact command line of the first repetition; paths hold `RUN_SET` where the run set's id will stand.

    `launcher=local` reaches one node: for a plan of more nodes it is the command line of `launcher=mpirun`.
    """
    from mlbench.collect.runfolder import RunFolder
    from mlbench.launch.factory import Attempt, make_container, make_launch, make_launcher
    from mlbench.launch.rehearsal import fault_of, rehearsal_command

    folder = RunFolder(plan.runs_dir / _RUN_SET).attempt(0, 0)
    shown = plan
    if plan.config.launcher.name is LauncherName.local and plan.placement.num_nodes > 1:
        config = copy.deepcopy(plan.config)
        config.launcher.name = LauncherName.mpirun
        shown = dataclasses.replace(plan, config=config)
    attempt = Attempt(job=folder.job, rank_log_dir=folder.path, log=folder.launcher_log, mark=f"{_RUN_SET}.run_0.0")
    launch = make_launch(shown, make_container(shown), attempt)
    if plan.config.launcher.name is LauncherName.rehearsal:
        settings = plan.config.launcher.rehearsal
        command = rehearsal_command(folder.job, settings, fault_of(settings, index=0, attempt=0, warmup=False))
        launch = dataclasses.replace(launch, command=command)
    return make_launcher(shown).argv(launch)


def reference_note(plan: Plan) -> str | None:
    """Whether the ruleset has a convergence reference for this batch size; None when it has, or none is asked."""
    from mlbench.check.rcp import plan_note
    from mlbench.plan.jobs import logged_benchmark

    config = plan.config
    if Stage.train not in plan.stages or logged_benchmark(config) != "resnet" or config.data.name != "imagenet":
        return None
    return plan_note(plan.global_batch_size, config.submission.ruleset)


def plan_values(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, SI base units; keys are stable."""
    config = plan.config
    note = reference_note(plan)
    return {
        "system": plan.system_name,
        "platform": plan.platform,
        "hardware": config.hardware.compute.name if config.hardware.compute else None,
        "storage": config.hardware.storage.name if config.hardware.storage else None,
        "device": plan.device.value,
        "benchmark": config.benchmark.name,
        "kind": config.benchmark.kind.value,
        "stages": [stage.value for stage in plan.stages],
        "division": config.submission.division.value,
        "ruleset": config.submission.ruleset,
        "repeats": config.repeats,
        "warmup_runs": config.warmup_runs,
        "cache": config.cache.value,
        "launcher": config.launcher.name.value,
        "container": config.container.name.value,
        "num_nodes": plan.placement.num_nodes,
        "num_ranks": plan.num_ranks,
        "num_accelerators": plan.num_accelerators,
        "hosts_known": plan.placement.known,
        "hosts": [dataclasses.asdict(host) for host in plan.placement.hosts],
        "rank_map": [dataclasses.asdict(rank) for rank in plan.placement.ranks],
        "batch_per_rank": plan.schedule.batch_per_rank,
        "gradient_accumulation_steps": plan.optimizer.gradient_accumulation_steps,
        "global_batch_size": plan.global_batch_size,
        "learning_rate": plan.optimizer.base_learning_rate,
        "model": dataclasses.asdict(plan.model),
        "optimizer": dataclasses.asdict(plan.optimizer),
        "schedule": dataclasses.asdict(plan.schedule),
        "threads_per_rank": plan.threads_per_rank,
        "environment": _shown_environment(plan),
        "argv": command_line(plan),
        "data": {**dataclasses.asdict(plan.data.worker), "path": plan.data.path, "path_given": plan.data.path_given},
        "mean_image_bytes": plan.data.mean_image_bytes,
        "storage_need_bytes_per_s": plan.data.storage_need_bytes_per_s,
        "storage_need_basis": plan.data.storage_need_basis,
        "runs_dir": str(plan.runs_dir),
        "time_estimate_s": plan.time_estimate_s,
        "notes": [*plan.notes, *([note] if note else [])],
    }


def rank_map_lines(placement: Placement) -> list[str]:
    """Which ranks run where; the middle of a long list is summed up."""
    lines = []
    first = 0
    for host in placement.hosts:
        last = first + host.slots - 1
        ranks = f"rank {first}" if last == first else f"ranks {first}-{last}"
        lines.append(f"{host.name}: {ranks}")
        first = last + 1
    if len(lines) <= MAX_HOSTS_SHOWN:
        return lines
    kept = MAX_HOSTS_SHOWN // 2
    between = len(lines) - 2 * kept
    return [
        *lines[:kept],
        f"... {count_of(between, 'node')} more, {count_of(placement.hosts[kept].slots, 'rank')} each ...",
        *lines[-kept:],
    ]


def _shown_environment(plan: Plan) -> dict[str, str]:
    return {name: MASK if holds_secret(name, value) else value for name, value in sorted(plan.environment.items())}


def print_plan(plan: Plan) -> None:
    """The plan for people: a table of what was decided, then command line, environment and notes."""
    console = make_console()
    table = make_table(["what", "value"], title=f"Plan of {plan.platform}")
    for name, value in _rows(plan):
        add_row(table, (name, value))
    console.print(table)
    print_text("Command line of the first repetition (RUN_SET is the id that the run set gets):")
    print_text(f"  {shlex.join(_shortened(word) for word in command_line(plan))}")
    print_text("Environment of every rank:")
    for name, value in _shown_environment(plan).items():
        print_text(f"  {name}={value}")
    note = reference_note(plan)
    for text in (*plan.notes, *([note] if note else [])):
        print_text(f"Note: {text}.")


def _shortened(word: str) -> str:
    """A long list of hosts with its middle left out; `--json` has the whole."""
    parts = word.split(",")
    if len(parts) <= 2 * MAX_HOSTS_SHOWN or ":" not in parts[0]:
        return word
    kept = MAX_HOSTS_SHOWN // 2
    return ",".join([*parts[:kept], f"...{len(parts) - 2 * kept} more, see --json...", *parts[-kept:]])


def _rows(plan: Plan) -> list[tuple[str, str]]:
    config = plan.config
    num_runs = f"{config.repeats}" + (f" after {config.warmup_runs} warm-up" if config.warmup_runs else "")
    rows = [
        ("benchmark", f"{config.benchmark.name}, {config.benchmark.model}"),
        ("division, ruleset", f"{config.submission.division.value}, {config.submission.ruleset}"),
        ("stages", ", ".join(stage.value for stage in plan.stages)),
        ("repetitions", f"{num_runs}; cache {config.cache.value}; on failure {config.on_failure.value}"),
        ("launcher, container", f"{config.launcher.name.value}, {config.container.name.value}"),
        ("nodes, ranks", _size(plan)),
        ("rank map", "\n".join(rank_map_lines(plan.placement))),
        ("threads a rank", str(plan.threads_per_rank)),
    ]
    if Stage.train in plan.stages:
        rows += _training_rows(plan)
    rows += [
        ("data", _data(plan)),
        ("storage need", _storage_need(plan)),
        ("runs folder", str(plan.runs_dir / _RUN_SET)),
        ("time estimate", _duration(plan.time_estimate_s)),
    ]
    return rows


def _training_rows(plan: Plan) -> list[tuple[str, str]]:
    optimizer, schedule = plan.optimizer, plan.schedule
    accumulation = optimizer.gradient_accumulation_steps
    factors = f"{schedule.batch_per_rank} a rank x {count_of(plan.num_ranks, 'rank')}"
    if accumulation > 1:
        factors += f" x {accumulation} accumulated"
    rows = [
        ("global batch", f"{plan.global_batch_size} = {factors}"),
        ("model", f"{plan.model.name}, {plan.model.dtype}, {plan.model.layout}, {plan.data.worker.image_px} px"),
        (
            "learning rate",
            f"{optimizer.base_learning_rate:g} ({optimizer.name}), warm-up {optimizer.warmup_steps} steps, then power "
            f"{optimizer.decay_power:g} to {optimizer.end_learning_rate:g} at step {optimizer.decay_steps}",
        ),
    ]
    if schedule.num_batches:
        rows.append(("batches", f"{schedule.num_batches} after {schedule.num_warmup_batches} to warm up"))
    else:
        rows.append(
            (
                "target",
                f"accuracy {schedule.target_accuracy:g} within {schedule.max_epochs} epochs, evaluated every "
                f"{schedule.eval_period} (offset {schedule.eval_offset})",
            )
        )
    return rows


def _size(plan: Plan) -> str:
    nodes = plan.placement.num_nodes
    what = count_of(plan.num_accelerators, "accelerator") if plan.num_accelerators else "no accelerator"
    named = "" if plan.placement.known else "; hosts not named yet"
    return f"{count_of(nodes, 'node')}, {count_of(plan.num_ranks, 'rank')}, {what}{named}"


def _data(plan: Plan) -> str:
    worker = plan.data.worker
    files = len(worker.train_rec) + len(worker.val_rec)
    text = f"{worker.name}: {plan.data.path} ({files} .rec files, {worker.num_train} + {worker.num_val} images)"
    if plan.data.path_given != plan.data.path:
        text += f"\ngiven as {plan.data.path_given}"
    if worker.s3_endpoints:
        num_endpoints = len(worker.s3_endpoints)
        text += f"\n{count_of(num_endpoints, 'endpoint')}, rank r reads from endpoint r mod {num_endpoints}"
    return text + f"\npipeline {worker.pipeline}, {count_of(worker.num_threads, 'thread')} a rank"


def _storage_need(plan: Plan) -> str:
    need = plan.data.storage_need_bytes_per_s
    if need is None:
        return "not known: no rate of this model, or no mean image size"
    storage = plan.config.hardware.storage
    text = f"{need / 1e9:.3f} GB/s" if need >= 1e8 else f"{need / 1e6:.3f} MB/s"
    text += f"\n= {plan.data.storage_need_basis}"
    if storage is not None and storage.throughput_gb_per_s:
        chassis = storage.num_chassis or 1
        text += f"\n{storage.system_name} delivers up to {storage.throughput_gb_per_s * chassis:g} GB/s"
    return text


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not known: no rate of this model on this system"
    if seconds < 120:
        return f"about {seconds:.0f} s"
    if seconds < 7200:
        return f"about {seconds / 60:.0f} minutes"
    return f"about {seconds / 3600:.1f} hours"
