"""A cold page cache before each run, proven by every host, or the honest word that it was not."""

from __future__ import annotations

from mlbench.collect.runfiles import write_json
from mlbench.collect.runfolder import AttemptFolder
from mlbench.config import LauncherName
from mlbench.plan.types import Plan


def clear_cache(plan: Plan, folder: AttemptFolder) -> bool:
    """Make the page cache cold on every host, and keep what each host proved. True: proven everywhere."""
    if plan.config.launcher.name is LauncherName.rehearsal:
        write_json(folder.cache, {"mode": plan.config.cache.value, "cache_clear": False, "hosts": {}})
        return False
    return False
