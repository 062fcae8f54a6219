"""Real training runs of the worker as a process, judged by the official compliance checker on a copy of the log."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.analyse.throughput import throughput
from mlbench.collect.mllog import read_log
from mlbench.worker import job as schema
from mlbench.worker.__main__ import run
from mlbench.worker.job import JobError
from mlbench.worker.pipelines import base, fallback
from tests.worker.conftest import Ended, SmallSet, job_for, run_worker, write_split

pytestmark = [pytest.mark.training, pytest.mark.slow]
RULESETS = ("0.7.0", "1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0")
IMAGENET = {
    "submission": {
        "benchmark": "resnet",
        "org": "LabX",
        "division": "closed",
        "status": "onprem",
        "platform": "4xNVIDIA DGX A100",
    },
    "cache_clear": True,
    "model__num_classes": 1000,
    "optimizer__base_learning_rate": 6.0,
    "optimizer__decay_steps": 16485,
    "optimizer__warmup_steps": 1963,
    "optimizer__warmup_epochs": 5.0,
    "schedule__max_epochs": 1,
}


def failed_checks(log: Path, ruleset: str, folder: Path) -> list[str]:
    """What the checker finds wrong, one entry a finding; its verdict and its findings must agree."""
    copy = folder / f"copy_{ruleset}.txt"
    shutil.copyfile(log, copy)
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset]
    command += ["--log_output", str(folder / "checker.log"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    findings = said.partition("WARNING -  ")[2].partition("\nERROR - FAILED")[0]
    assert ("ERROR - FAILED" in said) == bool(findings)
    assert ("INFO - SUCCESS" in said) != bool(findings)
    return findings.split("\n" + "-" * 30 + "\n") if findings else []


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory, easy_set: SmallSet) -> Ended:
    """One rank trains to the target on the easy set."""
    return run_worker(job_for(tmp_path_factory.mktemp("open"), easy_set))


def test_open_run_reaches_the_target_and_ends_well(open_run: Ended) -> None:
    assert open_run.status == 0, open_run.stderr
    last = open_run.records[-1]
    assert (last["key"], last["metadata"]["status"]) == ("run_stop", "success")
    assert 0.759 <= open_run.values("eval_accuracy")[-1] < 1.0
    assert last["metadata"]["epoch_num"] == len(open_run.values("eval_accuracy"))


@pytest.mark.parametrize("ruleset", RULESETS)
def test_open_run_passes_the_official_checker_whole(open_run: Ended, tmp_path: Path, ruleset: str) -> None:
    assert failed_checks(open_run.log, ruleset, tmp_path) == []


def test_open_run_order_of_records_is_that_of_a_run(open_run: Ended) -> None:
    keys = [key for key in open_run.keys if key not in ("weights_initialization", "tracked_stats")]
    assert keys[:7] == [
        "submission_benchmark",
        "submission_org",
        "submission_division",
        "submission_status",
        "submission_platform",
        "cache_clear",
        "init_start",
    ]
    after = keys[keys.index("init_stop") :]
    num_epochs = len(open_run.values("eval_accuracy"))
    epoch = ["block_start", "epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop", "block_stop"]
    begun = ["init_stop", "run_start", "input_pipeline", "train_samples", "eval_samples"]
    assert after == [*begun, *epoch * num_epochs, "run_stop"]


def test_open_run_values_are_those_of_the_job(open_run: Ended) -> None:
    for key, expected in (
        ("cache_clear", False),
        ("seed", 7),
        ("global_batch_size", 8),
        ("train_samples", 64),
        ("eval_samples", 25),
        ("quality_target", 0.759),
        ("model_bn_span", 8),
        ("sgd_opt_base_learning_rate", 0.02),
        ("opt_learning_rate_warmup_epochs", 0.5),
    ):
        assert open_run.values(key) == [expected], key


def test_open_run_epochs_count_from_one(open_run: Ended) -> None:
    numbers = [record["metadata"]["epoch_num"] for record in open_run.records if record["key"] == "epoch_start"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_open_run_accuracy_is_a_share_of_the_25_images(open_run: Ended) -> None:
    for accuracy in open_run.values("eval_accuracy"):
        assert accuracy * 25 == pytest.approx(round(accuracy * 25), abs=1e-9)


def test_open_run_tells_throughput_and_loss_of_each_epoch(open_run: Ended) -> None:
    found = [r["value"] for r in open_run.records if r["key"] == "tracked_stats" and r["metadata"]["of"] == "epoch"]
    assert len(found) == len(open_run.values("eval_accuracy"))
    for value in found:
        assert set(value) == {"throughput", "samples", "data_wait_s", "train_loss"}
        assert value["samples"] == 64
        assert value["throughput"] > 0
        assert value["train_loss"] > 0


@pytest.fixture(scope="module", params=["sgd", "lars"])
def closed_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The published settings of ImageNet; validation labels of a class never shown, so that no accuracy is reached:
    everything else is as in a real submission."""
    folder = tmp_path_factory.mktemp(request.param)
    write_split(folder, "train", [(at % 2, at % 2) for at in range(32)], 32)
    write_split(folder, "val", [(at % 2, 500) for at in range(9)], 32)
    changes = {**IMAGENET, "optimizer__name": request.param}
    return run_worker(job_for(folder, SmallSet(folder, 32, 9), **changes))


@pytest.mark.parametrize("ruleset", RULESETS)
def test_closed_run_fails_the_accuracy_and_nothing_else(closed_run: Ended, tmp_path: Path, ruleset: str) -> None:
    assert closed_run.status == 0, closed_run.stderr
    (finding,) = failed_checks(closed_run.log, ruleset, tmp_path)
    assert finding == "Failed checks for eval_accuracy : v['value'] >= 0.7590 and v['value'] < 1.0"


def test_closed_run_without_the_target_is_aborted_with_status_0(closed_run: Ended) -> None:
    assert closed_run.records[-1]["key"] == "run_stop"
    assert closed_run.records[-1]["metadata"]["status"] == "aborted"
    assert closed_run.values("cache_clear") == [True]
    assert len(closed_run.values("weights_initialization")) == 161


def test_run_same_seed_gives_the_same_accuracies(tmp_path: Path, easy_set: SmallSet) -> None:
    accuracies = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        changes = {"schedule__max_epochs": 2, "schedule__target_accuracy": 1.0}
        accuracies.append(run_worker(job_for(tmp_path / name, easy_set, **changes)).values("eval_accuracy"))
    assert accuracies[0] == accuracies[1]
    assert len(accuracies[0]) == 2


def test_run_data_missing_is_aborted_and_not_status_0(tmp_path: Path, easy_set: SmallSet) -> None:
    ended = run_worker(job_for(tmp_path, easy_set, data__train_rec=[str(tmp_path / "gone.rec")]))
    assert ended.status == 1
    assert "gone.rec" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (ended.records[-1]["key"], ended.records[-1]["metadata"]["status"]) == ("run_stop", "aborted")


def test_run_pipeline_that_cannot_be_imported_is_status_2(
    tmp_path: Path, easy_set: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(base._MODULES, "dali", "no_such_module")
    job = schema.from_dict(job_for(tmp_path, easy_set, data__pipeline="dali"))
    with pytest.raises(JobError, match=r"job\.data\.pipeline: 'dali' cannot be imported"):
        run(job)
    assert not (tmp_path / "result.txt").exists()


def test_run_gpu_that_is_not_here_is_status_2_before_init_start(tmp_path: Path, easy_set: SmallSet) -> None:
    ended = run_worker(job_for(tmp_path, easy_set, device="gpu"))
    assert ended.status == 2
    assert "job.device is gpu" in ended.stderr
    assert "init_start" not in ended.keys


def test_run_other_number_of_records_is_aborted(tmp_path: Path, easy_set: SmallSet) -> None:
    ended = run_worker(job_for(tmp_path, easy_set, data__num_val=24))
    assert ended.status == 1
    assert "25 records, expected 24" in ended.stderr
    assert ended.records[-1]["metadata"]["status"] == "aborted"


def test_run_broken_image_names_file_and_offset(tmp_path: Path, easy_set: SmallSet) -> None:
    broken = tmp_path / "train.rec"
    content = bytearray((easy_set.folder / "train.rec").read_bytes())
    offset = int((easy_set.folder / "train.idx").read_text().splitlines()[3].split()[1])
    content[offset + 32 : offset + 60] = bytes(28)  # behind 8 bytes of record head and 24 of image header
    broken.write_bytes(bytes(content))
    ended = run_worker(job_for(tmp_path, easy_set, data__train_rec=[str(broken)]))
    assert ended.status == 1
    last = ended.stderr.splitlines()[-1]
    assert str(broken) in last
    assert f"offset {offset}: image cannot be decoded" in last


def test_run_rank_log_holds_no_mllog_line_and_the_log_nothing_else(open_run: Ended) -> None:
    assert ":::MLLOG" not in open_run.stdout + open_run.stderr


def test_throughput_run_writes_its_result(tmp_path: Path, easy_set: SmallSet) -> None:
    ended = run_worker(
        job_for(
            tmp_path,
            easy_set,
            kind="throughput",
            schedule__num_batches=6,
            schedule__num_warmup_batches=2,
            schedule__max_epochs=0,
            schedule__eval_batch_per_rank=0,
            model__name="mobilenet0.25",
        )
    )
    assert ended.status == 0, ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["model"], result["num_batches"], result["num_warmup_batches"]) == ("mobilenet0.25", 6, 2)
    assert result["samples_per_s"] == pytest.approx(6 * 8 / result["elapsed_s"])
    assert 0 <= result["data_wait_share"] <= 1
    assert 0 < result["step_time_median_s"] <= result["step_time_p95_s"] <= result["step_time_max_s"]
    assert ended.values("eval_accuracy") == []
    # What is read from the log is what was measured: 6 steps of 8 samples, however many images the set has.
    assert ended.values("train_samples") == [48]
    assert throughput(read_log(ended.log)).samples_per_s == pytest.approx(result["samples_per_s"], rel=0.2)
    assert ended.values("input_pipeline") == [result["pipeline_used"]]
    assert result["pipeline_reason"] is None
    assert (ended.records[-1]["key"], ended.records[-1]["metadata"]["status"]) == ("run_stop", "success")


def test_run_without_the_native_library_logs_what_it_used_and_why(tmp_path: Path, easy_set: SmallSet) -> None:
    island = tmp_path / "mlbench_worker"
    shutil.copytree(schema_folder(), island, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    job = job_for(
        tmp_path,
        easy_set,
        kind="throughput",
        data__pipeline="native",
        schedule__num_batches=2,
        schedule__num_warmup_batches=1,
        schedule__max_epochs=0,
        schedule__eval_batch_per_rank=0,
        model__name="mobilenet0.25",
    )
    ended = run_worker(job, island=island)
    assert ended.status == 0, ended.stderr
    instead = fallback.substitute("libmlbench_native.so is not built (python -m mlbench.worker.native.build)")
    (record,) = [record for record in ended.records if record["key"] == "input_pipeline"]
    assert record["value"] == instead.name
    assert record["metadata"]["reason"] == f"native: {instead.reason}"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["pipeline"] == "native"
    assert (result["pipeline_used"], result["pipeline_reason"]) == (instead.name, f"native: {instead.reason}")
    log = read_log(ended.log)
    assert (log.input_pipeline, log.input_pipeline_reason) == (instead.name, f"native: {instead.reason}")


def schema_folder() -> Path:
    return Path(schema.__file__).parent


def test_run_log_not_writable_is_status_2(tmp_path: Path, easy_set: SmallSet) -> None:
    job = job_for(tmp_path, easy_set)
    job["files"]["mllog"] = str(tmp_path / "no" / "result.txt")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", "mlbench.worker", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("job.files.mllog: ")
    assert done.stderr.count("\n") == 1
