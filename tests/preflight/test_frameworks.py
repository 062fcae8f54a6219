"""MXNet, NumPy and Horovod of the ranks' Python (cases P45, P46): real Pythons, fake modules."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from mlbench.choices import Device, Transport
from mlbench.preflight.check import Check, Outcome
from mlbench.preflight.frameworks import Frameworks, judge_frameworks, probe_frameworks

GOOD_MXNET = "__version__ = '1.9.1'\n"
GOOD_NUMPY = "__version__ = '1.23.5'\nbool = bool\n"
HOROVOD = "__version__ = '0.28.1'\n"
BUILT = "mpi_built = lambda: {mpi}\ngloo_built = lambda: {gloo}\nnccl_built = lambda: {nccl}\n"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that sees only the fake modules of `tmp_path`/modules besides the standard library."""
    (tmp_path / "modules").mkdir()
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "modules"} exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script


def fake(python: Path, name: str, text: str) -> None:
    file = python.parent / "modules" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def fake_horovod(python: Path, text: str) -> None:
    fake(python, "horovod/__init__", HOROVOD)
    fake(python, "horovod/mxnet", text)


def failure(checks: list[Check]) -> Check:
    (found,) = [check for check in checks if check.outcome is Outcome.failed]
    return found


def test_probe_all_there_passes_on_a_cpu(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY)
    fake(python, "mxnet", GOOD_MXNET)
    fake_horovod(python, BUILT.format(mpi=False, gloo=True, nccl=False))

    seen = probe_frameworks(str(python))

    assert (seen.numpy, seen.mxnet, seen.horovod) == ("1.23.5", "1.9.1", "0.28.1")
    assert seen.built == {"mpi": False, "gloo": True, "nccl": False}
    assert all(check.outcome is Outcome.passed for check in judge_frameworks(seen, Device.cpu))


def test_probe_no_mxnet_names_the_package_and_what_still_works(python: Path) -> None:
    check = failure(judge_frameworks(probe_frameworks(str(python)), Device.cpu))

    assert check.found == "MXNet is not installed for the ranks' Python"
    assert check.remedy is not None
    assert "mlbench[train]" in check.remedy
    assert "import, compare, check" in check.remedy


def test_probe_numpy_that_mxnet_cannot_take_names_the_pin(python: Path) -> None:
    fake(python, "numpy", "__version__ = '2.1.0'\n")
    fake(python, "mxnet", "import numpy\nnumpy.bool\nnumpy.float_\n")

    check = failure(judge_frameworks(probe_frameworks(str(python)), Device.cpu))

    assert "MXNet cannot be imported with NumPy 2.1.0" in check.found
    assert check.remedy is not None
    assert "numpy==1.23.5" in check.remedy


def test_probe_numpy_without_bool_is_mended_as_the_worker_mends_it(python: Path) -> None:
    fake(python, "numpy", "__version__ = '1.26.4'\n")
    fake(python, "mxnet", "import numpy\nnumpy.bool\n__version__ = '1.9.1'\n")

    assert probe_frameworks(str(python)).mxnet == "1.9.1"


def test_probe_mxnet_with_missing_library_is_one_sentence(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY)
    fake(python, "mxnet", "raise OSError('libgomp.so.1: cannot open shared object file')\n")

    check = failure(judge_frameworks(probe_frameworks(str(python)), Device.cpu))

    assert "libgomp.so.1" in check.found


def test_probe_horovod_without_mxnet_part_says_how_to_build_it(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY)
    fake(python, "mxnet", GOOD_MXNET)
    fake_horovod(python, "raise ImportError('undefined symbol: _ZN5mxnet')\n")

    check = failure(judge_frameworks(probe_frameworks(str(python)), Device.cpu))

    assert "no working MXNet part" in check.found
    assert "undefined symbol" in check.found
    assert check.remedy is not None
    assert "HOROVOD_WITH_MXNET=1" in check.remedy


def test_probe_no_horovod_is_refused(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY)
    fake(python, "mxnet", GOOD_MXNET)

    assert "Horovod cannot be imported" in failure(judge_frameworks(probe_frameworks(str(python)), Device.cpu)).found


@pytest.mark.parametrize(
    ("built", "device", "transport", "sentence"),
    [
        ({"mpi": True, "gloo": True, "nccl": False}, Device.gpu, "auto", "a GPU profile needs NCCL"),
        ({"mpi": False, "gloo": False, "nccl": False}, Device.cpu, Transport.auto, "no transport"),
        ({"mpi": False, "gloo": True, "nccl": False}, Device.cpu, Transport.mpi, "launcher.transport is mpi"),
        ({"mpi": True, "gloo": False, "nccl": True}, Device.gpu, Transport.gloo, "launcher.transport is gloo"),
    ],
)
def test_judge_horovod_without_the_transport_is_refused(
    built: dict[str, bool], device: Device, transport: Transport, sentence: str
) -> None:
    seen = Frameworks(python="3.11.2", numpy="1.23.5", mxnet="1.9.1", horovod="0.28.1", built=built)

    assert sentence in failure(judge_frameworks(seen, device, transport)).found


def test_judge_nccl_there_passes_on_a_gpu() -> None:
    built = {"mpi": True, "gloo": True, "nccl": True}
    seen = Frameworks(python="3.8.10", numpy="1.23.5", mxnet="1.9.1", horovod="0.28.1", built=built)

    assert all(check.outcome is Outcome.passed for check in judge_frameworks(seen, Device.gpu))


def test_judge_python_that_is_too_old_is_refused() -> None:
    seen = Frameworks(python="3.6.10", mxnet_error="x", numpy="1.19")

    assert "3.6.10" in judge_frameworks(seen, Device.cpu)[0].found
    assert judge_frameworks(seen, Device.cpu)[0].outcome is Outcome.failed


def test_probe_python_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    seen = probe_frameworks(str(tmp_path / "python"))

    assert seen.probe_error is not None
    assert failure(judge_frameworks(seen, Device.cpu)).outcome is Outcome.failed


def test_probe_crash_at_import_is_an_answer(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY)
    fake(python, "mxnet", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")

    seen = probe_frameworks(str(python))

    assert seen.probe_error is not None
    assert "status -11" in seen.probe_error


def test_probe_chatter_of_the_modules_does_not_matter(python: Path) -> None:
    fake(python, "numpy", GOOD_NUMPY + "print('hello')\n")
    fake(python, "mxnet", GOOD_MXNET + "print('@mlbench', end='')\n")

    assert probe_frameworks(str(python)).mxnet == "1.9.1"


@pytest.mark.training
@pytest.mark.slow
def test_probe_this_environment_can_train() -> None:
    seen = probe_frameworks(sys.executable)

    assert all(check.outcome is Outcome.passed for check in judge_frameworks(seen, Device.cpu)), os.environ.get("PATH")


DALI_ERROR = "ModuleNotFoundError: No module named 'nvidia'"
SEEN = Frameworks(
    python="3.11.7",
    numpy="1.23.5",
    mxnet="1.9.1",
    horovod="0.28.1",
    built={"mpi": True, "gloo": True, "nccl": False},
    dali_error=DALI_ERROR,
)


def test_judge_dali_asked_for_and_not_there_is_found_before_run_1() -> None:
    check = failure(judge_frameworks(SEEN, Device.cpu, needs_dali=True))
    assert check.name == "dali"
    assert DALI_ERROR in check.found
    assert check.remedy is not None
    assert "data.pipeline=native" in check.remedy


def test_judge_dali_not_asked_for_is_no_matter() -> None:
    assert all(check.outcome is Outcome.passed for check in judge_frameworks(SEEN, Device.cpu))


def test_judge_dali_there_passes_with_its_version() -> None:
    seen = dataclasses.replace(SEEN, dali="1.30.0", dali_error=None)
    checks = judge_frameworks(seen, Device.cpu, needs_dali=True)
    assert (checks[-1].name, checks[-1].outcome, checks[-1].found) == ("dali", Outcome.passed, "1.30.0")


@pytest.mark.slow
def test_probe_says_whether_dali_can_be_imported() -> None:
    seen = probe_frameworks(sys.executable)
    assert (seen.dali is None) == (importlib.util.find_spec("nvidia") is None)
    assert seen.dali is not None or "No module named 'nvidia'" in (seen.dali_error or "")
