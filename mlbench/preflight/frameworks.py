"""Which Python, NumPy, MXNet and Horovod the ranks will use, asked of the very Python that starts them.

MXNet is never imported into mlbench itself: a process of its own asks, and a crash in a shared library there (built
against another MXNet) is an answer here.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mlbench.choices import Device, Pipeline, Stage, Transport
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, failed, passed

PROBE_LIMIT_S = 120.0
"""A cold import of MXNet and Horovod from a network file system takes this long at worst."""
OLDEST_PYTHON = (3, 8)
"""That the worker runs under."""
_ISLAND = Path(__file__).resolve().parent.parent / "worker"

# Runs under Python 3.6 too: an image that is too old must be able to say so.
_PROBE = """
import json, platform, sys, types
facts = {"python": platform.python_version()}
def attempt(key, function):
    try:
        facts[key] = function()
    except BaseException as error:
        facts[key + "_error"] = "%s: %s" % (type(error).__name__, error)
def numpy_version():
    import numpy
    return numpy.__version__
def mxnet_version():
    import importlib.util
    if importlib.util.find_spec("mxnet") is None:
        raise ImportError("No module named 'mxnet'")
    island = types.ModuleType("mlbench_worker")
    island.__path__ = [sys.argv[1]]
    sys.modules["mlbench_worker"] = island
    from mlbench_worker.runtime import import_mxnet
    return import_mxnet().__version__
def horovod_version():
    import horovod
    return horovod.__version__
def dali_version():
    from mlbench_worker.pipelines import dali
    import nvidia.dali
    return nvidia.dali.__version__
def horovod_built():
    import horovod.mxnet as hvd
    return {"mpi": bool(hvd.mpi_built()), "gloo": bool(hvd.gloo_built()), "nccl": bool(hvd.nccl_built())}
attempt("numpy", numpy_version)
attempt("mxnet", mxnet_version)
attempt("horovod", horovod_version)
if "mxnet" in facts:
    attempt("dali", dali_version)
if "mxnet" in facts and "horovod" in facts:
    attempt("built", horovod_built)
sys.stdout.write("\\n@mlbench " + json.dumps(facts) + "\\n")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frameworks:
    """What the probe saw. A version is None when the module is not there or fails at import; `*_error` says why."""

    python: str | None = None
    numpy: str | None = None
    numpy_error: str | None = None
    mxnet: str | None = None
    mxnet_error: str | None = None
    horovod: str | None = None
    horovod_error: str | None = None
    built: dict[str, bool] | None = None
    """`horovodrun --check-build` in short: mpi, gloo, nccl."""
    built_error: str | None = None
    dali: str | None = None
    dali_error: str | None = None
    probe_error: str | None = None


def probe_frameworks(python: str) -> Frameworks:
    """Ask a Python what it has. Never raises: what went wrong is in the `_error` fields."""
    try:
        done = subprocess.run(
            frameworks_command(python), capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False
        )
    except OSError as error:
        return Frameworks(probe_error=f"{python} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Frameworks(probe_error=f"{python} did not finish importing mxnet and horovod in {PROBE_LIMIT_S:.0f} s")
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return read_frameworks(done.stdout, done.returncode, last, python)[0]


def frameworks_command(python: str, island: Path = _ISLAND) -> list[str]:
    """What asks a Python, here, on another host or in a container (where the island lies elsewhere)."""
    return [python, "-W", "ignore", "-c", _PROBE, str(island)]


def read_frameworks(output: str, status: int | None, last_error: str, python: str) -> list[Frameworks]:
    """What the command printed, one for each process that ran it; at least one."""
    seen = [
        Frameworks(**json.loads(line.removeprefix("@mlbench ")))
        for line in output.splitlines()
        if line.startswith("@mlbench ")
    ]
    how = "did not answer in time" if status is None else f"ended with status {status}"
    return seen or [Frameworks(probe_error=f"importing mxnet and horovod, {python} {how}: {last_error}")]


def judge_frameworks(
    seen: Frameworks, device: Device, transport: Transport = Transport.auto, *, needs_dali: bool = False
) -> list[Check]:
    """The checks on what was seen: Python, MXNet with its NumPy, Horovod with its MXNet part and its transports, and
    DALI where the input pipeline is it."""
    if seen.probe_error is not None:
        remedy = "build Horovod against the MXNet that is installed, or name a Python with launcher.python"
        return [failed("python", seen.probe_error, remedy)]
    checks = [_python(seen), _mxnet(seen)]
    if seen.mxnet is not None:
        checks.append(_horovod(seen, device, transport))
        if needs_dali:
            checks.append(_dali(seen))
    return checks


def needs_dali(plan: Plan) -> bool:
    """Whether the ranks of a plan read their images with DALI."""
    return Stage.train in plan.stages and plan.data.worker.pipeline == Pipeline.dali.value


def _dali(seen: Frameworks) -> Check:
    if seen.dali is not None:
        return passed("dali", seen.dali)
    return failed(
        "dali",
        f"the input pipeline is dali, which the ranks' Python cannot import ({seen.dali_error or 'no reason given'})",
        "install it with pip install 'mlbench[dali]', or set data.pipeline=native",
    )


def _python(seen: Frameworks) -> Check:
    version = seen.python or "0"
    if not can_run_worker(version):
        return failed("python", f"the ranks' Python is {version}, the worker needs 3.8 or newer", "use a newer image")
    return passed("python", version)


def _mxnet(seen: Frameworks) -> Check:
    if seen.mxnet is not None:
        return passed("mxnet", f"{seen.mxnet} with NumPy {seen.numpy}")
    error = seen.mxnet_error or "no reason given"
    if "No module named 'mxnet'" in error:
        return failed(
            "mxnet",
            "MXNet is not installed for the ranks' Python",
            "install it with pip install 'mlbench[train]' (mxnet==1.9.1, numpy==1.23.5); "
            "plan, results, import, compare, check, package and report work without it",
        )
    if "numpy" in error.lower():
        return failed(
            "mxnet",
            f"MXNet cannot be imported with NumPy {seen.numpy or 'that is missing'} ({error})",
            "install numpy==1.23.5 beside mxnet==1.9.1; MXNet 1.9.1 takes NumPy below 2",
        )
    return failed("mxnet", f"MXNet cannot be imported ({error})", "install mxnet==1.9.1 again for this Python")


def _horovod(seen: Frameworks, device: Device, transport: Transport) -> Check:
    name = "horovod"
    if seen.horovod is None:
        return failed(
            name,
            f"Horovod cannot be imported ({seen.horovod_error})",
            "build it after MXNet: HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 pip install --no-build-isolation "
            "horovod==0.28.1",
        )
    if seen.built is None:
        return failed(
            name,
            f"Horovod {seen.horovod} has no working MXNet part ({seen.built_error})",
            f"build it again against the installed MXNet {seen.mxnet}: HOROVOD_WITH_MXNET=1 pip install "
            "--no-build-isolation --no-cache-dir --force-reinstall horovod==0.28.1",
        )
    have = [kind for kind in ("mpi", "gloo", "nccl") if seen.built.get(kind)]
    found = f"Horovod {seen.horovod} was built with {', '.join(have) or 'no transport'}"
    if device is Device.gpu and "nccl" not in have:
        return failed(name, f"{found}, but a GPU profile needs NCCL", "build it with HOROVOD_GPU_OPERATIONS=NCCL")
    asked = transport.value
    if transport is not Transport.auto and asked not in have:
        return failed(
            name, f"{found}, but launcher.transport is {asked}", f"build it with HOROVOD_WITH_{asked.upper()}=1"
        )
    if not {"mpi", "gloo"} & set(have):
        return failed(name, found, "build it with HOROVOD_WITH_GLOO=1 or HOROVOD_WITH_MPI=1")
    return passed(name, found)


def can_run_worker(python_version: str) -> bool:
    """Whether a Python is new enough, by its version, `3.8.18`."""
    return tuple(int(word) for word in python_version.split(".")[:2] if word.isdigit()) >= OLDEST_PYTHON
