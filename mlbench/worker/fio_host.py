"""fio on one host; standard library only.

    python -I -S start.py fio_host spec.json

The specification is one JSON object: `tests`, a list of {"name", "arguments"} run one after the other, and `folder`,
where `<hostname>.json` goes: host, memory, and of each test fio's output and exit status as they were. Nothing is
judged here. fio's own files live in `files` and are removed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from typing import Any, Dict, List, Optional

from .files import write_json

STATUS_NO_FIO = 3


def memory_bytes() -> Optional[int]:
    """Memory of this host, None when the kernel does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            for line in stream:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def run_test(fio: str, test: Dict[str, Any]) -> Dict[str, Any]:
    """Run one fio; its output is kept whole."""
    command = [fio] + [str(word) for word in test["arguments"]]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    return {
        "name": test["name"],
        "command": command,
        "exit_status": done.returncode,
        "stdout": done.stdout.decode("utf-8", "replace"),
        "stderr": done.stderr.decode("utf-8", "replace")[-4000:],
    }


def main(arguments: List[str]) -> int:
    """Status 3 without fio, 2 for a bad specification, else 0: what fio said is for the reader to judge."""
    try:
        with open(arguments[0], encoding="utf-8") as stream:
            spec = json.load(stream)
        tests, folder, files = spec["tests"], spec["folder"], spec["files"]
    except (IndexError, OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("fio_host: the specification cannot be read (%s)\n" % error)
        return 2
    fio = shutil.which("fio")
    if fio is None:
        sys.stderr.write("fio_host: no fio on %s\n" % socket.gethostname())
        return STATUS_NO_FIO
    host = socket.gethostname()
    own_files = os.path.join(files, host) if files else None
    results = []
    try:
        if own_files:
            os.makedirs(own_files, exist_ok=True)
        for test in tests:
            words = [str(word).replace("{files}", own_files or "") for word in test["arguments"]]
            results.append(run_test(fio, {"name": test["name"], "arguments": words}))
    finally:
        if own_files:
            shutil.rmtree(own_files, ignore_errors=True)
    report = {"host": host, "memory_bytes": memory_bytes(), "tests": results}
    write_json(os.path.join(folder, host + ".json"), report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
