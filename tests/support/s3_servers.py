"""Five real S3 servers on loopback that hold the same bucket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

NUM_SERVERS = 5
START_S = 60.0


class Servers:
    """Five S3 servers that hold the same bucket."""

    def __init__(self, files: list[tuple[str, str]]) -> None:
        self.urls: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for _ in range(NUM_SERVERS):
            port = _free_port()
            argv = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            self.processes.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.urls.append(f"http://127.0.0.1:{port}")
        for url in self.urls:
            _upload(url, files)

    def kill(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait(10)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _upload(url: str, files: list[tuple[str, str]]) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=url)
    deadline = time.monotonic() + START_S
    while True:
        try:
            client.create_bucket(Bucket="imagenet")
            break
        except Exception:  # not listening yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    for path, key in files:
        client.upload_file(path, "imagenet", key)


def set_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the test, where AWS's tools look; nothing of the machine's own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-id-of-the-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
