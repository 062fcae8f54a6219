"""What of an environment, a command line and a configuration is kept."""

from __future__ import annotations

import json

import pytest

from mlbench.collect.safety import (
    NOT_KEPT,
    storable_arguments,
    storable_environment,
    without_secrets,
)
from mlbench.secret_names import is_secret_name


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_DEBUG", "INFO", "INFO"),
        ("OMP_NUM_THREADS", "4", "4"),
        ("S3_ENDPOINT", "http://10.1.2.1", "http://10.1.2.1"),
        ("AWS_ENDPOINT_URL", "http://u:hunter2@h", "http://u:***@h"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2", NOT_KEPT),
        ("AWS_ACCESS_KEY_ID", "hunter2", NOT_KEPT),
        ("AWS_SESSION_TOKEN", "hunter2", NOT_KEPT),
        ("SLURM_JOB_TOKEN", "hunter2", NOT_KEPT),
        ("NCCL_AUTH", "hunter2", NOT_KEPT),
        ("SOMETHING_NEW", "hunter2", NOT_KEPT),
        ("MLBENCH_DB_URL", "postgresql://u:hunter2@h/d", "postgresql://u:***@h/d"),
    ],
)
def test_environment_keeps_values_of_listed_names_only(name: str, value: str, kept: str) -> None:
    assert storable_environment({name: value}) == {name: kept}


@pytest.mark.parametrize(
    ("argument", "kept"),
    [
        ("gpus=8", "gpus=8"),
        ("db.url=postgresql://u:hunter2@h/d", "db.url=postgresql://u:***@h/d"),
        ("+extra.api_token=hunter2", "+extra.api_token=***"),
        (
            "hardware.storage.environment.AWS_SECRET_ACCESS_KEY=hunter2",
            "hardware.storage.environment.AWS_SECRET_ACCESS_KEY=***",
        ),
        (
            "hardware.compute.environment={AWS_SECRET_ACCESS_KEY: hunter2, OMP_NUM_THREADS: 4}",
            "hardware.compute.environment=***",
        ),
        ("--db", "--db"),
        ("postgresql://u:hunter2@h/d", "postgresql://u:***@h/d"),
    ],
)
def test_command_line_keeps_no_password(argument: str, kept: str) -> None:
    assert storable_arguments([argument]) == [kept]


def test_configuration_is_masked_at_any_depth() -> None:
    kept = without_secrets(
        {
            "hardware": {"storage": {"environment": {"AWS_SECRET_ACCESS_KEY": "hunter2", "S3_USE_HTTPS": "0"}}},
            "extra": {"list": [{"password": "hunter2"}, "ftp://a:hunter2@h"], "token": None},
            "seed": 7,
        }
    )
    assert "hunter2" not in json.dumps(kept)
    assert kept["hardware"]["storage"]["environment"]["S3_USE_HTTPS"] == "0"
    assert kept["extra"]["token"] is None
    assert kept["seed"] == 7


@pytest.mark.parametrize("name", ["key", "keys", "monkey", "author", "org", "label_smoothing"])
def test_plain_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
