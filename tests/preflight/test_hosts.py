"""Proof of hosts: fake remote shells that are real processes, each with an accident of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, Outcome
from mlbench.preflight.hosts import ClockOffset, HostsReport, clock_offset, prove_hosts
from mlbench.preflight.reach import Conversation, Reach, run_everywhere

ENVIRONMENT = {"PATH": os.defpath}


@pytest.fixture
def plan(planned: Callable[..., Plan], tmp_path: Path) -> Plan:
    """A plan whose data are there: empty files under the right names."""
    made = planned("launcher=mpirun", "hosts=[a:1,b:1]", f"runs_dir={tmp_path / 'runs'}")
    data = made.data.worker
    for name in (*data.train_rec, *data.train_idx, *data.val_rec, *data.val_idx):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"records")
    return made


def shell(folder: Path, name: str, script: str = 'shift; exec sh -c "$*"') -> Reach:
    """A remote shell that takes HOST and a command as ssh does; `script` may do something else with it."""
    path = folder / f"rsh-{name}"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Reach(name=name, prefix=(str(path), name), one_word=True)


def prove(plan: Plan, reaches: Sequence[Reach], **more: Any) -> HostsReport:
    return prove_hosts(
        plan,
        reaches,
        python=sys.executable,
        environment=ENVIRONMENT,
        connect_limit_s=5.0,
        need_frameworks=False,
        **more,
    )


def faults(report: HostsReport) -> list[Check]:
    return [check for check in report.checks if check.outcome is Outcome.failed]


def test_prove_hosts_all_well_every_check_passes_and_no_file_is_left(plan: Plan, tmp_path: Path) -> None:
    report = prove(plan, [Reach(name="here"), shell(tmp_path, "b")])
    assert [(check.name, check.outcome) for check in report.checks] == [
        (name, Outcome.passed) for name in ("hosts", "shared runs folder", "data on hosts", "python on hosts", "clocks")
    ]
    assert list(plan.runs_dir.iterdir()) == []
    assert set(report.facts) == {"here", "b"}
    assert report.facts["b"]["kernel"] == os.uname().release
    assert int(report.facts["b"]["memory_bytes"]) > 1e8
    assert abs(report.clock_offsets_s["b"]) < 0.5


def test_prove_hosts_runs_folder_not_shared_is_found_in_both_directions(plan: Plan, tmp_path: Path) -> None:
    """P28: the other host has a runs folder of its own, empty, under the same path."""
    own = tmp_path / "own"
    own.mkdir()
    script = f'shift; exec sh -c "$(printf %s "$*" | sed "s#{plan.runs_dir}#{own}#g")"'
    report = prove(plan, [Reach(name="here"), shell(tmp_path, "b", script)])
    assert [(check.name, check.found.partition(" (")[0]) for check in faults(report)] == [
        ("shared runs folder", "b: a file written here is not seen there")
    ]


def test_prove_hosts_what_a_host_writes_is_not_seen_here_is_found(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlbench.preflight.hosts._SHARED_LIMIT_S", 0.3)
    own = tmp_path / "own"
    own.mkdir()
    script = f"""shift; exec sh -c "$(printf %s "$*" | sed 's#"answer_dir": "[^"]*"#"answer_dir": "{own}"#')" """
    report = prove(plan, [shell(tmp_path, "b", script)])
    assert [check.found for check in faults(report)] == ["b: a file written there is not seen here"]


def test_prove_hosts_runs_folder_read_only_there_is_found(plan: Plan, tmp_path: Path) -> None:
    script = """shift; exec sh -c "$(printf %s "$*" | sed 's#"answer_dir": "[^"]*"#"answer_dir": "/proc"#')" """
    report = prove(plan, [shell(tmp_path, "b", script)])
    assert len(faults(report)) == 1
    assert faults(report)[0].found.startswith("b: cannot write there (")


def test_prove_hosts_data_missing_on_one_host_names_host_and_file(plan: Plan, tmp_path: Path) -> None:
    script = f'shift; exec sh -c "$(printf %s "$*" | sed "s#{plan.data.path}#/nowhere#g")"'
    report = prove(plan, [Reach(name="here"), shell(tmp_path, "b", script)])
    assert [check.name for check in faults(report)] == ["data on hosts"]
    assert (
        faults(report)[0].found
        == f"b: /nowhere/{Path(plan.data.worker.train_rec[0]).name} is missing or cannot be read"
    )


def test_prove_hosts_data_of_another_size_names_both(plan: Plan, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in Path(plan.data.path).iterdir():
        (other / path.name).write_bytes(b"rec")
    from mlbench.preflight import hosts

    answers = [
        hosts.HostAnswer(
            host=name, reach=Reach(name=name), seen={"paths": {"/d/train.rec": size}}, clock=None, answer_seen=True
        )
        for name, size in (("a", 7), ("b", 3))
    ]
    assert hosts._data_fault(answers[1], answers[0]) == "/d/train.rec has 3 bytes, on a it has 7"
    assert hosts._data_fault(answers[0], answers[0]) is None


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            "echo 'me@b: Permission denied (publickey,password).' >&2; exit 255",
            "b: `{rsh} b` ended with status 255: me@b: Permission denied (publickey,password).",
        ),
        ("exit 0", "b: `{rsh} b` ended with status 0: no reason given"),
        ("echo '@mlbench-host {broken'; exit 0", "b: `{rsh} b` ended with status 0: no reason given"),
    ],
)
def test_prove_hosts_ssh_fails_says_what_it_said(plan: Plan, tmp_path: Path, script: str, found: str) -> None:
    report = prove(plan, [Reach(name="here"), shell(tmp_path, "b", script)])
    assert [check.found for check in faults(report)] == [found.format(rsh=tmp_path / "rsh-b")]
    assert "launcher.rsh_agent" in str(faults(report)[0].remedy)


@pytest.mark.slow
def test_prove_hosts_ssh_asks_for_a_password_and_hangs_is_ended(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P47: the probe ends in time and says which host."""
    monkeypatch.setattr("mlbench.preflight.hosts._WORK_LIMIT_S", -4.0)
    report = prove(plan, [shell(tmp_path, "b", "echo 'password: ' >&2; exec sleep 60")])
    assert [check.found for check in faults(report)] == [f"b: no answer in time through `{tmp_path}/rsh-b b`"]


def test_prove_hosts_agent_missing_is_a_failed_check(plan: Plan) -> None:
    report = prove(plan, [Reach(name="b", prefix=("/no/such/ssh", "b"), one_word=True)])
    assert [check.found for check in faults(report)] == ["b: /no/such/ssh: No such file or directory"]
    assert report.facts == {}


def test_prove_hosts_login_banner_is_passed_over(plan: Plan, tmp_path: Path) -> None:
    report = prove(plan, [shell(tmp_path, "b", 'echo "Welcome to b"; echo "{}"; shift; exec sh -c "$*"')])
    assert faults(report) == []


def test_prove_hosts_fewer_hosts_than_the_scheduler_gave_is_found(plan: Plan) -> None:
    report = prove(plan, [Reach(name="slurm", num_hosts=2, takes_input=False, names_itself=True)])
    assert [check.found for check in faults(report)] == ["slurm: 1 of 2 hosts answered"]


def test_prove_hosts_too_old_python_is_refused(plan: Plan, tmp_path: Path) -> None:
    from mlbench.preflight import hosts

    answer = hosts.HostAnswer(host="b", reach=Reach(name="b"), seen={"python": "3.6.9"}, clock=None, answer_seen=True)
    assert hosts._python_fault(answer) == "found Python 3.6.9, the worker needs 3.8"


def test_prove_hosts_clock_ahead_is_a_warning_with_its_uncertainty(plan: Plan, tmp_path: Path) -> None:
    script = 'shift; exec sh -c "$(printf %s "$*" | sed "s#time\\.time()#(time.time() + 90)#g")"'
    report = prove(plan, [shell(tmp_path, "b", script)])
    fault = next(check for check in faults(report) if check.name == "clocks")
    assert not fault.required
    assert report.clock_offsets_s["b"] == pytest.approx(90, abs=0.5)


def test_prove_hosts_gpus_fewer_than_slots_is_refused(plan: Plan) -> None:
    from mlbench.preflight import hosts

    seen = {"gpus": [{"name": "A100"}], "gpu_error": None}
    answer = hosts.HostAnswer(host="b", reach=Reach(name="b"), seen=seen, clock=None, answer_seen=True)
    assert hosts._gpu_fault(answer, 1) is None
    assert hosts._gpu_fault(answer, 8) == "found 1 GPU, expected 8"


def a_conversation(lines: list[tuple[float, float]], sent: list[float], *, takes_input: bool = True) -> Conversation:
    return Conversation(
        reach=Reach(name="b", takes_input=takes_input),
        started_at_s=100.0,
        lines=[(arrived, "@mlbench-clock " + json.dumps({"host": "b", "time_s": theirs})) for arrived, theirs in lines],
        sent=sent,
    )


def test_clock_offset_shortest_round_trip_counts() -> None:
    """Start to first line 2 s, pings 0.4 s and 0.02 s; the host is 5 s ahead of the middle of the last."""
    talk = a_conversation([(102.0, 106.5), (102.6, 107.5), (103.02, 108.01)], [102.2, 103.0])
    assert clock_offset(talk, "b") == ClockOffset(offset_s=pytest.approx(5.0), uncertainty_s=pytest.approx(0.01))


def test_clock_offset_no_input_start_is_all_there_is() -> None:
    talk = a_conversation([(102.0, 106.0), (103.0, 107.0)], [], takes_input=False)
    assert clock_offset(talk, "b") == ClockOffset(offset_s=pytest.approx(5.0), uncertainty_s=pytest.approx(1.0))


def test_clock_offset_nothing_said_is_none() -> None:
    assert clock_offset(a_conversation([], []), "b") is None


@pytest.mark.parametrize(("offset_s", "uncertainty_s", "certain_s"), [(5, 1, 4), (-5, 1, 4), (0.5, 1, 0)])
def test_clock_offset_certain_part(offset_s: float, uncertainty_s: float, certain_s: float) -> None:
    assert ClockOffset(offset_s=offset_s, uncertainty_s=uncertainty_s).certain_s == certain_s


def test_run_everywhere_runs_side_by_side_and_keeps_the_order(tmp_path: Path) -> None:
    reaches = [shell(tmp_path, name, f'sleep {delay}; shift; sh -c "$*"') for name, delay in (("a", 0.3), ("b", 0))]
    talks = run_everywhere(reaches, ["echo", "it's", "two  words"], limit_s=5, environment=ENVIRONMENT)
    assert [(talk.reach.name, talk.lines[0][1], talk.status) for talk in talks] == [
        ("a", "it's two  words", 0),
        ("b", "it's two  words", 0),
    ]


@pytest.mark.slow
def test_run_everywhere_limit_ends_a_command_that_hangs() -> None:
    (talk,) = run_everywhere([Reach(name="a")], ["sleep", "60"], limit_s=0.2, environment=ENVIRONMENT)
    assert (talk.timed_out, talk.status) == (True, None)


def test_prove_hosts_endpoint_that_is_dead_is_named_with_what_helps(
    planned: Callable[..., Plan], tmp_path: Path
) -> None:
    plan = planned(
        "+hardware=ecs", "hardware.storage.s3_endpoints=['http://127.0.0.1:9']", f"runs_dir={tmp_path / 'runs'}"
    )
    (fault,) = faults(prove(plan, [Reach(name="here")]))
    assert (fault.name, fault.remedy) == (
        "endpoints",
        "start it, or leave it out of hardware.storage.s3_endpoints",
    )
    assert fault.found.startswith("here: http://127.0.0.1:9 cannot be reached (")
