"""Which endpoint is asked, what happens when one fails, and what is said: without a network."""

from __future__ import annotations

from typing import Any

import pytest

from mlbench.worker import s3
from mlbench.worker.pipelines.records import DataFault

botocore_errors = pytest.importorskip("botocore.exceptions", reason="needs boto3")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Net:
    """Endpoints that answer their URL, unless they are down."""

    def __init__(self, urls: list[str], rank: int) -> None:
        self.clock = Clock()
        self.down: set[str] = set()
        self.said: list[str] = []
        self.endpoints = s3.Endpoints(urls, rank, lambda url: url, self.said.append, self.clock.sleep, self.clock)

    def ask(self) -> str:
        def call(client: str) -> tuple[str, int]:
            if client in self.down:
                raise botocore_errors.EndpointConnectionError(endpoint_url=client)
            return client, 10

        return self.endpoints.request("object", call)


URLS = ["http://a", "http://b", "http://c"]


@pytest.mark.parametrize(("rank", "url"), [(0, "http://a"), (1, "http://b"), (2, "http://c"), (3, "http://a")])
def test_request_goes_to_endpoint_rank_modulo_n(rank: int, url: str) -> None:
    assert Net(URLS, rank).ask() == url


def test_request_own_endpoint_down_next_takes_over_and_it_is_said() -> None:
    net = Net(URLS, 1)
    net.down = {"http://b"}
    assert net.ask() == "http://c"
    assert net.said == ["S3 endpoint http://b fails (http://b: EndpointConnectionError); the others take over for 30 s"]
    before = net.clock.now
    assert net.ask() == "http://c"
    assert net.clock.now == before  # the resting endpoint is not asked, so nothing is waited for
    assert [share.num_failures for share in net.endpoints.shares()] == [0, 3, 0]
    assert [share.num_bytes for share in net.endpoints.shares()] == [0, 0, 20]


def test_request_endpoint_back_after_its_rest_is_used_again() -> None:
    net = Net(URLS, 0)
    net.down = {"http://a"}
    net.ask()
    net.down = set()
    net.clock.now += s3.REST_S + 1
    assert net.ask() == "http://a"
    assert net.said[-1] == "S3 endpoint http://a answers again"


def test_request_pause_doubles_between_attempts() -> None:
    net = Net(["http://a"], 0)
    failures: list[float] = []

    def call(_: str) -> tuple[str, int]:
        failures.append(net.clock.now)
        if len(failures) < 3:
            raise botocore_errors.ReadTimeoutError(endpoint_url="http://a")
        return "answer", 0

    assert net.endpoints.request("object", call) == "answer"
    assert failures == pytest.approx([100.0, 100.1, 100.3])


def test_request_all_down_ends_with_the_last_fault() -> None:
    net = Net(URLS, 0)
    net.down = set(URLS)
    with pytest.raises(DataFault, match=r"none of 3 S3 endpoints answers; the last fault: .*EndpointConnectionError"):
        net.ask()


@pytest.mark.parametrize("code", ["NoSuchKey", "AccessDenied"])
def test_request_final_answer_is_not_tried_elsewhere(code: str) -> None:
    net = Net(URLS, 0)
    asked: list[str] = []

    def call(client: str) -> Any:
        asked.append(client)
        raise botocore_errors.ClientError({"Error": {"Code": code}}, "GetObject")

    with pytest.raises(DataFault, match=f"object at http://a: S3 answers {code}"):
        net.endpoints.request("object", call)
    assert asked == ["http://a"]


def test_request_server_error_is_tried_again() -> None:
    net = Net(URLS, 0)
    codes = iter(["503", "SlowDown"])

    def call(client: str) -> tuple[str, int]:
        code = next(codes, None)
        if code:
            raise botocore_errors.ClientError({"Error": {"Code": code}}, "GetObject")
        return client, 0

    assert net.endpoints.request("object", call) == "http://a"


def test_request_without_credentials_is_one_sentence() -> None:
    net = Net(URLS, 0)

    def call(_: str) -> Any:
        raise botocore_errors.NoCredentialsError()

    with pytest.raises(DataFault, match="NoCredentialsError; set AWS_ACCESS_KEY_ID"):
        net.endpoints.request("object", call)


def test_request_bug_is_raised_as_it_is() -> None:
    net = Net(URLS, 0)

    def call(_: str) -> Any:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        net.endpoints.request("object", call)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://", "s3://bucket/", "http://x/y"])
def test_split_url_incomplete_is_refused(url: str) -> None:
    with pytest.raises(DataFault, match="expected s3://bucket/key"):
        s3.split_url(url)


def test_split_url_keeps_slashes_of_the_key() -> None:
    assert s3.split_url("s3://imagenet/train/a.rec") == ("imagenet", "train/a.rec")
