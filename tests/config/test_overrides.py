"""Bad overrides (cases P42, D14): each one clear sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.compose import compose
from mlbench.config import Config
from mlbench.errors import ConfigError
from mlbench.overrides import Schema, repeats


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


KNOWN = "known ones are dgxa100, dss8440, dss8440_a100, dss8440_a30, ecs, f800"
SENTENCES = [
    pytest.param("+hardware=cray", f"unknown hardware profile 'cray'; {KNOWN}", id="unknown profile"),
    pytest.param("+hardware=dgx-a100", f"'dgx-a100'; did you mean 'dgxa100'? {KNOWN}", id="dash"),
    pytest.param("+hardware=dgxa_100", f"'dgxa_100'; did you mean 'dgxa100'? {KNOWN}", id="underscore"),
    pytest.param("+hardware=[dgxa100,f80]", "'f80'; did you mean 'f800'?", id="second of two profiles"),
    pytest.param("hardware=dgxa100", "write +hardware=dgxa100", id="no plus"),
    pytest.param("++hardware=dgxa100", "write +hardware=dgxa100", id="two pluses"),
    pytest.param("hardware=[dgxa100,f800]", "write '+hardware=[dgxa100,f800]'", id="no plus, list"),
    pytest.param("+hardware=[f800,f800]", "names a profile twice", id="profile twice"),
    pytest.param("+launcher=slurm", "write launcher=slurm", id="plus on a group"),
    pytest.param("launcher=sulrm", "'sulrm'; did you mean 'slurm'? known ones are local, mpirun", id="unknown choice"),
    pytest.param("launcher=[local,slurm]", "launcher takes one choice", id="two choices"),
    pytest.param("~data", "the group data cannot be taken away", id="group taken away"),
    pytest.param("training=fast", "training is a section; set one of its keys", id="section as text"),
    pytest.param("db=mysql", "found 'mysql', but db is a section", id="database section as text"),
    pytest.param("hardware.compute=dgxa100", "choose a profile, +hardware=dgxa100", id="profile section as text"),
    pytest.param("gpu=8", "unknown key 'gpu'; did you mean 'gpus'?", id="unknown key"),
    pytest.param("data.paht=x", "did you mean 'data.path'?", id="unknown key of a section"),
    pytest.param("+repeat=3", "unknown key 'repeat'; did you mean 'repeats'?", id="unknown key with plus"),
    pytest.param("division=open", "did you mean 'submission.division'?", id="key of another section"),
    pytest.param("training.batch_size=3", "did you mean 'training.batch_per_rank'?", id="other end of a key"),
    pytest.param("target=0.7", "did you mean 'training.target_accuracy'?", id="beginning of a key"),
    pytest.param("dataset.path=x", "unknown key 'dataset.path'", id="unknown section"),
    pytest.param("gpus.count=3", "gpus is a value and has no keys", id="key of a value"),
    pytest.param("+gpus=3", "write gpus=3 without +", id="plus on a key"),
    pytest.param("~seed", "cannot be taken away", id="key taken away"),
    pytest.param("gpus=many", "gpus: found 'many', expected a whole number or null", id="text for a number"),
    pytest.param("gpus=2.5", "gpus: found '2.5', expected a whole number", id="fraction for a whole number"),
    pytest.param("limits.max_minutes=long", "expected a number", id="text for a fraction"),
    pytest.param("telemetry=maybe", "telemetry: found 'maybe', expected true or false", id="text for a switch"),
    pytest.param("data.train_rec=a.rec", "expected a list, [a,b]", id="text for a list"),
    pytest.param("submission.division=opne", "expected closed or open; did you mean 'open'?", id="unknown division"),
    pytest.param("submission.status=on-prem", "did you mean 'onprem'?", id="unknown status"),
    pytest.param("training.optimizer=adam", "expected sgd or lars", id="unknown optimizer"),
    pytest.param("training.dtype=fp16", "expected float32 or float16", id="unknown type"),
    pytest.param("cache=cold", "expected auto or drop or evict or none", id="unknown cache mode"),
    pytest.param("gpus=8,16", "found several values (8, 16) for one run set", id="two values for one run"),
    pytest.param("gpus=8,16", "add --multirun", id="two values, way on"),
    pytest.param("submission.org=Dell, Inc", "put a text that holds commas into quotes", id="comma in a text"),
    pytest.param("gpus", "expected KEY=VALUE", id="no value"),
    pytest.param(
        "+hardware=[dgxa100,dss8440]", "dgxa100 and dss8440 are each a compute system; choose one", id="two systems"
    ),
    pytest.param("+hardware=[f800,ecs]", "f800 and ecs are each a storage system; choose one", id="two storages"),
    pytest.param(
        "benchmark.stages=[foo]",
        "benchmark.stages: found 'foo', expected a list of allreduce or storage or train, [allreduce]",
        id="element of a list",
    ),
    pytest.param("data.mean_rgb=[a]", "data.mean_rgb: found 'a', expected a list, [0.5,1.0]", id="text in numbers"),
    pytest.param("hosts=[null]", "hosts: found", id="null in a list"),
    pytest.param("=3", "has no plain key", id="no key"),
    pytest.param("data.path=/a/[b]", "put a value with special characters into quotes", id="unquoted brackets"),
    pytest.param("hydra.run.dir=/x", "Hydra's own settings are fixed", id="setting of Hydra"),
    pytest.param(
        "hardware.compute.gpus_per_node=2",
        "no profile has filled hardware.compute; choose a compute profile first, for example +hardware=dgxa100",
        id="section that no profile filled",
    ),
    pytest.param("hardware.storage.iops=2", "for example +hardware=f800", id="storage section not filled"),
]


@pytest.mark.parametrize(("override", "sentence"), SENTENCES)
def test_override_wrong_is_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])

    text = str(caught.value)
    assert sentence in text
    assert "\n" not in text
    assert "To append to your config use" not in text


def test_override_of_compute_with_only_a_storage_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no profile has filled hardware\.compute"):
        compose(["+hardware=f800", "hardware.compute.gpus_per_node=2"])


@pytest.mark.parametrize("key", ["submission.org", "+extra.note", "data.train_rec"])
def test_override_that_takes_a_secret_from_the_environment_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    value = "${oc.env:AWS_SECRET_ACCESS_KEY}"
    with pytest.raises(ConfigError, match="from the variable AWS_SECRET_ACCESS_KEY, which is named like") as caught:
        compose([f"{key}=[{value}]" if key.startswith("data") else f"{key}={value}"])
    assert "hunter2" not in str(caught.value)


def test_override_from_the_environment_is_taken_when_it_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_NAME", "Lab X")
    monkeypatch.setenv("DB_PASSWORD_URL", "postgresql://me@host/db")
    config = compose(["submission.org=${oc.env:LAB_NAME}", "db.url=${oc.env:DB_PASSWORD_URL}"])
    with_variable = compose(["+hardware=ecs", "hardware.storage.environment.S3_SECRET_KEY=${oc.env:DB_PASSWORD_URL}"])
    assert with_variable.hardware.storage is not None
    assert with_variable.hardware.storage.environment["S3_SECRET_KEY"] == "postgresql://me@host/db"
    assert (config.submission.org, config.db.url) == ("Lab X", "postgresql://me@host/db")


def test_override_hardware_given_twice_names_the_one_spelling() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["+hardware=dgxa100", "+hardware=f800"])
    assert str(caught.value) == "+hardware is given twice; write '+hardware=[dgxa100,f800]'"


@pytest.mark.parametrize(
    ("overrides", "sentences"),
    [
        (["gpus=2", "seed=1", "gpus=4"], ["gpus is given twice; the last, 4, counts"]),
        (["gpus=1", "gpus=2", "gpus=3"], ["gpus is given 3 times; the last, 3, counts"]),
        (["benchmark=storage", "benchmark=allreduce"], ["benchmark is given twice; the last, allreduce, counts"]),
        (["+extra.token=a", "extra.token=b"], ["extra.token is given twice; the last, ***, counts"]),
        (["gpus=2", "seed=2", "gpuss=2"], []),
        (["+hardware=dgxa100", "+hardware=f800"], []),  # refused in the next step
        (["extra={a:1}", "extra={b:2}"], []),
    ],
)
def test_repeats_say_each_key_with_the_value_that_counts(overrides: list[str], sentences: list[str]) -> None:
    assert repeats(overrides) == sentences


def test_repeated_mappings_are_put_together() -> None:
    variables = ("NCCL_SOCKET_IFNAME=ib1", "NCCL_BUFFSIZE=4")
    given = [f"hardware.compute.environment={{{variable.replace('=', ':')}}}" for variable in variables]
    compute = compose(["+hardware=dgxa100", *given]).hardware.compute
    assert compute is not None
    assert {f"{name}={value}" for name, value in compute.environment.items()} >= set(variables)


def test_override_of_a_variant_that_stands_on_another_profile_is_taken() -> None:
    config = compose(["+hardware=dss8440_a100", "hardware.compute.gpus_per_node=4"])

    assert config.hardware.compute is not None
    assert config.hardware.compute.gpus_per_node == 4


def test_override_number_for_a_text_is_kept_as_written() -> None:
    assert compose(["submission.org=42"]).submission.org == "42"


def test_override_quoted_text_keeps_comma_and_brackets() -> None:
    assert compose(["submission.org='Dell, [x]'"]).submission.org == "Dell, [x]"


def test_schema_every_key_is_found_and_typed() -> None:
    schema = Schema(Config)
    keys = list(schema.every_key())

    assert "hardware.compute.environment" in keys
    assert all(schema.find(key) is not None for key in keys)
    assert schema.find("training.nothing") is None
