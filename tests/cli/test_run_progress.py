"""What is shown while a run set runs."""

from __future__ import annotations

import dataclasses
import io

import pytest

from mlbench.choices import Stage
from mlbench.cli.run_progress import BarListener, Guarded, LineListener, Pace, clock, describe_end, describe_progress
from mlbench.collect.runfiles import AttemptFile
from mlbench.runner.events import (
    AttemptEnded,
    AttemptProgress,
    AttemptStarted,
    RunSetStarted,
    Said,
    StageEnded,
    StageStarted,
    StageState,
)
from mlbench.runner.tail import Progress

STARTED = AttemptStarted(index=1, attempt=0, warmup=False, number=2, total=5, max_epochs=20, expected_epochs=4, seed=17)
GOOD = AttemptFile(
    schema_version=1,
    job_id="x.run_1.0",
    index=1,
    attempt=0,
    warmup=False,
    rehearsal=False,
    status="success",
    reason=None,
    exit_status=0,
    seed=17,
    cache_clear=True,
    launched_at="2026-12-01T10:00:00+00:00",
    ended_at="2026-12-01T10:01:00+00:00",
    lifetime_s=60.0,
    argv=[],
    last_record=None,
    last_lines=[],
    log=None,
    num_strays=0,
)
CRASHED = dataclasses.replace(
    GOOD,
    status="crashed",
    reason="ended with status 1",
    exit_status=1,
    last_lines=["Traceback", "MemoryError\x1b[31m"],
    log="rank_1.log",
)
TRAINING = Progress(num_records=50, epoch=3, num_epochs_done=2, accuracy=0.7612, samples_per_s=58.14, run_started=True)


def test_describe_progress_says_what_is_known() -> None:
    assert describe_progress(Progress()) == "starting"
    assert describe_progress(Progress(num_records=3)) == "initialising"
    assert describe_progress(Progress(num_records=9, run_started=True)) == "training"
    assert describe_progress(TRAINING) == "epoch 3, 58.1 samples/s, accuracy 0.7612"


def test_describe_end_of_a_failure_names_reason_log_and_its_last_lines() -> None:
    assert describe_end(AttemptEnded(CRASHED, "/runs/x/runs/run_1/attempt_0", TRAINING)) == [
        "run 1: crashed after 60.0 s: ended with status 1",
        "  log /runs/x/runs/run_1/attempt_0/rank_1.log, its last lines:",
        "  | Traceback",
        "  | MemoryError\x1b[31m",
    ]


def test_describe_end_below_the_target_says_so() -> None:
    record = dataclasses.replace(GOOD, reason="best eval_accuracy 0.7512 of 0.759, so it did not converge")
    assert describe_end(AttemptEnded(record, "/x", TRAINING))[0].endswith("so it did not converge")


@pytest.mark.parametrize(("seconds", "text"), [(None, "-"), (0.2, "0:00"), (247, "4:07"), (3725, "1:02:05")])
def test_clock_shows_minutes_or_hours(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text


def test_pace_knows_nothing_before_the_first_epoch() -> None:
    assert Pace().left_s(STARTED, Progress(), 30.0) is None


def test_pace_of_the_first_run_counts_down_between_two_epochs() -> None:
    pace = Pace()
    started = dataclasses.replace(STARTED, number=1, total=1)
    one = dataclasses.replace(TRAINING, num_epochs_done=1)
    assert pace.left_s(started, one, 10.0) == 30.0  # 4 epochs expected, 10 s each
    assert pace.left_s(started, one, 15.0) == 25.0
    beyond = dataclasses.replace(TRAINING, num_epochs_done=4)
    assert pace.left_s(started, beyond, 40.0) == 160.0  # then up to the maximum of 20


def test_pace_after_a_run_uses_its_lifetime_for_the_others() -> None:
    pace = Pace()
    pace.ended(60.0)
    assert pace.left_s(STARTED, TRAINING, 20.0) == 40.0 + 3 * 60.0


def test_lines_of_a_run_set_are_plain_and_escaped() -> None:
    stream = io.StringIO()
    listener = LineListener(stream)
    for event in (
        RunSetStarted("20261201-x", "/runs/20261201-x", resumed=False),
        StageStarted(Stage.train, 3, 3),
        STARTED,
        AttemptProgress(TRAINING, 1.0),
        AttemptEnded(CRASHED, "/x", TRAINING),
        Said("disk is slow", warning=True),
        StageEnded(Stage.train, "0 of 1 run came to their end", StageState.failed),
    ):
        listener(event)
    assert stream.getvalue().splitlines() == [
        "run set 20261201-x: /runs/20261201-x",
        "stage train (3 of 3)",
        "run 1 (2 of 5): started, seed 17",
        "run 1: crashed after 60.0 s: ended with status 1",
        "  log /x/rank_1.log, its last lines:",
        "  | Traceback",
        "  | MemoryError\\x1b[31m",
        "warning: disk is slow",
        "stage train: failed: 0 of 1 run came to their end",
    ]


def test_lines_of_a_long_run_come_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("mlbench.cli.run_progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    listener = LineListener(stream)
    listener(STARTED)
    for _ in range(50):  # 25 s
        now[0] += 0.5
        listener(AttemptProgress(TRAINING, now[0] - 100.0))
    progress = [line for line in stream.getvalue().splitlines() if "time left" in line]
    assert len(progress) == 2


def test_bar_shows_repetition_and_keeps_the_end_above_it() -> None:
    stream = io.StringIO()
    listener = BarListener(stream)
    for event in (STARTED, AttemptProgress(TRAINING, 20.0), AttemptEnded(GOOD, "/x", TRAINING)):
        listener(event)
    listener.close()
    assert "run 1: ended after 60.0 s, epoch 3, 58.1 samples/s, accuracy 0.7612" in stream.getvalue()


def test_listener_whose_reader_has_gone_is_silent_and_harmless() -> None:
    class Gone(io.StringIO):
        num_writes = 0

        def write(self, text: str) -> int:
            self.num_writes += 1
            raise BrokenPipeError(32, "Broken pipe")

    stream = Gone()
    listener = Guarded(LineListener(stream))
    listener(STARTED)
    listener(AttemptEnded(GOOD, "/x", TRAINING))
    listener.close()
    assert stream.num_writes == 1
