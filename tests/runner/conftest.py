"""A run set on the rehearsal launcher, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlbench.compose import compose
from mlbench.plan.machine import Machine
from mlbench.runner.events import AttemptProgress, Event
from mlbench.runner.interrupt import StopRequest
from mlbench.runner.outcome import SeriesResult
from mlbench.runner.ready import make_ready, plan_here
from mlbench.runner.resume import resume_series
from mlbench.runner.series import start_series
from mlbench.runner.stored import open_stored

MACHINE = Machine(
    hostname="bench01",
    system_name="Bench 1",
    cpu_model="CPU X",
    num_sockets=1,
    num_cores=2,
    num_cpus=2,
    memory_bytes=8_000_000_000,
    gpus=(),
    operating_system="Debian 12",
    kernel="6.1",
)
QUICK = ["launcher=rehearsal", "benchmark.stages=[train]", "launcher.rehearsal.seconds_per_run=0.02"]


@dataclass
class Rehearsal:
    """Starts and resumes run sets below `root`; `events` are those of all calls, without progress."""

    root: Path
    events: list[Event] = field(default_factory=list)

    def listen(self, event: Event) -> None:
        if not isinstance(event, AttemptProgress):
            self.events.append(event)

    def start(
        self,
        *overrides: str,
        stop: StopRequest | None = None,
        listen: Callable[[Event], None] | None = None,
        machine: Machine = MACHINE,
    ) -> SeriesResult:
        given = [*QUICK, f"runs_dir={self.root / 'runs'}", f"db.url=sqlite:///{self.root / 'db.sqlite'}", *overrides]
        ready = make_ready(plan_here(compose(given), machine), machine)
        return start_series(
            ready,
            command_line=["mlbench", *given],
            listener=listen or self.listen,
            stop=stop or StopRequest(),
        )

    def resume(self, name: str, *, force: bool = False, machine: Machine = MACHINE) -> SeriesResult:
        stored = open_stored(name, runs_dir=self.root / "runs")
        return resume_series(
            stored.folder,
            make_ready(plan_here(stored.config, machine), machine),
            command_line=["mlbench", "resume", name],
            listener=self.listen,
            stop=StopRequest(),
            force=force,
        )


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path)


def processes_of(run_set: str) -> list[str]:
    """Command lines of living processes that carry a mark of this run set."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"MLBENCH_JOB={run_set}.".encode() in environment and command:
            found.append(f"{entry.name} {command.decode(errors='replace')}")
    return found
