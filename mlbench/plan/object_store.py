"""Settings of an object store that could never work, or would put a secret into every file of the run set."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from mlbench.config import Config
from mlbench.errors import ConfigError
from mlbench.secret_names import MASK

S3 = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_CREDENTIALS = "credentials come from the environment (AWS_ACCESS_KEY_ID), ~/.aws or AWS_PROFILE"


def check_object_store(config: Config) -> None:
    """Raise ConfigError for an endpoint that is no plain URL, or a `data.path` that names no bucket."""
    storage = config.hardware.storage
    for number, url in enumerate(storage.s3_endpoints if storage is not None else []):
        _check_endpoint(f"hardware.storage.s3_endpoints[{number}]", url)
    if storage is not None and len(set(storage.s3_endpoints)) != len(storage.s3_endpoints):
        raise ConfigError("hardware.storage.s3_endpoints: one stands there twice; expected each endpoint once")
    if not config.data.path.startswith(S3):
        return
    bucket = config.data.path[len(S3) :].partition("/")[0]
    if "@" in bucket:
        raise ConfigError(f"data.path={S3}{MASK}@...: expected s3://bucket/prefix; {_CREDENTIALS}")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"data.path={config.data.path}: {bucket!r} is no name of a bucket; expected s3://bucket/prefix"
        )
    for key in ("train_rec", "val_rec"):
        for name in getattr(config.data, key):
            if "*" in name:
                raise ConfigError(f"data.{key}: a pattern ({name}) cannot be asked of a bucket; name each file")


def _check_endpoint(key: str, url: str) -> None:
    expected = "expected http://HOST, http://HOST:PORT or https://..."
    if "@" in url:
        raise ConfigError(f"{key}: a user or password stands in the URL; {expected}; {_CREDENTIALS}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{key}={url}: {error}; {expected}") from error
    if parts.query or parts.fragment or "?" in url:
        raise ConfigError(f"{key}: something stands behind the path of the URL; {expected}; {_CREDENTIALS}")
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url):
        raise ConfigError(f"{key}={url}: no URL of an endpoint; {expected}")
