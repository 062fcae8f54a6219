"""Hosts for tests, on this machine: each has network, process numbers and name of its own; the files are shared.

    hosts.py up HOST...              make them, say on standard output where their agent is, stay until killed
    hosts.py agent HOST COMMAND...   run a command there, as ssh does: what mpirun's plm_rsh_agent is given
    hosts.py serve                   (inside a host) the counterpart of the agent

A host is a network namespace on a bridge, and a process namespace: what runs there can neither be seen nor be ended
from outside by its number, and as with sshd it stays when the connection breaks. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PORT = 7022
SUBNET = "10.213.7"
_HEAD = struct.Struct("!cI")
_OUT, _ERR, _IN, _EXIT = b"o", b"e", b"i", b"x"
_NETNS_FILES = Path("/etc/netns")


def send_frame(sock: socket.socket, lock: threading.Lock, kind: bytes, data: bytes) -> None:
    with lock:
        sock.sendall(_HEAD.pack(kind, len(data)) + data)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ConnectionError("the other side is gone")
        data += chunk
    return data


def read_frame(sock: socket.socket) -> tuple[bytes, bytes]:
    kind, length = _HEAD.unpack(read_exactly(sock, _HEAD.size))
    return kind, read_exactly(sock, length)


def serve() -> None:
    """Accept commands for ever."""
    server = socket.create_server(("", PORT), backlog=32)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_serve_one, args=(connection,), daemon=True).start()


def _serve_one(connection: socket.socket) -> None:
    _, command = read_frame(connection)
    process = subprocess.Popen(
        ["sh", "-c", command.decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    lock = threading.Lock()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    def pump(kind: bytes, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 65536):
                send_frame(connection, lock, kind, data)

    def feed(descriptor: int) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            while True:
                _, data = read_frame(connection)
                if not data:
                    break
                os.write(descriptor, data)
        process.stdin.close()  # type: ignore[union-attr]

    pumps = [
        threading.Thread(target=pump, args=(_OUT, process.stdout.fileno())),
        threading.Thread(target=pump, args=(_ERR, process.stderr.fileno())),
    ]
    for thread in pumps:
        thread.start()
    threading.Thread(target=feed, args=(process.stdin.fileno(),), daemon=True).start()
    status = process.wait()
    for thread in pumps:
        thread.join()
    with contextlib.suppress(OSError):
        send_frame(connection, lock, _EXIT, struct.pack("!i", status))
        connection.close()


def agent(host: str, words: list[str]) -> int:
    """Run `words`, joined with blanks as ssh does, on `host`."""
    try:
        connection = socket.create_connection((host, PORT), timeout=5)
    except OSError as error:
        sys.stderr.write(f"agent: {host}: {error}\n")
        return 255
    connection.settimeout(None)
    lock = threading.Lock()
    send_frame(connection, lock, _IN, " ".join(words).encode())

    def feed() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, 65536):
                send_frame(connection, lock, _IN, data)
            send_frame(connection, lock, _IN, b"")

    threading.Thread(target=feed, daemon=True).start()
    while True:
        try:
            kind, data = read_frame(connection)
        except ConnectionError:
            return 255
        if kind == _EXIT:
            status = int(struct.unpack("!i", data)[0])
            return status if status >= 0 else 128 - status
        os.write(1 if kind == _OUT else 2, data)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Namespaces that exist until `down`. Names get a prefix of their own, so that test runs do not meet."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._tag = f"mb{os.getpid() % 100000}"
        self._subnet = f"{SUBNET.rpartition('.')[0]}.{os.getpid() % 250 + 1}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def address(self, host: str) -> str:
        return f"{self._subnet}.{self.names.index(host) + 1}"

    def _namespace(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def up(self) -> None:
        switch = f"{self._tag}-sw"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        table = "127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.names)
        for index, host in enumerate(self.names):
            space = self._namespace(host)
            files = _NETNS_FILES / space
            files.mkdir(parents=True)
            (files / "hosts").write_text(table)
            _ip("netns", "add", space)
            _ip("-n", switch, "link", "add", f"p{index}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", switch, "link", "set", f"p{index}", "master", "br0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            inner = f"hostname {host} && exec {sys.executable} {Path(__file__).resolve()} serve"
            self._processes.append(
                subprocess.Popen(
                    [
                        *f"ip netns exec {space} unshare --pid --fork --kill-child --mount-proc --uts sh -c".split(),
                        inner,
                    ],
                    stdin=subprocess.DEVNULL,
                )
            )
        for host in self.names:
            self._wait_ready(host)

    def _wait_ready(self, host: str) -> None:
        deadline = time.monotonic() + 20
        while subprocess.run(self.on(host, "true"), capture_output=True).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{host} does not answer")
            time.sleep(0.1)

    def on(self, host: str, *words: str) -> list[str]:
        """The command that runs `words` on `host`, to be run from outside."""
        program = [sys.executable, str(Path(__file__).resolve()), "agent"]
        return ["ip", "netns", "exec", self._namespace(host), *program, "localhost", *words]

    def down(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for name in [*self.names, "sw"]:
            subprocess.run(["ip", "netns", "delete", self._namespace(name)], capture_output=True, check=False)
            shutil.rmtree(_NETNS_FILES / self._namespace(name), ignore_errors=True)


def write_agent(folder: Path) -> Path:
    """A program for mpirun's plm_rsh_agent and mlbench's launcher.rsh_agent: takes HOST COMMAND..., as ssh."""
    path = folder / "rsh_agent"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} agent "$@"\n')
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def running(names: list[str]) -> Iterator[Hosts]:
    """The hosts, until the block ends."""
    hosts = Hosts(names)
    try:
        hosts.up()
        yield hosts
    finally:
        hosts.down()


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        serve()
    if sys.argv[1:2] == ["agent"]:
        return agent(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] != ["up"] or len(sys.argv) < 3:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running(sys.argv[2:]) as hosts, tempfile.TemporaryDirectory() as folder:
        there = {host: " ".join(hosts.on(host)) for host in hosts.names}
        print(json.dumps({"agent": str(write_agent(Path(folder))), "on": there}, indent=1), flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    sys.exit(main())
