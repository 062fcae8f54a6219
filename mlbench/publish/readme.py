"""The README files of a package: what was run, how to set it up, the exact commands, what was changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mlbench.check.packaging import PackagedLog
from mlbench.check.subject import OwnRun
from mlbench.collect.runfiles import RunSetFile
from mlbench.collect.safety import storable_arguments, storable_environment
from mlbench.wording import count_of


def implementation(identity: RunSetFile, example: str, systems: Sequence[str]) -> str:
    """README.md of benchmarks/<benchmark>/implementations/mlbench."""
    origin = identity.provenance
    samples = f"{identity.train_samples} training and {identity.eval_samples} validation images"
    listed = "\n".join(f"* `{system}/`" for system in systems)
    return f"""# {identity.model}, trained with mlbench

Image classification with {_model(identity)} in MXNet (Gluon, hybridized) and Horovod. `worker/` holds the code that
trains: `train.py` the loop, `model.py` the network, `schedule.py` the learning rate, `pipelines/` the input.

Each system has a folder beside this file with its resolved configuration, the job file of every run, and the exact
command lines:

{listed}

## Set-up

* Python {origin.python} with these packages:

{_packages(origin.packages)}

* {_container(identity)}
* The data set `{identity.data_name}` as RecordIO: {samples}.
  `mlbench data import` converts, `mlbench data verify` checks it.

## Run

With mlbench {origin.mlbench_version} installed, the stored configuration of `{example}` runs again with

    mlbench reproduce {identity.run_set}

Without it, the worker runs alone, here with the ranks of `{example}`. Link `worker` as `mlbench_worker`, put the folder
of the link and that of `mlperf_logging` on PYTHONPATH, set the paths in the job file, and start

    horovodrun -np {identity.num_ranks} python -m mlbench_worker {example}/job_0.json
"""


def system(
    identity: RunSetFile,
    folder: str,
    runs: Sequence[OwnRun],
    packaged: Sequence[PackagedLog],
    hardware: Mapping[str, Any],
) -> str:
    """README.md of one system's folder: commands, runs and changes."""
    return "\n".join(
        [
            f"# {folder}",
            "",
            f"Run set `{identity.run_set}`: {count_of(len(packaged), 'run')} of {_model(identity)} on "
            f"{identity.system_name}, {count_of(identity.num_ranks, 'rank')} on "
            f"{count_of(identity.num_nodes, 'node')}, {count_of(identity.num_accelerators, 'accelerator')}.",
            f"Division {identity.division}, ruleset {identity.ruleset}, global batch size "
            f"{identity.global_batch_size}, target accuracy {identity.target_accuracy:g}.",
            *_profiles(hardware),
            "",
            "## Commands",
            "",
            "The run set was started with",
            "",
            f"    {shlex.join(storable_arguments(identity.command_line))}",
            "",
            *_environment(identity),
            *_run_commands(runs),
            "## Runs",
            "",
            *_run_table(runs, packaged),
            "",
            "## Changes",
            "",
            *_changes(packaged),
            "",
        ]
    )


def _model(identity: RunSetFile) -> str:
    return "ResNet-50 v1.5" if identity.model == "resnet50" else identity.model


def _packages(packages: Mapping[str, str]) -> str:
    if not packages:
        return "  none was recorded"
    return "\n".join(f"      {name}=={version}" for name, version in sorted(packages.items()))


def _container(identity: RunSetFile) -> str:
    origin = identity.provenance
    if origin.container_image is None:
        return "No container was used."
    digest = f" ({origin.container_digest})" if origin.container_digest else ""
    return f"Container {origin.container_image}{digest}."


def _profiles(hardware: Mapping[str, Any]) -> list[str]:
    names = [str(part["name"]) for part in hardware.values() if isinstance(part, dict) and part.get("name")]
    return [f"Hardware profiles: {', '.join(names)}."] if names else []


def _environment(identity: RunSetFile) -> list[str]:
    variables = storable_environment(identity.environment)
    if not variables:
        return []
    lines = [f"    {name}={shlex.quote(value)}" for name, value in variables.items()]
    return ["Every rank had these variables:", "", *lines, ""]


def _run_commands(runs: Sequence[OwnRun]) -> list[str]:
    lines: list[str] = []
    for number, run in enumerate(runs):
        if run.attempt is not None and run.attempt.argv:
            command = shlex.join(storable_arguments(run.attempt.argv))
            lines += [f"Run {number} (`job_{number}.json`):", "", f"    {command}", ""]
    return lines


def _run_table(runs: Sequence[OwnRun], packaged: Sequence[PackagedLog]) -> list[str]:
    lines = ["| log | run | attempt | seed | cache cleared | started |", "|---|---|---|---|---|---|"]
    for run, log in zip(runs, packaged, strict=True):
        attempt = run.attempt
        seed = attempt.seed if attempt is not None else "-"
        cleared = ("yes" if attempt.cache_clear else "no") if attempt is not None else "-"
        started = attempt.launched_at if attempt is not None else "-"
        lines.append(f"| {log.result} | {log.run} | {log.attempt} | {seed} | {cleared} | {started} |")
    return lines


def _changes(packaged: Sequence[PackagedLog]) -> list[str]:
    if not any(log.changes for log in packaged):
        return ["None: the packaged logs are the originals, byte for byte."]
    lines = [
        "One record of each log was filled in when it was packaged; nothing else differs. `packaging.json` holds the",
        "line as it was, so that the original can be restored and its sha256 compared.",
        "",
        "| log | line | record | before | after | sha256 of the original |",
        "|---|---|---|---|---|---|",
    ]
    for log in packaged:
        for change in log.changes:
            lines.append(
                f"| {log.result} | {change.line} | {change.key} | {change.before} | {change.after} | "
                f"`{log.original_sha256}` |"
            )
    return lines
