"""The MLLOG stream: whole lines, only from rank 0, all keys that the rules ask for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlperf_logging.mllog import mllog

from mlbench.worker.job import Job, JobError
from mlbench.worker.log import RunLog, log_settings, log_submission
from mlbench.worker.validate import check
from tests.worker.conftest import read_log

MakeJob = Callable[..., Job]


def test_event_line_is_exactly_as_mllog_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mllog, "_current_time_ms", lambda: 1700000000000)
    log = RunLog(str(tmp_path / "result.txt"))
    log.stop("epoch_stop", epoch_num=3)
    log.close()
    record = json.loads((tmp_path / "result.txt").read_text().removeprefix(":::MLLOG "))
    assert record == {
        "namespace": "",
        "time_ms": 1700000000000,
        "event_type": "INTERVAL_END",
        "key": "epoch_stop",
        "value": None,
        "metadata": {"file": __file__, "lineno": record["metadata"]["lineno"], "epoch_num": 3},
    }


def test_record_from_the_island_names_the_file_without_its_folder(tmp_path: Path, make_job: MakeJob) -> None:
    log = RunLog(str(tmp_path / "result.txt"))
    log_submission(log, check(make_job()))
    log.close()
    assert {record["metadata"]["file"] for record in read_log(tmp_path / "result.txt")} == {"log.py"}


def test_event_each_record_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    log = RunLog(str(path))
    for count in range(1, 4):
        log.event("seed", count)
        assert [record["value"] for record in read_log(path)] == list(range(1, count + 1))


def test_run_log_of_another_rank_writes_nothing(tmp_path: Path) -> None:
    log = RunLog(None)
    log.start("run_start")
    log.event("seed", 1)
    log.stop("run_stop")
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_event_disk_full_ends_the_run() -> None:
    log = RunLog("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        log.event("seed", 1)


def test_event_value_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    log = RunLog(str(path))
    with pytest.raises(ValueError, match="Failed to encode"):
        log.event("seed", object())
    assert path.read_text() == ""


def test_run_log_folder_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"job\.files\.mllog: .*/no/result\.txt cannot be written \(No such file"):
        RunLog(str(tmp_path / "no" / "result.txt"))


def test_run_log_without_mllog_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_logging.mllog", None)
    with pytest.raises(JobError, match=r"mlperf_logging cannot be imported \(.*\); put its folder on PYTHONPATH"):
        RunLog(str(tmp_path / "result.txt"))


@pytest.mark.parametrize("cleared", [True, False])
def test_log_submission_says_of_the_cache_what_the_job_says(tmp_path: Path, make_job: MakeJob, cleared: bool) -> None:
    log = RunLog(str(tmp_path / "result.txt"))
    log_submission(log, check(make_job(cache_clear=cleared)))
    records = read_log(tmp_path / "result.txt")
    assert [record["value"] for record in records if record["key"] == "cache_clear"] == [cleared]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "sgd",
            [
                "opt_name",
                "sgd_opt_base_learning_rate",
                "sgd_opt_end_learning_rate",
                "sgd_opt_learning_rate_decay_poly_power",
                "sgd_opt_learning_rate_decay_steps",
                "sgd_opt_momentum",
                "sgd_opt_weight_decay",
                "label_smoothing",
                "opt_learning_rate_warmup_epochs",
            ],
        ),
        (
            "lars",
            [
                "opt_name",
                "lars_opt_base_learning_rate",
                "lars_opt_end_learning_rate",
                "lars_opt_learning_rate_decay_poly_power",
                "lars_opt_learning_rate_decay_steps",
                "lars_opt_momentum",
                "lars_opt_weight_decay",
                "label_smoothing",
                "lars_epsilon",
                "lars_opt_learning_rate_warmup_epochs",
            ],
        ),
    ],
)
def test_log_settings_keys_are_those_of_the_optimizer(
    tmp_path: Path, make_job: MakeJob, name: str, keys: list[str]
) -> None:
    log = RunLog(str(tmp_path / "result.txt"))
    log_settings(log, check(make_job(optimizer__name=name)), 64, ["conv0_weight", "fc1_bias"])
    records = read_log(tmp_path / "result.txt")
    common = ["seed", "global_batch_size", "gradient_accumulation_steps", "quality_target", "model_bn_span"]
    assert [record["key"] for record in records] == [*common, *keys, "weights_initialization", "weights_initialization"]
    assert [record["metadata"]["tensor"] for record in records[-2:]] == ["conv0_weight", "fc1_bias"]
