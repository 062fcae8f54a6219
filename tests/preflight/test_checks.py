"""Checks of this machine before anything is launched, and how a run is refused."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.dataset.digits import make_digits
from mlbench.errors import PreflightError
from mlbench.plan.machine import Gpu, Machine
from mlbench.plan.types import Plan
from mlbench.preflight import hardware
from mlbench.preflight.check import Check, Outcome, failed, not_checked, passed, require
from mlbench.preflight.checks import check_all, check_frameworks
from mlbench.preflight.folders import check_data, check_runs_dir, make_missing_data
from mlbench.preflight.frameworks import Frameworks
from mlbench.preflight.hardware import check_gpu_model, check_hardware, check_image, check_memory, check_programs

Planned = Callable[..., Plan]
GOOD = Frameworks(
    python="3.11.2",
    numpy="1.23.5",
    mxnet="1.9.1",
    horovod="0.28.1",
    built={"mpi": True, "gloo": True, "nccl": True},
)


def test_hardware_gpu_profile_without_gpus_names_asked_here_and_two_ways_on(planned: Planned, machine: Machine) -> None:
    check = check_hardware(planned("+hardware=dgxa100", "gpus=32"), machine)

    assert check.outcome is Outcome.failed
    assert "32 x NVIDIA A100-SXM4-40GB on 4 nodes (profile dgxa100)" in check.found
    assert "here is 4 CPUs (Test CPU) and no GPU" in check.found
    assert check.remedy is not None
    assert "mlbench plan +hardware=dgxa100 gpus=32" in check.remedy
    assert "launcher=mpirun hosts=[HOST:SLOTS,...] or launcher=slurm" in check.remedy


def test_hardware_one_node_without_gpus_is_refused_too(planned: Planned, machine: Machine) -> None:
    assert check_hardware(planned("+hardware=dgxa100"), machine).outcome is Outcome.failed
    assert check_hardware(planned("+hardware=dgxa100", "launcher=mpirun"), machine).outcome is Outcome.failed


def test_hardware_gpus_that_are_here_pass(planned: Planned, dgx: Machine) -> None:
    assert check_hardware(planned("+hardware=dgxa100"), dgx).outcome is Outcome.passed


def test_hardware_fewer_gpus_than_ranks_is_refused(planned: Planned, dgx: Machine) -> None:
    four = dataclasses.replace(dgx, gpus=dgx.gpus[:4])

    assert "here is 4 CPUs (Test CPU) and 4 x NVIDIA A100" in check_hardware(planned("+hardware=dgxa100"), four).found


@pytest.mark.parametrize(
    "overrides", [["launcher=slurm"], ["launcher=rehearsal"], ["launcher=mpirun", "hosts=[a:8]"]], ids=" ".join
)
def test_hardware_of_other_hosts_is_not_claimed_to_be_checked(
    planned: Planned, machine: Machine, overrides: list[str]
) -> None:
    assert check_hardware(planned("+hardware=dgxa100", *overrides), machine).outcome is Outcome.not_checked


def test_gpu_model_of_another_kind_is_said_but_does_not_refuse(planned: Planned, machine: Machine) -> None:
    other = dataclasses.replace(machine, gpus=(Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=None),) * 8)
    check = check_gpu_model(planned("+hardware=dgxa100"), other)

    assert check is not None
    assert (check.outcome, check.required) == (Outcome.failed, False)


def test_gpu_model_of_the_profile_passes(planned: Planned, dgx: Machine) -> None:
    check = check_gpu_model(planned("+hardware=dgxa100"), dgx)

    assert check is not None
    assert check.outcome is Outcome.passed


def test_memory_too_small_for_the_ranks_names_a_number_that_fits(planned: Planned, machine: Machine) -> None:
    check = check_memory(planned("gpus=32"), machine)

    assert check.outcome is Outcome.failed
    assert check.remedy is not None
    assert "gpus=16" in check.remedy


def test_runs_dir_that_is_not_there_yet_passes_and_is_not_made(tmp_path: Path) -> None:
    check = check_runs_dir(tmp_path / "a" / "runs")

    assert check.outcome is Outcome.passed
    assert list(tmp_path.iterdir()) == []


def test_runs_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")

    assert check_runs_dir(tmp_path / "runs").outcome is Outcome.failed


@pytest.mark.skipif(not Path("/proc/sys").is_dir(), reason="needs a folder that nobody can write, /proc")
def test_runs_dir_read_only_is_refused_even_for_root() -> None:
    check = check_runs_dir(Path("/proc/sys/mlbench/runs"))

    assert check.outcome is Outcome.failed
    assert "/proc/sys/mlbench/runs cannot be written" in check.found
    assert check.remedy is not None
    assert "runs_dir=" in check.remedy


def test_data_that_mlbench_can_make_passes_and_is_made_once(planned: Planned) -> None:
    plan = planned()

    assert "is made before the first run" in check_data(plan).found
    assert make_missing_data(plan) is True
    assert make_missing_data(plan) is False
    assert "640 training and 1157 validation images" in check_data(plan).found


def test_data_folder_that_is_not_there_is_named_absolute(planned: Planned, tmp_path: Path) -> None:
    check = check_data(planned("data=imagenet", "data.path=./d"))

    assert check.outcome is Outcome.failed
    assert str(tmp_path / "d") in check.found  # case P44
    assert check.remedy is not None
    assert "given as ./d" in check.remedy


def test_data_never_made_in_place_of_another_set(planned: Planned) -> None:
    assert make_missing_data(planned("data=imagenet")) is False


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    make_digits(folder)
    return folder


def _no_index(folder: Path) -> None:
    (folder / "train.idx").unlink()


def _foreign_index(folder: Path) -> None:
    lines = (folder / "train.idx").read_text().splitlines()
    (folder / "train.idx").write_text("\n".join([*lines[:-1], f"{len(lines) - 1}\t99999999"]) + "\n")


def _bad_magic(folder: Path) -> None:
    content = (folder / "train.rec").read_bytes()
    (folder / "train.rec").write_bytes(struct.pack("<I", 0) + content[4:])


def _cut_short(folder: Path) -> None:
    os.truncate(folder / "train.rec", (folder / "train.rec").stat().st_size - 7)


def _empty(folder: Path) -> None:
    os.truncate(folder / "train.rec", 0)


@pytest.mark.parametrize("damage", [_no_index, _foreign_index, _bad_magic, _cut_short, _empty])
def test_data_damaged_is_refused_with_the_file(
    planned: Planned, digits: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for file in digits.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    damage(folder)  # case D15

    check = check_data(planned(f"data.path={folder}"))

    assert check.outcome is Outcome.failed
    assert str(folder / "train.") in check.found
    assert check.remedy is not None
    assert "mlbench data verify" in check.remedy


def test_programs_missing_fio_costs_a_measurement_only(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "find_program", lambda name: None if name == "fio" else f"/usr/bin/{name}")
    found = {check.name: check for check in check_programs(planned())}

    assert found["fio"].outcome is Outcome.failed
    assert not found["fio"].required
    assert found["horovodrun"].outcome is Outcome.passed


@pytest.mark.parametrize(
    ("overrides", "program"),
    [
        (["launcher=mpirun"], "mpirun"),
        (["launcher=slurm"], "sbatch"),
        (["container=docker", "container.image=x:1"], "docker"),
    ],
)
def test_programs_missing_launcher_or_engine_refuses(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, overrides: list[str], program: str
) -> None:
    monkeypatch.setattr(hardware, "find_program", lambda name: None if name == program else f"/usr/bin/{name}")
    found = {check.name: check for check in check_programs(planned(*overrides))}

    assert (found[program].outcome, found[program].required) == (Outcome.failed, True)


def test_image_with_python_36_is_refused_with_the_reason(planned: Planned) -> None:
    image = "container.image='nvcr.io/nvidia/mxnet:20.06-py3'"
    check = check_image(planned("+hardware=dgxa100", "container=docker", image))

    assert check.outcome is Outcome.failed
    assert "has Python 3.6" in check.found


def test_image_of_the_profile_is_new_enough(planned: Planned) -> None:
    assert check_image(planned("+hardware=dgxa100", "container=docker")).outcome is Outcome.passed


def test_image_not_named_is_refused(planned: Planned) -> None:
    assert check_image(planned("container=docker")).outcome is Outcome.failed


def test_check_all_good_machine_lets_the_run_start(
    planned: Planned, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "find_program", lambda name: f"/usr/bin/{name}")

    checks = check_all(planned(), machine, probe=lambda python: GOOD)

    assert not [check for check in checks if check.outcome is Outcome.failed]
    require(checks)


def test_check_all_names_no_check_passed_that_was_not_made(planned: Planned, machine: Machine) -> None:
    checks = check_all(planned("launcher=rehearsal"), machine, probe=lambda python: pytest.fail("asked"))

    assert {check.outcome for check in checks if check.name in ("hardware", "mxnet", "data")} == {Outcome.not_checked}


def test_check_frameworks_mpi_backend_alone_needs_no_mxnet(planned: Planned) -> None:
    plan = planned("benchmark=allreduce", "benchmark.allreduce.backend=mpi")

    (check,) = check_frameworks(plan, probe=lambda python: pytest.fail("asked"))
    assert check.outcome is Outcome.not_checked


def test_require_first_failure_is_the_sentence_and_the_rest_are_counted() -> None:
    checks = [passed("a", "x"), failed("b", "b is bad", "mend b"), failed("c", "c is bad", "mend c")]

    with pytest.raises(PreflightError, match=r"^b is bad; mend b \(1 more; see mlbench doctor\)$"):
        require(checks)


@pytest.mark.parametrize("check", [not_checked("a", "x"), failed("a", "x", "y", required=False), passed("a", "x")])
def test_require_what_is_no_required_failure_passes(check: Check) -> None:
    require([check])


def test_frameworks_pipeline_dali_without_dali_is_refused_unless_nothing_is_trained(planned: Planned) -> None:
    lacking = dataclasses.replace(GOOD, dali_error="No module named 'nvidia'")
    for overrides, refused in (
        (["data.pipeline=dali"], True),
        (["data.pipeline=native"], False),
        (["data.pipeline=dali", "benchmark.stages=[allreduce]"], False),
    ):
        checks = check_frameworks(planned(*overrides), lambda _: lacking)
        assert [check.name for check in checks if check.outcome is Outcome.failed] == (["dali"] if refused else [])
