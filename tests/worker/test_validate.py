"""A bad job is refused in one sentence that begins with the key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker import job as schema
from mlbench.worker.__main__ import main
from mlbench.worker.job import Job, JobError
from mlbench.worker.validate import TrainingJob, check
from tests.worker.conftest import SmallSet, job_for

MakeJob = Callable[..., Job]


def test_check_good_job_has_all_sections(make_job: MakeJob) -> None:
    checked = check(make_job())
    assert isinstance(checked, TrainingJob)
    assert checked.schedule.batch_per_rank == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "dance"}, "job.kind: found 'dance', expected one of train, throughput"),
        ({"model": None}, "job.model: null, but a job of kind 'train' needs it"),
        ({"num_ranks": "2"}, "job.num_ranks: found '2', expected int"),
        ({"num_ranks": True}, "job.num_ranks: found True, expected int"),
        ({"num_ranks": 0}, "job.num_ranks: found 0, expected at least 1"),
        ({"cache_clear": "yes"}, "job.cache_clear: found 'yes', expected bool"),
        ({"device": "tpu"}, "job.device: found 'tpu', expected one of cpu, gpu"),
        ({"environment": {"A": 1}}, "job.environment: found 1, expected str"),
        ({"model__name": "resnet51"}, "job.model.name: found 'resnet51', expected one of resnet50"),
        ({"model__dtype": "float16"}, "job.model: found layout NCHW and dtype float16 on the CPU"),
        ({"model__layout": "NHWC"}, "job.model: found layout NHWC and dtype float32 on the CPU"),
        (
            {"device": "gpu", "model__name": "vgg16", "model__layout": "NHWC"},
            "job.model.layout: found 'NHWC', expected NCHW",
        ),
        ({"data__pipeline": "magic"}, "job.data.pipeline: found 'magic', expected one of mxnet, native, dali"),
        ({"data__mean_rgb": 127.5}, "job.data.mean_rgb: found 127.5, expected a list of 3"),
        ({"data__mean_rgb": [1, 2]}, "job.data.mean_rgb: found (1, 2), expected a list of 3"),
        ({"data__std_rgb": [1, 0, 1]}, "job.data.std_rgb: found (1, 0, 1), expected numbers above 0"),
        ({"data__train_idx": []}, "job.data.train_rec: found 1 files and 0 indexes"),
        ({"data__train_rec": "a.rec"}, "job.data.train_rec: found 'a.rec', expected a list"),
        ({"data__num_train": 0}, "job.data.num_train: found 0, expected at least 1"),
        ({"optimizer__name": "adam"}, "job.optimizer.name: found 'adam', expected one of sgd, lars"),
        ({"optimizer__momentum": 1.5}, "job.optimizer.momentum: found 1.5, expected 0.0 to 1.0"),
        ({"optimizer__base_learning_rate": float("nan")}, "job.optimizer.base_learning_rate: found nan"),
        ({"optimizer__decay_steps": 3}, "job.optimizer.decay_steps: found 3, expected at least 4"),
        ({"optimizer__gradient_accumulation_steps": 0}, "job.optimizer.gradient_accumulation_steps: found 0"),
        ({"schedule__eval_period": 0}, "job.schedule.eval_period: found 0, expected at least 1"),
        ({"schedule__target_accuracy": 75.9}, "job.schedule.target_accuracy: found 75.9, expected 0.0 to 1.0"),
        ({"kind": "throughput"}, "job.schedule.num_batches: found 0, expected at least 1"),
    ],
)
def test_check_bad_value_is_one_sentence(make_job: MakeJob, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(JobError) as caught:
        check(make_job(**changes))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_check_every_section_is_looked_into(make_job: MakeJob) -> None:
    """No field of the schema escapes the type check: each set to an object is refused by its name."""
    good = make_job()
    for section in ("files", "submission", "model", "data", "optimizer", "schedule"):
        value = getattr(good, section)
        for field in dataclasses.fields(value):
            broken = dataclasses.replace(good, **{section: dataclasses.replace(value, **{field.name: object()})})
            with pytest.raises(JobError, match=rf"^job\.{section}\.{field.name}: found "):
                check(broken)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "Expecting property name"),
        ("[]", "job: found list, expected an object"),
        ('{"schema_version": 99}', "job: schema_version 99, expected 1"),
        ('{"schema_version": 1, "colour": "red"}', "job: unknown keys ['colour'], missing keys"),
    ],
)
def test_main_bad_file_is_status_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("section", [None, "model", "data", "optimizer", "schedule"])
def test_main_key_missing_or_unknown_is_status_2_before_init_start(
    tmp_path: Path, easy_set: SmallSet, capsys: pytest.CaptureFixture[str], section: str | None
) -> None:
    whole = job_for(tmp_path, easy_set)
    part = whole if section is None else whole[section]
    part.pop(next(reversed(part)))
    part["surprise"] = 1
    path = tmp_path / "job.json"
    path.write_text(json.dumps(whole))
    assert main([str(path)]) == 2
    said = capsys.readouterr().err
    assert "unknown keys ['surprise'], missing keys ['" in said
    assert not (tmp_path / "result.txt").exists()


def test_main_without_argument_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_dump_and_load_give_the_same_job(tmp_path: Path, make_job: MakeJob) -> None:
    job = make_job()
    path = tmp_path / "job.json"
    path.write_text(schema.dump(job))
    assert schema.load(str(path)) == job
