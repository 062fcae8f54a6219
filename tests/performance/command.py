"""Running a command and keeping its wall and processor time."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.performance.harness import PeerError, Sample

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).resolve().parent / "peers"
TIME_LIMIT_S = 300.0
_TERM_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """`cpu_s` counts the command and all processes that it waited for."""

    wall_s: float
    cpu_s: float
    status: int
    output: str
    errors: str

    @property
    def sample(self) -> Sample:
        return Sample(wall_s=self.wall_s, cpu_s=self.cpu_s)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with the project importable, and no thread settings but those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MXNET_"))}
    return {**inherited, "PYTHONPATH": str(ROOT), **(extra or {})}


def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    good: Sequence[int] = (0,),
    limit_s: float = TIME_LIMIT_S,
) -> Done:
    """Run to the end. Raises PeerError: not there, too long, or a status that is not one of `good`."""
    before, begun = _children_cpu_s(), time.perf_counter()
    try:
        process = subprocess.Popen(
            argv,
            env=environment(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise PeerError(f"{argv[0]}: cannot be started ({error.strerror})") from error
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise PeerError(f"{Path(argv[0]).name} {' '.join(argv[1:3])}: not done within {limit_s:g} s") from None
    except BaseException:
        _end(process)
        raise
    wall_s = time.perf_counter() - begun
    if process.returncode not in good:
        said = (errors.strip() or output.strip()).splitlines()
        last = said[-1][:300] if said else "nothing was said"
        raise PeerError(f"{Path(argv[0]).name} {' '.join(argv[1:4])}: status {process.returncode}: {last}")
    cpu_s = _children_cpu_s() - before
    return Done(wall_s=wall_s, cpu_s=cpu_s, status=process.returncode, output=output, errors=errors)


def _end(process: subprocess.Popen[str]) -> None:
    """TERM first: launchers end their ranks, which are in sessions of their own."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.communicate(timeout=_TERM_GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def mlbench(*arguments: str) -> list[str]:
    """The command as a user's shell starts it."""
    script = Path(sys.executable).parent / "mlbench"
    return [str(script), *arguments] if script.is_file() else python("-m", "mlbench.cli.main", *arguments)


def json_of(output: str) -> dict[str, object]:
    """The last line that is a JSON object; launchers put `[0]<stdout>:` before it. Raises PeerError."""
    for line in reversed(output.splitlines()):
        at = line.find("{")
        if at < 0:
            continue
        try:
            value = json.loads(line[at:])
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    raise PeerError(f"no JSON object in the output: {output[-200:]!r}")


def sample_of(output: str) -> Sample:
    """The Sample that a peer script printed: wall_s, cpu_s, amount."""
    value = json_of(output)
    wall_s, cpu_s, amount = value.get("wall_s"), value.get("cpu_s"), value.get("amount")
    if not isinstance(wall_s, float) or not isinstance(amount, int | float):
        raise PeerError(f"expected wall_s and amount, found {value}")
    return Sample(wall_s=wall_s, cpu_s=cpu_s if isinstance(cpu_s, float) else None, amount=float(amount))
