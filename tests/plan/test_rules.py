"""Settings that can never be valid are refused before anything starts (cases P14, P29, D8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlbench.errors import ConfigError
from mlbench.plan.types import Plan

Planned = Callable[..., Plan]
CLOSED = "submission.division=closed"

REFUSED = [
    (["repeats=0"], "repeats=0: expected a whole number of at least 1"),
    (["warmup_runs=-1"], "warmup_runs=-1"),
    (["seed=-1"], "seed=-1"),
    (["limits.max_minutes=0"], "limits.max_minutes=0: expected a number above 0"),
    (["limits.no_record_s=nan"], "limits.no_record_s=nan"),
    (["submission.ruleset=4.0"], "submission.ruleset=4.0: expected one of 0.7.0, .*; did you mean '4.0.0'"),
    (["submission.ruleset=v4.0.0"], "did you mean '4.0.0'"),
    (["submission.ruleset=9.9.9"], "expected one of 0.7.0, 1.0.0, 1.1.0, 2.0.0, 2.1.0, 3.0.0, 3.1.0, 4.0.0"),
    (["launcher.transport=mip"], "did you mean 'mpi'"),
    (["launcher.rehearsal.fault=crahs"], "expected none or crash or .*; did you mean 'crash'"),
    (
        ["launcher.rehearsal.fault_in_run=-1"],
        "fault_in_run=-1: expected a whole number of at least 0",
    ),
    (["launcher.rehearsal.epochs=0"], "launcher.rehearsal.epochs=0"),
    (["+hardware=dgxa100", "hardware.compute.binding=sockets"], "binding: found 'sockets'.*did you mean 'socket'"),
    (["training.target_accuracy=1"], "below 1"),
    (["training.max_epochs=0"], "training.max_epochs=0"),
    (["training.base_learning_rate=0"], "training.base_learning_rate=0"),
    (["benchmark.stages=[]"], "benchmark.stages is empty"),
    (["benchmark.stages=[train,train]"], "names a stage twice"),
    (["benchmark=resnet50_throughput", "benchmark.num_batches=0"], "benchmark.num_batches=0"),
    (["benchmark.allreduce.max_bytes=4"], "benchmark.allreduce.max_bytes=4: expected a whole number of at least 8"),
    (["benchmark.storage.runtime_s=0"], "benchmark.storage.runtime_s=0"),
    (["seed=99999999999999999999"], "seed=99999999999999999999: expected a seed whose"),
    (["hosts=[[a]]"], r"hosts: found \['a'\] in the list, expected texts alone"),
    (["launcher.extra_args=[[a]]"], "launcher.extra_args: found"),
    (["benchmark.stages=[[train]]"], "benchmark.stages: found"),
    (["data.mean_rgb=[1]"], "data.mean_rgb=.*found 1 number, expected 3"),
    (["data.mean_rgb=[[1],2,3]"], "data.mean_rgb: found .* expected finite numbers"),
    (["data.std_rgb=[1,0,1]"], "data.std_rgb=.*above 0"),
    (["data.augmentation.area=[2,1]"], "data.augmentation.area=.*lesser first"),
    (["data.augmentation.area=[1,2]"], "data.augmentation.area=.*at most 1"),
    (["data.num_train=0"], "data.num_train=0: expected a whole number of at least 1"),
    (["data.num_val=1"], "data.num_val=1: 2 ranks cannot share"),
    (["data.num_classes=1"], "data.num_classes=1"),
    (["data.image_px=0"], "data.image_px=0"),
    (["data.num_threads=0"], "data.num_threads=0"),
    (["data.prefetch_batches=0"], "data.prefetch_batches=0"),
    (["data.train_rec=[]"], "data.train_rec is empty"),
    (["data.path=''"], "data.path is empty"),
    (["training.momentum=nan"], "training.momentum=nan: expected a finite number"),
    (["training.momentum=5"], "training.momentum=5: expected a number from 0 to 1"),
    (["training.label_smoothing=2"], "training.label_smoothing=2"),
    (["training.weight_decay=-1"], "training.weight_decay=-1"),
    (["training.base_learning_rate=inf"], "training.base_learning_rate=inf: expected a finite number"),
    (["training.expected_epochs=0"], "training.expected_epochs=0"),
    (["training.warmup_steps=100000"], "training: 100000 steps of warm-up do not fit into the 200 steps"),
    (["limits.max_minutes=inf"], "limits.max_minutes=inf"),
    (["launcher.ssh_timeout_s=0"], "launcher.ssh_timeout_s=0"),
    (["benchmark.model=resnet51"], "benchmark.model=resnet51: no such model; did you mean 'resnet"),
    (["benchmark.model=vgg16", "data.image_px=31"], "data.image_px=31: vgg16 takes images of 32 pixels and more"),
    (
        ["benchmark=resnet50_throughput", "benchmark.model=inceptionv3", "data.image_px=224"],
        "data.image_px=224: inceptionv3 takes images of 299 pixels and more",
    ),
    (["benchmark.model=qqq"], "benchmark.model=qqq: no such model; known ones are resnet50, "),
    ([CLOSED, "repeats=4"], "repeats=4: the closed division scores 5 runs"),
    ([CLOSED, "repeats=6"], "repeats=6: the closed division scores 5 runs"),
    ([CLOSED, "cache=none"], "cache=none: the closed division wants a cold cache"),
    ([CLOSED, "training.target_accuracy=0.7"], "the closed division trains to 0.759"),
    ([CLOSED, "benchmark.model=vgg16"], "is none of MLPerf's"),
]

ECS = "+hardware=[dss8440,ecs]"
SECRET_URLS = (
    "http://user:hush@10.1.2.1",
    "http://user:hu/sh@10.1.2.1",
    "http://hush@10.1.2.1",
    "https://10.1.2.1/?X-Amz-Signature=hush",
    "http://10.1.2.1/#hush",
    "hush@10.1.2.1",
)


@pytest.mark.parametrize("url", SECRET_URLS)
def test_plan_endpoint_with_a_secret_is_refused_and_the_secret_not_told(planned: Planned, url: str) -> None:
    with pytest.raises(ConfigError, match=r"s3_endpoints\[0\]: .*credentials come from the environment") as caught:
        planned(ECS, "gpus=8", f"hardware.storage.s3_endpoints=['{url}']")
    assert "hush" not in str(caught.value)


def test_plan_bucket_with_a_secret_is_refused_and_the_secret_not_told(planned: Planned) -> None:
    with pytest.raises(ConfigError, match=r"data\.path.*expected s3://bucket/prefix") as caught:
        planned(ECS, "gpus=8", "data.path='s3://AKIA:hush@imagenet/train'")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hardware.storage.s3_endpoints=['10.1.2.1']", "no URL of an endpoint"),
        ("hardware.storage.s3_endpoints=['10.1.2.1:9020']", "no URL of an endpoint"),
        ("hardware.storage.s3_endpoints=['ftp://10.1.2.1']", "no URL of an endpoint"),
        ("hardware.storage.s3_endpoints=['http://']", "no URL of an endpoint"),
        ("hardware.storage.s3_endpoints=['http://a b']", "no URL of an endpoint"),
        ("hardware.storage.s3_endpoints=['http://a:99999']", "[Pp]ort"),
        ("hardware.storage.s3_endpoints=['http://[::1']", "expected http://HOST"),
        ("hardware.storage.s3_endpoints=['http://a','http://a']", "twice"),
        ("data.path='s3://'", "no name of a bucket"),
        ("data.path='s3:///train'", "no name of a bucket"),
        ("data.path='s3://a b/train'", "no name of a bucket"),
        ("data.train_rec=['train-*.rec']", r"data.train_rec: a pattern \(train-\*.rec\)"),
    ],
)
def test_plan_object_store_that_could_not_be_asked_is_refused(planned: Planned, override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        planned(ECS, "gpus=8", override)


def test_plan_throughput_of_few_steps_needs_no_room_for_the_warm_up_of_a_training(planned: Planned) -> None:
    optimizer = planned("benchmark=resnet50_throughput", "training.batch_per_rank=320").optimizer
    assert optimizer.decay_steps >= optimizer.warmup_steps == 20


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED, ids=[" ".join(overrides) for overrides, _ in REFUSED])
def test_plan_setting_that_cannot_be_valid_is_refused(planned: Planned, overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        planned(*overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        [CLOSED],
        [CLOSED, "+hardware=dgxa100", "gpus=32"],
        ["repeats=1", "cache=none", "training.target_accuracy=0.5"],
        [CLOSED, "benchmark=allreduce", "repeats=1"],
    ],
    ids=" ".join,
)
def test_plan_setting_that_is_allowed_is_taken(planned: Planned, overrides: list[str]) -> None:
    assert planned(*overrides).num_ranks >= 2
