"""A cold page cache before each run, proven by every host, or the honest word that it was not.

The helper of the island (worker/cache.py) does it on each host, outside any container: the page cache is the host's.
"""

from __future__ import annotations

import json
import os
from typing import Any

from mlbench.choices import CacheMode, ContainerName, LauncherName
from mlbench.collect.runfiles import write_json
from mlbench.collect.runfolder import AttemptFolder
from mlbench.launch import environment
from mlbench.launch.command import BARE, ISLAND
from mlbench.launch.factory import worker_python
from mlbench.launch.mpirun import running_inside_slurm
from mlbench.launch.reach import make_reaches
from mlbench.plan.types import Plan
from mlbench.preflight.reach import Conversation, run_everywhere
from mlbench.wording import count_of

_LIMIT_S = 600.0
"""Syncing and evicting a data set of hundreds of gigabytes."""
_HOST_PYTHON = "python3"
"""Of a host whose ranks run in a container."""


def chosen_mode(plan: Plan) -> CacheMode:
    """What `cache=auto` comes to: the whole page cache of machines that are ours alone, as root; else our files."""
    mode = plan.config.cache
    if mode is not CacheMode.auto:
        return mode
    compute = plan.config.hardware.compute
    ours_alone = compute is not None and compute.dedicated
    return CacheMode.drop if ours_alone and os.geteuid() == 0 else CacheMode.evict


def clear_cache(plan: Plan, folder: AttemptFolder) -> tuple[bool, str | None]:
    """Make the page cache cold on every host, and keep what each host proved in cache.json.

    Returns: whether it was proven everywhere, and why not. Raises OSError: cache.json cannot be written."""
    mode = chosen_mode(plan)
    hosts: dict[str, dict[str, Any]] = {}
    reason = _not_tried(plan, mode)
    if reason is None and plan.data.path.startswith("s3://"):
        write_json(folder.cache, _record(mode, True, "the data set is in S3: no page cache holds it", hosts))
        return True, None
    proven = False
    if reason is None:
        data = plan.data.worker
        files = [*data.train_rec, *data.val_rec]
        conversations = _ask(plan, mode, files)
        hosts = {conversation.reach.name: read_report(conversation) for conversation in conversations}
        bad = [f"{host}: {report['reason']}" for host, report in hosts.items() if report.get("proven") is not True]
        proven, reason = not bad, "; ".join(bad) or None
    write_json(folder.cache, _record(mode, proven, reason, hosts))
    return proven, reason


def _record(mode: CacheMode, proven: bool, reason: str | None, hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"mode": mode.value, "cache_clear": proven, "reason": reason, "hosts": hosts}


def _not_tried(plan: Plan, mode: CacheMode) -> str | None:
    launcher = plan.config.launcher.name
    if launcher is LauncherName.rehearsal:
        return "a rehearsal reads no data"
    if mode is CacheMode.none:
        return "cache=none"
    if launcher is LauncherName.slurm and not running_inside_slurm() and not plan.placement.known:
        return "which nodes Slurm gives is not known before the job runs; name them with hosts=[...]"
    return None


def _ask(plan: Plan, mode: CacheMode, files: list[str]) -> list[Conversation]:
    in_container = plan.config.container.name is not ContainerName.none
    python = _HOST_PYTHON if in_container else worker_python(plan.config)
    command = [python, *BARE, str(ISLAND / "start.py"), "cache", "--mode", mode.value, "--files", *files]
    scheduler = plan.config.launcher.name is LauncherName.slurm
    return run_everywhere(
        make_reaches(plan),
        command,
        limit_s=plan.config.launcher.ssh_timeout_s + _LIMIT_S,
        environment=environment.inherited(os.environ, scheduler=scheduler),
    )


def read_report(conversation: Conversation) -> dict[str, Any]:
    """What the helper on one reach said; a reach of several hosts is proven only when each of them says so."""
    reports = [report for _, line in conversation.lines if (report := _parse(line)) is not None]
    num_hosts = conversation.reach.num_hosts
    if len(reports) < num_hosts:
        why = conversation.start_error or conversation.last_error or f"status {conversation.status}"
        why = "no answer in time" if conversation.timed_out else why
        return {"proven": False, "reason": f"{len(reports)} of {count_of(num_hosts, 'helper')} answered: {why}"}
    bad = [report for report in reports if report.get("proven") is not True]
    if len(reports) == 1:
        return {**reports[0], "reason": reports[0].get("reason") or (None if not bad else "not proven")}
    reason = "; ".join(f"{report.get('host')}: {report.get('reason')}" for report in bad) or None
    return {"proven": not bad, "reason": reason, "hosts": reports}


def _parse(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "proven" in value else None
