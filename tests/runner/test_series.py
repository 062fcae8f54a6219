"""Whole run sets on the rehearsal launcher: what is kept, what is said, what is run again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine

from mlbench.collect.mllog import read_log
from mlbench.collect.runfiles import read_attempt, read_run_set
from mlbench.compose import from_resolved
from mlbench.errors import ConfigError, InputError, PreflightError, StoreError
from mlbench.launch import factory
from mlbench.launch.base import Launch
from mlbench.runner import launching
from mlbench.runner.events import AttemptEnded, AttemptStarted, Event, Said
from mlbench.runner.interrupt import StopRequest
from mlbench.runner.missing import attempts_of
from mlbench.runner.stored import open_stored
from mlbench.store import engine
from tests.runner.conftest import MACHINE, Rehearsal, processes_of


def statuses(result: object) -> list[tuple[int, int, str]]:
    row = result.row  # type: ignore[attr-defined]
    return [(run.index, run.attempt, run.status) for run in row.runs]


def test_series_good_run_set_leaves_every_file_and_row(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=2")
    assert result.exit_status == 0
    assert result.last_line.startswith("Done. Raw, not a score: a rehearsal")
    identity = read_run_set(result.folder.identity)
    assert identity.rehearsal
    assert identity.provenance.packages["hydra-core"]
    assert Path(identity.data_path).is_absolute()
    assert json.loads(result.folder.hosts.read_text())["bench01"]["cpu_model"] == "CPU X"
    config = from_resolved(result.folder.config.read_text())
    assert config.repeats == 2
    for index in range(2):
        item = result.folder.attempt(index, 0)
        assert {path.name for path in item.path.iterdir()} == {
            "attempt.json", "cache.json", "job.json", "launcher.log", "rank_0.log", "rank_1.log", "result.txt",
        }  # fmt: skip
        record = read_attempt(item.outcome)
        log = read_log(item.mllog)
        assert log.seeds == [record.seed]
        assert log.hyperparameters["rehearsal"] is True
        assert record.status == "success"
    assert result.row is not None
    assert result.row.score_status == "raw"
    assert result.row.num_converged == 2
    with sqlite3.connect(rehearsal.root / "db.sqlite") as db:
        assert db.execute("select run_set, rehearsal, score_s from run_set").fetchall() == [
            (result.identity.run_set, 1, None)
        ]
        assert db.execute("select count(*) from run").fetchone() == (2,)


@pytest.mark.slow
def test_series_measures_the_mean_image_of_files_that_are_here(rehearsal: Rehearsal) -> None:
    data = rehearsal.root / "digits"
    one = [f"data.path={data}", "repeats=1"]
    unknown = rehearsal.start(*one)
    assert unknown.row is not None
    assert (unknown.identity.mean_image_bytes, unknown.row.provenance["mean_image_bytes"]) == (None, None)

    data.mkdir()
    (data / "train.rec").write_bytes(bytes(640 * 1100))  # 640 images train
    measured = rehearsal.start(*one)
    assert measured.row is not None
    assert read_run_set(measured.folder.identity).mean_image_bytes == 1100.0
    assert measured.row.provenance["mean_image_bytes"] == 1100.0
    assert from_resolved(measured.folder.config.read_text()).data.mean_image_bytes is None
    assert rehearsal.start(*one, "data.mean_image_bytes=1000").identity.mean_image_bytes == 1000.0


@pytest.mark.slow
def test_series_run_is_in_the_database_as_soon_as_it_has_ended(rehearsal: Rehearsal) -> None:
    counts = []

    def listen(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            with sqlite3.connect(rehearsal.root / "db.sqlite") as db:
                counts.append(db.execute("select count(*) from run").fetchone()[0])

    rehearsal.start("repeats=2", listen=listen)
    assert counts == [1, 2]


@pytest.mark.slow
def test_series_seeds_differ_and_a_given_seed_counts_up(rehearsal: Rehearsal) -> None:
    fresh = rehearsal.start("repeats=2")
    given = rehearsal.start("repeats=2", "seed=41")
    assert fresh.row is not None
    assert given.row is not None
    assert fresh.row.runs[0].seed != fresh.row.runs[1].seed
    assert [run.seed for run in given.row.runs] == [41, 42]


@pytest.mark.slow
def test_series_warmup_is_labelled_and_left_out_of_the_mean(rehearsal: Rehearsal) -> None:
    # case P21: the label decides, not start times; without the warm-up's record the others are averaged all the same
    result = rehearsal.start("repeats=2", "warmup_runs=1")
    assert result.row is not None
    assert [(run.warmup, run.index) for run in result.row.runs] == [(False, 0), (False, 1), (True, 0)]
    assert result.row.num_runs == 2
    times = [run.time_to_train_s for run in result.row.runs if not run.warmup]
    assert result.row.mean_s == pytest.approx(sum(time for time in times if time) / 2)
    started = [event for event in rehearsal.events if isinstance(event, AttemptStarted)]
    assert [event.warmup for event in started] == [True, False, False]


def test_series_crash_keeps_the_others_and_says_why_at_once(rehearsal: Rehearsal) -> None:
    # case D6
    result = rehearsal.start("repeats=3", "launcher.rehearsal.fault=crash", "launcher.rehearsal.fault_in_run=1")
    assert result.exit_status == 3
    assert result.last_line.startswith("Failed: 2 of 3 runs are finished")
    assert statuses(result) == [(0, 0, "success"), (1, 0, "crashed"), (2, 0, "success")]
    record = read_attempt(result.folder.attempt(1, 0).outcome)
    assert record.exit_status == 1
    assert record.log == "rank_0.log"
    assert record.last_lines[-1] == "RehearsalError: this is the crash that was asked for"
    assert record.last_record is not None
    # said before the next repetition starts
    kinds = [type(event).__name__ for event in rehearsal.events]
    assert kinds.index("AttemptEnded", kinds.index("AttemptEnded") + 1) < len(kinds) - 1
    ended = [event for event in rehearsal.events if isinstance(event, AttemptEnded)]
    assert ended[1].record.reason == "ended with status 1"


@pytest.mark.slow
def test_series_on_failure_stop_runs_no_more(rehearsal: Rehearsal) -> None:
    result = rehearsal.start(
        "repeats=3", "on_failure=stop", "launcher.rehearsal.fault=crash", "launcher.rehearsal.fault_in_run=0"
    )
    assert statuses(result) == [(0, 0, "crashed")]
    assert result.num_missing == 3
    assert result.exit_status == 3


@pytest.mark.slow
def test_resume_runs_only_the_crashed_one_with_a_new_seed(rehearsal: Rehearsal) -> None:
    # case D6
    first = rehearsal.start("repeats=3", "launcher.rehearsal.fault=crash", "launcher.rehearsal.fault_in_run=1")
    rehearsal.events.clear()
    second = rehearsal.resume(first.identity.run_set)
    started = [event for event in rehearsal.events if isinstance(event, AttemptStarted)]
    assert [(event.index, event.attempt) for event in started] == [(1, 1)]
    assert second.exit_status == 0
    assert second.row is not None
    assert second.row.num_converged == 3
    assert len({run.seed for run in second.row.runs}) == 4
    assert len(read_run_set(second.folder.identity).resumes) == 1
    with sqlite3.connect(rehearsal.root / "db.sqlite") as db:
        assert db.execute("select count(*) from run_set").fetchone() == (1,)
        assert db.execute("select count(*) from run").fetchone() == (4,)


@pytest.mark.slow
def test_resume_of_a_whole_run_set_runs_nothing(rehearsal: Rehearsal) -> None:
    first = rehearsal.start("repeats=1")
    rehearsal.events.clear()
    assert rehearsal.resume(first.identity.run_set).exit_status == 0
    assert not [event for event in rehearsal.events if isinstance(event, AttemptStarted)]


@pytest.mark.slow
def test_resume_of_a_configuration_changed_since_is_refused(rehearsal: Rehearsal) -> None:
    first = rehearsal.start("repeats=1")
    config = first.folder.config
    config.write_text(config.read_text().replace("repeats: 1\n", "repeats: 9\n"))
    with pytest.raises(InputError, match=r"config\.yaml: repeats is 9, but run_set\.json beside it says 1"):
        rehearsal.resume(first.identity.run_set)


@pytest.mark.slow
def test_resume_on_other_hardware_is_refused_and_force_records_it(rehearsal: Rehearsal) -> None:
    first = rehearsal.start("repeats=1", "launcher.rehearsal.fault=no_run_stop")
    other = replace(MACHINE, cpu_model="CPU Y")
    with pytest.raises(PreflightError, match=r"1 fact differs .*cpu_model: 'CPU X', now 'CPU Y'"):
        rehearsal.resume(first.identity.run_set, machine=other)
    assert not first.folder.attempt(0, 1).path.exists()
    forced = rehearsal.resume(first.identity.run_set, machine=other, force=True)
    assert forced.exit_status == 0
    recorded = read_run_set(forced.folder.identity).resumes[0]
    assert recorded.forced
    assert recorded.differences == ["bench01: cpu_model: 'CPU X', now 'CPU Y'"]


@pytest.mark.slow
def test_resume_adopts_a_run_whose_log_is_whole_and_reruns_a_cut_short_one(rehearsal: Rehearsal) -> None:
    first = rehearsal.start("repeats=2", "launcher.rehearsal.fault=no_run_stop", "launcher.rehearsal.fault_in_run=1")
    for item in attempts_of(first.folder):
        item.folder.outcome.unlink()  # as when mlbench was killed
    second = rehearsal.resume(first.identity.run_set)
    assert statuses(second) == [(0, 0, "success"), (1, 0, "interrupted"), (1, 1, "success")]
    assert second.exit_status == 0


def test_series_status_0_without_run_stop_is_not_success(rehearsal: Rehearsal) -> None:
    # case P25
    result = rehearsal.start("repeats=1", "launcher.rehearsal.fault=no_run_stop")
    assert statuses(result) == [(0, 0, "incomplete")]
    assert result.exit_status == 3


@pytest.mark.slow
def test_series_two_runs_below_the_target_are_not_good(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=2", "launcher.rehearsal.fault=low_accuracy")
    assert result.exit_status == 4
    assert result.last_line == "Not good: 0 of 2 runs converged."


@pytest.mark.slow
def test_series_run_stop_aborted_is_kept_as_a_result(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=1", "launcher.rehearsal.fault=aborted")
    assert statuses(result) == [(0, 0, "aborted")]
    assert result.exit_status == 4
    assert result.num_missing == 0


@pytest.mark.slow
def test_series_full_disk_of_a_rank_is_a_crash_that_says_so(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=1", "launcher.rehearsal.fault=disk_full")
    record = read_attempt(result.folder.attempt(0, 0).outcome)
    assert record.status == "crashed"
    assert "No space left on device" in record.last_lines[-1]


@pytest.mark.slow
def test_series_torn_last_line_is_a_crash_with_the_last_whole_record(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=1", "launcher.rehearsal.fault=torn_line")
    record = read_attempt(result.folder.attempt(0, 0).outcome)
    assert record.status == "crashed"
    assert record.last_record is not None
    assert json.loads(record.last_record)["key"] == "eval_stop"


@pytest.mark.slow
def test_series_ranks_writing_at_once_tear_no_line(rehearsal: Rehearsal) -> None:
    result = rehearsal.start("repeats=1", "launcher.rehearsal.fault=many_writers")
    lines = result.folder.attempt(0, 0).mllog.read_text().splitlines()
    assert all(json.loads(line.removeprefix(":::MLLOG ")) for line in lines)
    assert sum('"init_start"' in line for line in lines) == 1 + 3 * 50
    assert result.exit_status == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "stubborn_hang", "slow_init"])
def test_series_hang_ends_as_timeout_with_the_last_record(rehearsal: Rehearsal, fault: str) -> None:
    # cases D5 and P22
    result = rehearsal.start(
        "repeats=2",
        f"launcher.rehearsal.fault={fault}",
        "launcher.rehearsal.fault_in_run=0",
        "limits.no_record_s=1",
        "limits.term_grace_s=1",
    )
    assert statuses(result) == [(0, 0, "timeout"), (1, 0, "success")]
    record = read_attempt(result.folder.attempt(0, 0).outcome)
    assert record.reason is not None
    assert record.reason.startswith("stopped after 1 s without a new record")
    assert ('"eval_stop"' in record.reason) is (fault != "slow_init")
    assert result.exit_status == 3
    assert processes_of(result.identity.run_set) == []


@pytest.mark.slow
def test_series_run_over_its_time_limit_is_timeout(rehearsal: Rehearsal) -> None:
    result = rehearsal.start(
        "repeats=1", "launcher.rehearsal.seconds_per_run=60", "limits.max_minutes=0.02", "limits.term_grace_s=1"
    )
    record = read_attempt(result.folder.attempt(0, 0).outcome)
    assert record.status == "timeout"
    assert record.reason is not None
    assert record.reason.startswith("stopped at the limit of 0.02 minutes for one run")


@pytest.mark.slow
def test_series_child_that_ignores_term_is_ended_before_the_next_run(rehearsal: Rehearsal) -> None:
    left: list[list[str]] = []

    def listen(event: Event) -> None:
        rehearsal.listen(event)
        if isinstance(event, AttemptEnded):
            left.append(processes_of(event.record.job_id.partition(".")[0]))

    result = rehearsal.start(
        "repeats=2",
        "launcher.rehearsal.fault=stubborn_child",
        "launcher.rehearsal.fault_in_run=0",
        "limits.term_grace_s=0.5",
        listen=listen,
    )
    assert left == [[], []]
    assert result.exit_status == 0
    assert read_attempt(result.folder.attempt(0, 0).outcome).num_strays == 1
    assert any(isinstance(event, Said) and "outlived" in event.text for event in rehearsal.events)


def test_series_unwritable_database_keeps_the_files_and_says_how_to_load_them(rehearsal: Rehearsal) -> None:
    # case P27
    (rehearsal.root / "afile").write_text("")
    result = rehearsal.start("repeats=1", f"db.url=sqlite:///{rehearsal.root}/afile/db.sqlite")
    assert result.exit_status == 0
    assert result.store_fault is not None
    assert result.folder.attempt(0, 0).outcome.is_file()
    warnings = [event.text for event in rehearsal.events if isinstance(event, Said) and event.warning]
    assert len(warnings) == 1
    assert "mlbench db rebuild" in warnings[0]
    assert str(result.folder.path) in warnings[0]


@pytest.mark.slow
def test_series_database_that_comes_back_is_asked_again_at_the_end_alone(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A locked database costs a minute each time it is asked.
    asked: list[int] = []
    real = engine.open_database

    def locked_at_first(url: str | None, **options: Any) -> Engine:
        asked.append(len(asked))
        if len(asked) == 1:
            raise StoreError("database is locked")
        return real(url, **options)

    monkeypatch.setattr(engine, "open_database", locked_at_first)
    result = rehearsal.start("repeats=3")
    assert len(asked) == 2
    assert (result.exit_status, result.store_fault) == (0, None)
    with sqlite3.connect(rehearsal.root / "db.sqlite") as db:
        assert db.execute("select count(*) from run").fetchone() == (3,)


def test_series_runs_folder_that_cannot_be_written_is_refused(rehearsal: Rehearsal) -> None:
    # case P27; below /proc not even root may make a folder
    with pytest.raises(PreflightError, match="/proc/runs cannot be written"):
        rehearsal.start("repeats=1", "runs_dir=/proc/runs")


def test_series_refused_by_a_rule_starts_nothing(rehearsal: Rehearsal) -> None:
    # case D8: the rehearsal worker's files are the marker
    for overrides in (["submission.division=closed", "repeats=4"], ["gpus=0"], ["launcher.rehearsal.fault=crahs"]):
        with pytest.raises(ConfigError):
            rehearsal.start(*overrides)
    assert not list(rehearsal.root.rglob("rank_0.log"))
    assert not (rehearsal.root / "runs").exists()


@pytest.mark.slow
def test_series_interrupted_between_two_runs_keeps_the_first(rehearsal: Rehearsal) -> None:
    stop = StopRequest()

    def listen(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            os.kill(os.getpid(), signal.SIGINT)

    result = rehearsal.start("repeats=3", stop=stop, listen=listen)
    assert result.interrupted
    assert result.exit_status == 130
    assert result.last_line.startswith("Interrupted: 1 of 3 runs are finished and stored, 2 missing")
    assert statuses(result) == [(0, 0, "success")]


@pytest.mark.slow
def test_series_interrupted_in_a_run_ends_it_and_records_it(rehearsal: Rehearsal) -> None:
    from mlbench.runner.events import AttemptProgress

    def listen(event: Event) -> None:
        if isinstance(event, AttemptProgress) and event.progress.num_epochs_done >= 1:
            os.kill(os.getpid(), signal.SIGINT)

    result = rehearsal.start(
        "repeats=2", "launcher.rehearsal.seconds_per_run=20", "limits.term_grace_s=1", listen=listen
    )
    assert result.exit_status == 130
    assert statuses(result) == [(0, 0, "interrupted")]
    assert processes_of(result.identity.run_set) == []


def test_series_disk_full_for_the_record_stops_with_what_to_do(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlbench.collect import runfiles

    def full(path: Path, record: object) -> None:
        if path.name == "attempt.json":
            raise OSError(28, "No space left on device")
        runfiles.write_json(path, record)

    monkeypatch.setattr("mlbench.runner.attempt.write_json", full)
    result = rehearsal.start("repeats=2")
    assert result.exit_status == 3
    assert result.fault is not None
    assert "attempt_0: cannot be written (No space left on device)" in result.fault
    assert f"mlbench resume {result.identity.run_set}" in result.fault
    assert not result.folder.attempt(1, 0).path.exists()
    monkeypatch.undo()
    again = rehearsal.resume(result.identity.run_set)
    # the log of the first run is whole: it is kept, not run again
    assert statuses(again) == [(0, 0, "success"), (1, 0, "success")]
    assert again.exit_status == 0


SECRET = "topsecretvalue"
WITH_SECRET = (
    "repeats=1",
    "+hardware=f800",
    f"+hardware.storage.environment.SITE_TOKEN={SECRET}",
    "+hardware.storage.environment.NCCL_DEBUG=WARN",
)


@pytest.mark.slow
def test_series_secret_of_a_profile_reaches_the_ranks_and_no_file(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Mapping[str, str]] = []

    def spy(*arguments: Any, **named: Any) -> Launch:
        launch = factory.make_launch(*arguments, **named)
        launched.append(launch.environment)
        return launch

    monkeypatch.setattr(launching, "factory", SimpleNamespace(make_launch=spy, Attempt=factory.Attempt))
    result = rehearsal.start(*WITH_SECRET)

    assert result.row is not None
    assert launched[0]["SITE_TOKEN"] == SECRET
    holding = [path for path in rehearsal.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []
    job = json.loads(result.folder.attempt(0, 0).job.read_text())
    assert job["environment"]["SITE_TOKEN"] == "(not kept)"
    assert job["environment"]["NCCL_DEBUG"] == "WARN"


@pytest.mark.slow
def test_resume_takes_a_secret_from_the_environment_and_refuses_without(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rehearsal.start(*WITH_SECRET, "launcher.rehearsal.fault=no_run_stop")
    monkeypatch.delenv("SITE_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="the value of SITE_TOKEN is a secret and was not kept; set the variable"):
        rehearsal.resume(first.identity.run_set)

    monkeypatch.setenv("SITE_TOKEN", SECRET)
    again = open_stored(first.identity.run_set, runs_dir=rehearsal.root / "runs").config.hardware.storage
    assert again is not None
    assert again.environment == {"SITE_TOKEN": SECRET, "NCCL_DEBUG": "WARN"}
    assert rehearsal.resume(first.identity.run_set).exit_status == 0
