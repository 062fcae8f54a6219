"""The data set in a bucket, looked at before run 1; against a real S3 server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlbench.dataset.digits import make_digits
from mlbench.plan.types import Plan
from mlbench.preflight.check import Outcome
from mlbench.preflight.folders import check_data
from tests.support.s3_servers import set_credentials

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
Planned = Callable[..., Plan]
FILES = ("train.rec", "train.idx", "val.rec", "val.idx")


class Store:
    """One server with the digits in a bucket."""

    def __init__(self, url: str, client: Any, folder: Path) -> None:
        self.url = url
        self.client = client
        for name in FILES:
            client.upload_file(str(folder / name), "digits", f"set/{name}")

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket="digits", Key=f"set/{name}", Body=content)

    def get(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket="digits", Key=f"set/{name}")["Body"].read()
        return content


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    moto = pytest.importorskip("moto.server", reason="needs moto[server]")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def store(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    import boto3

    set_credentials(monkeypatch)
    make_digits(tmp_path / "digits")
    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket="digits")
    return Store(server, client, tmp_path / "digits")


def _check(planned: Planned, *urls: str, path: str = "s3://digits/set", more: tuple[str, ...] = ()) -> Any:
    endpoints = ",".join(f"'{url}'" for url in urls)
    return check_data(
        planned("+hardware=ecs", f"hardware.storage.s3_endpoints=[{endpoints}]", f"data.path={path}", *more)
    )


def test_check_data_in_a_bucket_that_is_sound_passes(planned: Planned, store: Store) -> None:
    check = _check(planned, store.url)
    assert (check.outcome, check.found) == (
        Outcome.passed,
        "s3://digits/set: 640 training and 1157 validation images",
    )


def test_check_data_in_a_bucket_one_endpoint_down_asks_the_next(planned: Planned, store: Store) -> None:
    assert _check(planned, "http://127.0.0.1:9", store.url).outcome is Outcome.passed


@pytest.mark.parametrize("path", ["s3://nosuch/set", "s3://digits/nosuch"])
def test_check_data_that_is_not_in_the_bucket_fails_before_run_1(planned: Planned, store: Store, path: str) -> None:
    check = _check(planned, store.url, path=path)
    assert check.outcome is Outcome.failed
    assert f"{path}/train.rec at {store.url}: S3 answers 404" in check.found


def test_check_data_no_endpoint_answers_fails_here(planned: Planned, store: Store) -> None:
    check = _check(planned, "http://127.0.0.1:9")
    assert check.outcome is Outcome.failed
    assert "none of 1 S3 endpoints answers" in check.found


def test_check_data_asked_by_hosts_elsewhere_is_not_judged_by_what_is_lacking_here(
    planned: Planned, store: Store
) -> None:
    check = _check(planned, "http://127.0.0.1:9", more=("launcher=mpirun", "hosts=[a:1,b:1]"))
    assert (check.outcome, check.required) == (Outcome.not_checked, False)


def test_check_data_without_credentials_fails_before_run_1(
    planned: Planned, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    check = _check(planned, store.url)
    assert check.outcome is Outcome.failed
    assert "NoCredentialsError" in check.found


def _of_another_file(store: Store) -> None:
    store.put("train.idx", store.get("val.idx"))


def _cut_short(store: Store) -> None:
    store.put("train.rec", store.get("train.rec")[:-20])


def _no_magic(store: Store) -> None:
    store.put("train.rec", bytes(4) + store.get("train.rec")[4:])


def _no_index(store: Store) -> None:
    store.put("train.idx", b"")


def _no_numbers(store: Store) -> None:
    store.put("train.idx", b"a\tb\n")


def _too_few(store: Store) -> None:
    store.put("val.rec", store.get("train.rec"))
    store.put("val.idx", store.get("train.idx"))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_of_another_file, "the index names offsets .*: it is of another file"),
        (_cut_short, "train.rec.*offset"),
        (_no_magic, "train.rec: offset 0: bad magic 0x00000000"),
        (_no_index, "train.rec: .* empty index"),
        (_no_numbers, "train.idx: offset 0: index line"),
        (_too_few, "val.idx: 640 records, expected 1157"),
    ],
)
def test_check_data_in_a_bucket_that_is_damaged_names_the_object(
    planned: Planned, store: Store, damage: Callable[[Store], None], found: str
) -> None:
    damage(store)
    check = _check(planned, store.url)
    assert check.outcome is Outcome.failed
    assert re.search(found, check.found), check.found
