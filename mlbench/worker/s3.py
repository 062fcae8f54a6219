"""Records read straight from a bucket: one ranged GET a record, rank r at endpoint r mod n, the others in reserve.

Credentials come from where AWS's tools look for them (environment, ~/.aws, instance role) and are neither logged nor
stored. A request that fails is tried again after a pause that doubles; an endpoint that fails RETRIES times in a row is
left alone for REST_S and the next one takes over, which is said on stderr. Nothing is lost as long as one endpoint
answers. boto3 is imported inside functions.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Deque, Iterable, Iterator, List, NamedTuple, Sequence, Tuple, TypeVar

from .pipelines.records import DataFault, RecordSet
from .recordio import Index, parse_index

RETRIES = 3
"""Attempts at one endpoint before the next takes over."""
FIRST_PAUSE_S = 0.1
REST_S = 30.0
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 20.0
ROUNDS = 3
"""Times that every endpoint is tried before the run ends."""
REQUESTS_PER_THREAD = 4
"""Requests in flight for each decoding thread: a request waits, a decoder computes."""
BATCHES_AHEAD = 3
"""Batches whose records are asked for before they are needed."""
_T = TypeVar("_T")


class EndpointShare(NamedTuple):
    """What one endpoint delivered to this rank."""

    endpoint: str
    num_requests: int
    num_bytes: int
    num_failures: int


class _Endpoint:
    """One endpoint with its client and its record of service; the lock of Endpoints guards the counters."""

    def __init__(self, url: str, make_client: Callable[[str], Any]) -> None:
        self.url = _shown(url)
        self._asked = url
        self._make = make_client
        self._client: Any = None
        self._lock = threading.Lock()
        self.num_requests = 0
        self.num_bytes = 0
        self.num_failures = 0
        self.resting_until = 0.0

    def client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._make(self._asked)
            return self._client


def _shown(url: str) -> str:
    """A URL as it may be told. The plan takes none with a user in it; a job of another's making may have one."""
    return re.sub(r"//.*@", "//***@", url)


def client_maker(max_connections: int) -> Callable[[str], Any]:
    """Clients without retries of their own: those would hide a failing endpoint."""

    def make(url: str) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise DataFault("records of a bucket need boto3, which cannot be imported (%s)" % error)
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": 1},
            max_pool_connections=max_connections,
            s3={"addressing_style": "path"},
        )
        return boto3.session.Session().client("s3", endpoint_url=url or None, config=config)

    return make


class Endpoints:
    """Requests to a set of equal endpoints, this rank's own first. Safe to use from many threads."""

    def __init__(
        self,
        urls: Sequence[str],
        rank: int,
        make_client: Callable[[str], Any],
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        num_rounds: int = ROUNDS,
        num_attempts: int = RETRIES,
    ) -> None:
        self._all = [_Endpoint(url, make_client) for url in (urls or [""])]
        self._first = rank % len(self._all)
        self._lock = threading.Lock()
        self._say = say
        self._sleep = sleep
        self._clock = clock
        self._num_rounds = num_rounds
        self._num_attempts = num_attempts

    def _order(self) -> List[_Endpoint]:
        """Own endpoint, then the following ones; those at rest last."""
        ring = self._all[self._first :] + self._all[: self._first]
        now = self._clock()
        return sorted(ring, key=lambda endpoint: endpoint.resting_until > now)

    def _attempts(self, endpoint: _Endpoint) -> int:
        """Attempts that it is worth now. One that has rested gets one, and only one caller finds out."""
        with self._lock:
            if not endpoint.resting_until:
                return self._num_attempts
            endpoint.resting_until = max(endpoint.resting_until, self._clock() + REST_S)
            return 1

    def request(self, what: str, call: Callable[[Any], Tuple[_T, int]]) -> _T:
        """The answer to `call(client)`, which gives (answer, bytes), from the first endpoint that answers.

        Raises DataFault: none answers, or the answer is that there is no such object or no right to read it."""
        last = ""
        for attempt_round in range(self._num_rounds):
            for endpoint in self._order():
                for attempt in range(self._attempts(endpoint)):
                    try:
                        answer, num_bytes = call(endpoint.client())
                    except DataFault:
                        raise
                    except Exception as error:  # noqa: BLE001  # sorted below: a fault of the endpoint, or raised
                        last = self._failed(endpoint, error, what)
                        if endpoint.resting_until > self._clock():
                            break  # another caller has given it up meanwhile
                        self._sleep(FIRST_PAUSE_S * 2**attempt)
                        continue
                    self._served(endpoint, num_bytes)
                    return answer
                self._rest(endpoint, last)
            if attempt_round + 1 < self._num_rounds:
                self._sleep(FIRST_PAUSE_S * 2 ** (RETRIES + attempt_round))
        raise DataFault("%s: none of %d S3 endpoints answers; the last fault: %s" % (what, len(self._all), last))

    def _served(self, endpoint: _Endpoint, num_bytes: int) -> None:
        with self._lock:
            endpoint.num_requests += 1
            endpoint.num_bytes += num_bytes
            if endpoint.resting_until:
                endpoint.resting_until = 0.0
                self._say("S3 endpoint %s answers again" % endpoint.url)

    def _failed(self, endpoint: _Endpoint, error: Exception, what: str) -> str:
        """Count a failure of the endpoint and describe it; raise what another endpoint would not mend."""
        reason = _endpoint_fault(error)
        if reason is None:
            final = _final_fault(error)
            if final is None:
                raise error
            raise DataFault("%s at %s: %s" % (what, endpoint.url or "AWS", final)) from None
        with self._lock:
            endpoint.num_failures += 1
        return "%s: %s" % (endpoint.url or "AWS", reason)

    def _rest(self, endpoint: _Endpoint, reason: str) -> None:
        with self._lock:
            if not endpoint.resting_until:
                self._say("S3 endpoint %s fails (%s); the others take over for %d s" % (endpoint.url, reason, REST_S))
            endpoint.resting_until = self._clock() + REST_S

    def shares(self) -> List[EndpointShare]:
        """What each endpoint delivered so far, in the order of the job."""
        with self._lock:
            return [EndpointShare(e.url, e.num_requests, e.num_bytes, e.num_failures) for e in self._all]


_FINAL_CODES = (
    "NoSuchKey",
    "NoSuchBucket",
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "404",
    "403",
)
_BUSY_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests")
_BUSY_STATUS = (408, 425, 429)


def _is_final(error: Any) -> bool:
    """Whether a refusal would be the same from every endpoint and at every time."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _FINAL_CODES:
        return True
    return 300 <= status < 500 and status not in _BUSY_STATUS and code not in _BUSY_CODES


def _endpoint_fault(error: Exception) -> Any:
    """Why another attempt or endpoint may help; None when it is no fault of an endpoint."""
    if isinstance(error, _OtherLength):
        return str(error)
    from botocore import exceptions as boto
    from botocore.exceptions import ClientError

    broken_line = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError)
    if isinstance(error, broken_line + (OSError,)):
        return type(error).__name__
    if isinstance(error, ClientError):
        return None if _is_final(error) else "answers %s" % error.response.get("Error", {}).get("Code", "")
    return None


def _final_fault(error: Exception) -> Any:
    """A sentence for the user on an answer that stands; None when it is a bug. Never shows credentials."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        return "S3 answers %s" % error.response.get("Error", {}).get("Code", "")
    if isinstance(error, BotoCoreError):
        return "%s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials" % type(error).__name__
    return None


class _OtherLength(Exception):
    """Not as many bytes as asked for."""


def split_url(url: str) -> Tuple[str, str]:
    """(bucket, key) of `s3://bucket/key`. Raises DataFault."""
    bucket, _, key = url[len("s3://") :].partition("/")
    if not url.startswith("s3://") or not bucket or not key:
        raise DataFault("%s: expected s3://bucket/key" % url)
    return bucket, key


class BucketSource:
    """Records of objects; see pipelines.records.open_source for the interface."""

    def __init__(self, endpoints: Endpoints, recs: Sequence[str], indexes: Sequence[Index], sizes: Sequence[int],
                 expected: int, num_requests: int) -> None:  # fmt: skip
        self.endpoints = endpoints
        self.records = RecordSet(recs, indexes, sizes, expected)
        self._objects = [split_url(url) for url in recs]
        self._pool = ThreadPoolExecutor(num_requests, thread_name_prefix="s3")

    def read(self, number: int) -> bytes:
        """The whole record. Raises DataFault when no endpoint delivers it."""
        place = self.records.place(number)
        bucket, key = self._objects[place.file]
        return read_range(self.endpoints, bucket, key, place.offset, place.extent)

    def read_ahead(self, asked: Iterable[Tuple[_T, Iterable[int]]]) -> Iterator[Tuple[_T, List[bytes]]]:
        """(what, records) for each (what, numbers), in order; the records of the next ones are on their way."""
        waiting: Deque[Tuple[_T, List["Future[bytes]"]]] = deque()
        try:
            for what, numbers in asked:
                waiting.append((what, [self._pool.submit(self.read, int(number)) for number in numbers]))
                if len(waiting) > BATCHES_AHEAD:
                    first, futures = waiting.popleft()
                    yield first, [future.result() for future in futures]
            while waiting:
                first, futures = waiting.popleft()
                yield first, [future.result() for future in futures]
        finally:
            for _, futures in waiting:
                for future in futures:
                    future.cancel()

    def close(self) -> None:
        """End the requests and say on stderr what each endpoint delivered."""
        self._pool.shutdown()
        for share in self.endpoints.shares():
            print(
                "S3 endpoint %s: %d requests, %d bytes, %d failures"
                % (share.endpoint or "AWS", share.num_requests, share.num_bytes, share.num_failures),
                file=sys.stderr,
            )


def read_range(endpoints: Endpoints, bucket: str, key: str, offset: int, length: int) -> bytes:
    """`length` bytes of an object. Raises DataFault."""

    def call(client: Any) -> Tuple[bytes, int]:
        answer = client.get_object(Bucket=bucket, Key=key, Range="bytes=%d-%d" % (offset, offset + length - 1))
        return _body(answer, length), length

    return endpoints.request("s3://%s/%s, offset %d" % (bucket, key, offset), call)


def _body(answer: Any, length: int) -> bytes:
    """The bytes of an answer. One that ignores the range may be the whole object: it is not read to its end."""
    body, stated = answer["Body"], answer.get("ContentLength")
    if stated is not None and stated != length:
        body.close()
        raise _OtherLength("answers with %d bytes, asked for %d" % (stated, length))
    found: bytes = body.read() if stated is not None else body.read(length + 1)
    if len(found) != length:
        body.close()
        told = "answers with %d bytes, asked for %d" % (len(found), length)
        raise _OtherLength(told if len(found) < length else "answers with more bytes than the %d asked for" % length)
    return found


def read_index_of(endpoints: Endpoints, url: str) -> Index:
    """The index of an object, or of a local file, held in memory. Raises DataFault, RecordFault, OSError."""
    if not url.startswith("s3://"):
        with open(url, "rb") as stream:
            return parse_index(stream, url)
    bucket, key = split_url(url)

    def call(client: Any) -> Tuple[bytes, int]:
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body, len(body)

    return parse_index(endpoints.request(url, call).splitlines(keepends=True), url)


def object_size(endpoints: Endpoints, url: str) -> int:
    """Bytes of an object. Raises DataFault."""
    bucket, key = split_url(url)

    def call(client: Any) -> Tuple[int, int]:
        return int(client.head_object(Bucket=bucket, Key=key)["ContentLength"]), 0

    return endpoints.request(url, call)


def open_bucket_source(
    urls: Sequence[str], rank: int, recs: Sequence[str], idxs: Sequence[str], expected: int, num_threads: int
) -> BucketSource:
    """Read the indexes and be ready for the records. Raises DataFault, RecordFault, OSError."""
    num_requests = max(1, num_threads) * REQUESTS_PER_THREAD
    endpoints = Endpoints(urls, rank, client_maker(num_requests), lambda text: print(text, file=sys.stderr))
    sizes = [object_size(endpoints, url) for url in recs]
    indexes = [read_index_of(endpoints, url) for url in idxs]
    return BucketSource(endpoints, recs, indexes, sizes, expected, num_requests)
