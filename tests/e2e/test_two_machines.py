"""Two machines, one PostgreSQL. Each has its run sets in a folder of the same path, and sees nothing of the other's.

A machine here is a mount namespace: what lies at /.../runs is another folder on each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlbench.ingest.care import rebuild
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database
from mlbench.store.repository import all_run_sets, load_run_set
from tests.support.run_folders import write_run_folder

pytestmark = [pytest.mark.postgres, pytest.mark.netns, pytest.mark.slow]
LIMIT_S = 120
RUN = ["launcher=rehearsal", "benchmark.stages=[train]", "launcher.rehearsal.seconds_per_run=0.05", "repeats=2"]
ON_MACHINE = 'mount --bind "$1" "$2" && shift 2 && cd "$MLBENCH_HOME" && exec "$@"'


@dataclass(frozen=True)
class Machine:
    """`disk` is its own; on it, it lies at `home`, as the other machine's does there."""

    disk: Path
    home: Path
    url: str

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mlbench.cli.main", *arguments]
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", ON_MACHINE, "sh", str(self.disk), str(self.home), *command],
            env={**os.environ, "MLBENCH_HOME": str(self.home), "MLBENCH_DB_URL": self.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, status: int = 0) -> str:
        return end(self.start(*arguments), status)

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", status=status))


def end(process: subprocess.Popen[str], status: int = 0) -> str:
    out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == status, out + errors
    return out


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> tuple[Machine, Machine]:
    (tmp_path / "home").mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "runs").mkdir(parents=True)
    first, second = (Machine(tmp_path / name, tmp_path / "home", postgres_url) for name in ("a", "b"))
    return first, second


def test_runs_at_once_on_two_machines_with_equal_paths_stay_apart(
    machines: tuple[Machine, Machine], postgres_url: str
) -> None:
    first, _ = machines
    for process in [machine.start(*RUN) for machine in machines]:
        end(process)
    own = {machine.disk.name: next((machine.disk / "runs").glob("*/run_set.json")).parent.name for machine in machines}
    stored = all_run_sets(open_database(postgres_url))
    assert {item.run_set for item in stored} == set(own.values())
    assert {Path(item.path or "").parent for item in stored} == {first.home / "runs"}
    for machine in machines:
        found = machine.json("db", "verify")
        assert found["good"] is True
        assert (found["counts"]["equal"], found["counts"]["files_missing"]) == (1, 1)
    for process in [machine.start("db", "rebuild", "--json") for machine in machines]:
        report = json.loads(end(process))
        assert (report["removed"], len(report["kept"])) == ([], 1)
    assert {item.run_set for item in all_run_sets(open_database(postgres_url))} == set(own.values())
    assert own["b"] in first.run("results", "show", own["b"])
    for verb in (("check", own["b"]), ("package", own["b"], "--out", "there")):
        process = first.start(*verb)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 2
        assert "are not on this machine; do it where they are" in errors


def test_rebuild_removes_the_rows_of_its_own_lost_folders_alone(
    machines: tuple[Machine, Machine], postgres_url: str
) -> None:
    for machine, number in zip(machines, "12", strict=True):
        for second in "34":
            write_run_folder(machine.disk / "runs", f"20240501-09303{second}-resnet50-000{number}")
        machine.run("db", "rebuild")
    gone = machines[0].disk / "runs" / "20240501-093034-resnet50-0001"
    shutil.rmtree(gone)
    for machine, removed in ((machines[1], []), (machines[0], [gone.name]), (machines[1], [])):
        assert machine.json("db", "rebuild")["removed"] == removed
    left = [item.run_set for item in all_run_sets(open_database(postgres_url))]
    assert left == [f"20240501-09303{second}-resnet50-000{n}" for second, n in (("3", 1), ("3", 2), ("4", 2))]


def test_rebuild_on_both_machines_at_once_equals_one_alone(
    machines: tuple[Machine, Machine], postgres_url: str, tmp_path: Path
) -> None:
    expected = {}
    for machine, number in zip(machines, "12", strict=True):
        for second in range(5):
            write_run_folder(machine.disk / "runs", f"20240501-09303{second}-resnet50-000{number}")
        alone = open_database(str(tmp_path / f"{number}.sqlite"))
        rebuild(alone, machine.disk / "runs")
        expected |= {item.run_set: load_run_set(alone, item.run_set, telemetry=True) for item in all_run_sets(alone)}
    for process in [machine.start("db", "rebuild") for machine in (*machines, *machines)]:
        end(process)
    db = open_database(postgres_url)
    assert sorted(expected) == [item.run_set for item in all_run_sets(db)]
    for name, record in expected.items():
        record.path = str(machines[0].home / "runs" / name)
        assert canonical_rows(load_run_set(db, name, telemetry=True)) == canonical_rows(record)
