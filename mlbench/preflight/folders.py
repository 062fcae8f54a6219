"""The folders of a run: can results be written, is the data set there and sound."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mlbench.choices import LauncherName, Stage
from mlbench.dataset.verify import quick_check_set
from mlbench.plan.types import Plan
from mlbench.preflight.bucket import check_bucket
from mlbench.preflight.check import Check, failed, not_checked, passed
from mlbench.wording import count_of

MIN_FREE_BYTES = 100_000_000
"""Logs of a run set and the database; fio's file set asks for its own room."""


def check_runs_dir(runs_dir: Path) -> Check:
    """Results can be written: tried for real, in the folder or the nearest one above it that exists."""
    folder = runs_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    remedy = "give another folder with runs_dir=FOLDER, or MLBENCH_HOME"
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
    except OSError as error:
        return failed("runs folder", f"{runs_dir} cannot be written ({error.strerror})", remedy)
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        return failed("runs folder", f"{runs_dir} has {free / 1e6:.0f} MB left, a run set needs 100 MB", remedy)
    return passed("runs folder", str(runs_dir))


def check_data(plan: Plan) -> Check:
    """The quick check of the data set: files there, index of this file, records whole, count as expected."""
    name = "data"
    data = plan.config.data
    if Stage.train not in plan.stages:
        return not_checked(name, "no training in this benchmark", required=False)
    if plan.config.launcher.name is LauncherName.rehearsal:
        return not_checked(name, "a rehearsal reads none", required=False)
    if plan.data.path.startswith("s3://"):
        return check_bucket(plan)
    worker = plan.data.worker
    rec = [Path(path) for path in worker.train_rec + worker.val_rec]
    idx = [Path(path) for path in worker.train_idx + worker.val_idx]
    if data.make_if_missing and not any(path.exists() for path in rec + idx):
        return passed(name, f"{plan.data.path} is made before the first run")
    given = f" (given as {plan.data.path_given})" if plan.data.path_given != plan.data.path else ""
    if not Path(plan.data.path).is_dir() and plan.placement.hosts[0].name != "localhost":
        return not_checked(
            name, f"{plan.data.path} is not on this host; each host is asked before run 1", required=False
        )
    if not Path(plan.data.path).is_dir():
        remedy = f"make it with `mlbench data import`, or name its folder with data.path=FOLDER{given}"
        return failed(name, f"the data folder {plan.data.path} is not there", remedy)
    half = len(worker.train_rec)
    faults = quick_check_set(rec[:half], idx[:half], data.num_train)
    faults += quick_check_set(rec[half:], idx[half:], data.num_val)
    if faults:
        more = f" (and {count_of(len(faults) - 1, 'more fault')})" if len(faults) > 1 else ""
        remedy = f"make the data set again, or look closer with `mlbench data verify {plan.data.path}`"
        return failed(name, f"{faults[0]}{more}", remedy)
    return passed(name, f"{plan.data.path}: {data.num_train} training and {data.num_val} validation images")


def make_missing_data(plan: Plan) -> bool:
    """Make the data set that mlbench can make itself, when it is not there. True: it was made.

    Raises: PreflightError, InputError: it cannot be made or written."""
    from mlbench.dataset.digits import make_digits

    worker = plan.data.worker
    wanted = worker.train_rec + worker.train_idx + worker.val_rec + worker.val_idx
    if not plan.config.data.make_if_missing or all(Path(path).exists() for path in wanted):
        return False
    make_digits(Path(plan.data.path), px=worker.image_px)
    return True
