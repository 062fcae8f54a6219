"""Which endpoint is asked, what happens when one fails, and what is said: without a network."""

from __future__ import annotations

import sys
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


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "ExpiredToken"), (400, "InvalidToken"), (403, "RequestTimeTooSkewed"), (301, "PermanentRedirect"),
     (400, "400"), (405, "MethodNotAllowed"), (416, "InvalidRange")],
)  # fmt: skip
def test_request_refusal_that_is_the_same_everywhere_ends_at_once(status: int, code: str) -> None:
    net = Net(URLS, 0)

    def call(_: str) -> Any:
        answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise botocore_errors.ClientError(answer, "GetObject")

    with pytest.raises(DataFault, match=f"object at http://a: S3 answers {code}"):
        net.endpoints.request("object", call)
    assert net.clock.now == 100.0


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "RequestTimeout"), (408, "408"), (429, "TooManyRequests"), (500, "InternalError"), (503, "SlowDown")],
)
def test_request_refusal_of_a_busy_endpoint_is_tried_elsewhere(status: int, code: str) -> None:
    net = Net(URLS, 0)

    def call(client: str) -> tuple[str, int]:
        if client == "http://a":
            answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise botocore_errors.ClientError(answer, "GetObject")
        return client, 0

    assert net.endpoints.request("object", call) == "http://b"


def test_request_without_boto3_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither of the two is there: what sorts the faults must not need them.
    for name in ("boto3", "botocore", "botocore.config", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    endpoints = s3.Endpoints(URLS, 0, s3.client_maker(1), lambda _: None)
    with pytest.raises(DataFault, match="need boto3, which cannot be imported"):
        endpoints.request("object", lambda client: (client, 0))


class Body:
    """What get_object gives to read, endless unless it is told where to stop."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.closed = False

    def read(self, amount: int | None = None) -> bytes:
        assert amount is not None or self.length is not None, "reads without end"
        return b"x" * min(number for number in (amount, self.length) if number is not None)

    def close(self) -> None:
        self.closed = True


class Client:
    """An endpoint whose answers to a ranged GET are of another length than was asked."""

    def __init__(self, length: int | None, stated: int | None) -> None:
        self.body = Body(length)
        self.stated = stated

    def get_object(self, **_: object) -> dict[str, Any]:
        return {"Body": self.body, **({} if self.stated is None else {"ContentLength": self.stated})}


@pytest.mark.parametrize(
    ("length", "stated", "reason"),
    [
        (None, 150_000_000_000, "answers with 150000000000 bytes, asked for 100"),
        (None, None, "answers with more bytes than the 100 asked for"),
        (40, 40, "answers with 40 bytes, asked for 100"),
        (40, None, "answers with 40 bytes, asked for 100"),
    ],
)
def test_read_range_answer_of_another_length_is_not_read_to_its_end(
    length: int | None, stated: int | None, reason: str
) -> None:
    clock, said = Clock(), []  # type: ignore[var-annotated]
    good, bad = Client(100, 100), Client(length, stated)
    clients = {"http://a": bad, "http://b": good}
    endpoints = s3.Endpoints(list(clients), 0, clients.__getitem__, said.append, clock.sleep, clock)

    assert s3.read_range(endpoints, "imagenet", "train.rec", 0, 100) == b"x" * 100
    assert said == [f"S3 endpoint http://a fails (http://a: {reason}); the others take over for 30 s"]
    assert bad.body.closed


def test_shares_and_sayings_show_no_password_of_an_endpoint() -> None:
    net = Net(["http://user:hush@a", "http://b"], 0)
    net.down = {"http://user:hush@a"}
    net.ask()
    assert net.said
    assert "hush" not in f"{net.said} {net.endpoints.shares()}"
    net.down = {"http://user:hush@a", "http://b"}
    with pytest.raises(DataFault) as caught:
        net.ask()
    assert "hush" not in str(caught.value)
