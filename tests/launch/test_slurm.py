"""The sbatch script as a whole, and the follower against small stand-ins of Slurm's commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mlbench.launch import slurm_follow
from mlbench.launch.base import Launch
from mlbench.launch.mpirun import MpirunLauncher
from mlbench.launch.slurm import SlurmLauncher
from mlbench.plan.types import Host

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = Launch(
    command=("/venv/bin/python", "train.py", "two words"),
    num_ranks=4,
    hosts=(Host(name="node-0", slots=2), Host(name="node-1", slots=2)),
    environment={"OMP_NUM_THREADS": "4", "NOTE": "it's"},
    mark="set-1.run_0.0",
    cwd=Path("/shared/a"),
    log=Path("/shared/a/launcher.log"),
    time_limit_s=601,
)


def a_launcher() -> SlurmLauncher:
    mpirun = MpirunLauncher(
        mpirun="mpirun",
        own={"PATH": "/usr/bin:/bin", "SLURM_CONF": "/x"},
        python="/venv/bin/python",
        agent=("ssh",),
        hosts_from_scheduler=True,
    )
    return SlurmLauncher(
        mpirun=mpirun,
        orchestrator_python="/venv/bin/python",
        package_root=Path("/site"),
        hosts_known=False,
        partition="gpu",
        account="perf",
        gres="gpu:2",
        exclusive=True,
    )


SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=mlbench-set-1.run_0.0
#SBATCH --nodes=2
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=2
#SBATCH --time=13
#SBATCH --chdir=/shared/a
#SBATCH --output=/shared/a/slurm.log
#SBATCH --export=NONE
#SBATCH --no-requeue
#SBATCH --cpus-per-task=4
#SBATCH --partition=gpu
#SBATCH --account=perf
#SBATCH --gres=gpu:2
#SBATCH --exclusive

# --export keeps the submitter's variables out; srun, with which mpirun starts its daemons, must not
# inherit that.
export SLURM_EXPORT_ENV=ALL
export MLBENCH_JOB=set-1.run_0.0
export NOTE='it'"'"'s'
export OMP_NUM_THREADS=4
export PATH=/usr/bin:/bin

date +%s > /shared/a/slurm.started
mpirun -np 4 --map-by slot --bind-to none --report-bindings --mca pml ob1 --mca btl '^openib' --wdir /shared/a \
-x MLBENCH_JOB -x NOTE -x OMP_NUM_THREADS -x PATH /venv/bin/python train.py 'two words' &
mpirun=$!
trap 'kill -TERM $mpirun' TERM
wait $mpirun
status=$?
# A trapped signal ends the first wait early.
if kill -0 $mpirun 2> /dev/null; then wait $mpirun; status=$?; fi
echo $status > /shared/a/slurm.status.part && mv /shared/a/slurm.status.part /shared/a/slurm.status
exit $status
"""


def test_slurm_script_every_setting_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert a_launcher().script(LAUNCH) == SCRIPT
    assert a_launcher().files(LAUNCH) == {Path("/shared/a/slurm.sbatch"): SCRIPT}


def test_slurm_script_known_hosts_are_asked_for_by_name() -> None:
    launcher = replace(a_launcher(), hosts_known=True, partition=None, account=None, gres=None, exclusive=False)
    script = launcher.script(replace(LAUNCH, hosts=(Host(name="n7", slots=2), Host(name="n9", slots=2))))
    assert "#SBATCH --nodelist=n7,n9\n" in script
    assert not any(f"--{name}" in script for name in ("partition", "account", "gres", "exclusive"))


def test_slurm_script_is_valid_shell() -> None:
    checked = subprocess.run(["bash", "-n"], input=a_launcher().script(LAUNCH), text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_slurm_argv_and_afterwards_whole() -> None:
    launcher = a_launcher()
    assert launcher.argv(LAUNCH) == [
        *("/venv/bin/python", "-S", "-m", "mlbench.launch.slurm_follow", "submit", "/shared/a/slurm.sbatch"),
        *("--name", "mlbench-set-1.run_0.0"),
        *("--status", "/shared/a/slurm.status", "--output", "/shared/a/slurm.log"),
    ]
    assert launcher.afterwards(LAUNCH) == [
        [
            *("env", "PYTHONPATH=/site", "/venv/bin/python", "-S", "-m", "mlbench.launch.slurm_follow"),
            *("clear", "--name", "mlbench-set-1.run_0.0"),
        ]
    ]
    assert launcher.clock(LAUNCH) == Path("/shared/a/slurm.started")
    assert launcher.environment(LAUNCH) == {
        "PATH": "/usr/bin:/bin",
        "MLBENCH_JOB": "set-1.run_0.0",
        "PYTHONPATH": "/site",
    }


class StandIn:
    """sbatch, squeue and scancel as scripts; `state` is what squeue says of job 77 (empty: it knows none)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.status = folder / "slurm.status"
        self.output = folder / "slurm.log"
        self._program("sbatch", "echo 77")
        self._program(
            "squeue", f's=$(cat {self.state}); [ -z "$s" ] || case "$*" in *%i*) echo 77 $s;; *) echo $s;; esac'
        )
        self._program("scancel", f'echo "$*" >> {folder}/cancelled; : > {self.state}')
        self.state.write_text("RUNNING")

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def follow(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-S", "-m", "mlbench.launch.slurm_follow", "submit", "job.sbatch", "--name", "n"),
                *("--status", str(self.status), "--output", str(self.output)),
            ],
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return StandIn(tmp_path)


def test_follow_scheduler_says_completed_but_no_status_written_is_a_failure(
    slurm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P25: the wrapper's word is not believed."""
    monkeypatch.setattr(slurm_follow, "_LATE_FILE_S", 0.3)
    slurm.state.write_text("COMPLETED")
    with pytest.raises(slurm_follow.SlurmError, match=r"job 77 is gone \(COMPLETED\) and wrote no exit status"):
        slurm_follow.follow("77", "n", slurm.status)


def test_follow_job_wrote_its_status_while_scheduler_says_failed_uses_the_job_s(slurm: StandIn) -> None:
    slurm.state.write_text("FAILED")
    slurm.status.write_text("0\n")
    assert slurm_follow.follow("77", "n", slurm.status) == 0


def test_follow_controller_away_for_a_moment_goes_on(slurm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_follow, "_ASK_INTERVAL_S", 0.1)
    slurm._program("squeue", f"echo x >> {slurm.folder}/asked; [ $(wc -l < {slurm.folder}/asked) -ge 3 ] || exit 1")
    monkeypatch.setattr(slurm_follow, "_LATE_FILE_S", 0.1)
    with pytest.raises(slurm_follow.SlurmError, match="job 77 is gone"):
        slurm_follow.follow("77", "n", slurm.status)
    assert len((slurm.folder / "asked").read_text().splitlines()) >= 3


def test_follow_controller_away_for_good_ends(slurm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_follow, "_ASK_INTERVAL_S", 0.1)
    monkeypatch.setattr(slurm_follow, "_SILENCE_LIMIT_S", 0.5)
    slurm._program("squeue", "exit 1")
    with pytest.raises(slurm_follow.SlurmError, match="squeue: status 1"):
        slurm_follow.follow("77", "n", slurm.status)


@pytest.mark.parametrize("text", ["", "abc", "-"])
def test_read_status_torn_file_is_not_a_status(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    assert slurm_follow.read_status(tmp_path / "s") is None


def test_follow_program_ends_with_the_job_s_status_and_shows_its_output(slurm: StandIn) -> None:
    slurm.output.write_text("said by mpirun\n")
    process = slurm.follow()
    slurm.status.write_text("7\n")
    time.sleep(0.5)
    slurm.state.write_text("")
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 7, errors
    assert output.splitlines()[0] == "submitted job.sbatch as job 77, name n"
    assert output.splitlines()[-1] == "said by mpirun"


def test_follow_job_that_would_never_start_says_why_and_what_to_do(slurm: StandIn) -> None:
    slurm.state.write_text("PENDING PartitionTimeLimit")
    process = slurm.follow()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors == (
        "job 77 would never start: PartitionTimeLimit; ask for less time with limits.max_minutes, or another "
        "launcher.partition\n"
    )


def test_follow_slurm_silent_after_the_status_keeps_the_status(slurm: StandIn) -> None:
    slurm.status.write_text("0\n")
    slurm._program("squeue", "exit 1")
    process = slurm.follow()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_follow_told_to_stop_cancels_the_job(slurm: StandIn) -> None:
    process = slurm.follow()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("submitted")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert (slurm.folder / "cancelled").read_text() == "77\n"


def test_follow_sbatch_refuses_says_why(slurm: StandIn) -> None:
    slurm._program("sbatch", "echo 'error: invalid partition specified: gpu' >&2; exit 1")
    process = slurm.follow()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors == "sbatch: status 1: error: invalid partition specified: gpu\n"


def test_clear_slurm_does_not_answer_is_not_proven(slurm: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    slurm._program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert slurm_follow.run_clear("n") == 1
    assert json.loads(capsys.readouterr().out)["left"] == [
        "Slurm did not tell: squeue: status 1: slurm_load_jobs error: Unable to contact slurm controller"
    ]


def test_clear_job_found_is_cancelled_and_named(slurm: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm_follow.run_clear("n") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"found": ["Slurm job 77 RUNNING"], "killed": ["Slurm job 77 RUNNING"], "left": []}
