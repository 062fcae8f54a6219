"""What one host is and what it sees, as one JSON line; standard library only.

    python -c "$(cat probe.py)" '{"token": ..., "token_path": ..., "answer_dir": ..., "paths": [...], ...}'

It is sent as text, so that it can say that the worker island is *not* there. Keys of the request: `token_path` a file
the launcher wrote, `answer_dir` a folder to write our own into, `answer` the name to give it (the host's is put
behind), `paths` files to look at, `endpoints` URLs to connect to, `num_pings` lines to read and answer with our clock.
"""

# No `from __future__ import annotations`: an image with Python 3.6 must be able to say that it is too old.

import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

_CONNECT_LIMIT_S = 3.0
_TOOL_LIMIT_S = 20.0
_GPU_QUERY = ("name", "memory.total", "driver_version")


def read_text(path: str) -> str:
    """The text of a small file, empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


def cpu_facts() -> Dict[str, Any]:
    """Model, sockets, physical cores and the logical CPUs that this process may use."""
    text = read_text("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", text, re.M)
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.M))
    cores = set(re.findall(r"^physical id\s*:\s*(\d+)$.*?^core id\s*:\s*(\d+)$", text, re.M | re.S))
    return {
        "cpu_model": " ".join(models[0].split()) if models else None,
        "num_sockets": len(sockets) or None,
        "num_cores": len(cores) or None,
        "num_cpus": len(os.sched_getaffinity(0)),
    }


def memory_bytes() -> Optional[int]:
    match = re.search(r"^MemTotal:\s*(\d+) kB$", read_text("/proc/meminfo"), re.M)
    return int(match.group(1)) * 1024 if match else None


def operating_system() -> Optional[str]:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)"?$', read_text("/etc/os-release"), re.M)
    return match.group(1) if match else None


def nics() -> Dict[str, Optional[str]]:
    """Interface -> link rate as the kernel says it (Mb/s), None when it says none; loopback left out."""
    found: Dict[str, Optional[str]] = {}
    root = "/sys/class/net"
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        if name != "lo":
            speed = read_text(os.path.join(root, name, "speed")).strip()
            found[name] = "%s Mb/s" % speed if speed.isdigit() else None
    return found


def gpus() -> Tuple[List[Dict[str, str]], Optional[str]]:
    """What nvidia-smi lists, and why it lists nothing. No nvidia-smi: no GPUs and no reason."""
    query = "--query-gpu=" + ",".join(_GPU_QUERY)
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TOOL_LIMIT_S,
        )
    except FileNotFoundError:
        return [], None
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], "nvidia-smi: %s" % error
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        return [], text[:200]
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(_GPU_QUERY, row)) for row in rows if len(row) == len(_GPU_QUERY)], None


def mount_of(path: str) -> Optional[Dict[str, str]]:
    """Source, type and options of the mount that `path` lies on."""
    real = os.path.realpath(path)
    best: Optional[Dict[str, str]] = None
    longest = -1
    for line in read_text("/proc/self/mounts").splitlines():
        words = line.split(" ")
        if len(words) < 4:
            continue
        point = words[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            longest = len(point)
            best = {"source": words[0], "point": point, "type": words[2], "options": words[3]}
    return best


def look_at(paths: List[str]) -> Dict[str, Optional[int]]:
    """Path -> size in bytes of a file we may read, 0 for a folder, None when we may not or it is not there."""
    found: Dict[str, Optional[int]] = {}
    for path in paths:
        try:
            found[path] = 0 if os.path.isdir(path) else os.stat(path).st_size
        except OSError:
            found[path] = None
        if not os.access(path, os.R_OK):
            found[path] = None
    return found


def connect(endpoints: List[str]) -> Dict[str, Optional[str]]:
    """URL -> None when a connection could be made, else why not."""
    found: Dict[str, Optional[str]] = {}
    for url in endpoints:
        match = re.match(r"^(https?)://(\[[^\]]+\]|[^:/]+)(?::(\d+))?", url)
        if match is None:
            found[url] = "not a URL"
            continue
        port = int(match.group(3) or (443 if match.group(1) == "https" else 80))
        try:
            socket.create_connection((match.group(2).strip("[]"), port), timeout=_CONNECT_LIMIT_S).close()
            found[url] = None
        except OSError as error:
            found[url] = str(error)
    return found


def exchange_tokens(request: Dict[str, Any], host: str) -> Dict[str, Any]:
    """Read the launcher's token and leave ours: what was read, and why something could not be."""
    result: Dict[str, Any] = {"token": None, "token_error": None, "answer_error": None}
    try:
        with open(request["token_path"], encoding="utf-8") as stream:
            result["token"] = stream.read(4096)
    except (OSError, UnicodeDecodeError) as error:
        result["token_error"] = str(error)
    path = os.path.join(request["answer_dir"], "%s.%s" % (request["answer"], host))
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(host)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        result["answer_error"] = str(error)
    return result


def say(kind: str, value: Any) -> None:
    """One line that nobody else's output can be taken for."""
    sys.stdout.write("@mlbench-%s %s\n" % (kind, json.dumps(value)))
    sys.stdout.flush()


def main(request: Dict[str, Any]) -> None:
    """Clock first, then pings, then the facts."""
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    say("clock", {"host": host, "time_s": time.time()})
    for _ in range(int(request["num_pings"])):
        if not sys.stdin.readline():
            break
        say("clock", {"host": host, "time_s": time.time()})
    seen_gpus, gpu_error = gpus()
    say(
        "host",
        {
            "host": host,
            "python": platform.python_version(),
            "executable": sys.executable,
            "kernel": platform.release(),
            "operating_system": operating_system(),
            "memory_bytes": memory_bytes(),
            "gpus": seen_gpus,
            "gpu_error": gpu_error,
            "nics": nics(),
            "mounts": {path: mount_of(path) for path in request["mounts"]},
            "paths": look_at(request["paths"]),
            "endpoints": connect(request["endpoints"]),
            **cpu_facts(),
            **exchange_tokens(request, host),
        },
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
