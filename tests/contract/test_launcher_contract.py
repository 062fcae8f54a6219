"""What every launcher promises, whatever it starts ranks with."""

from __future__ import annotations

import builtins
import copy
import functools
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mlbench.choices import LauncherName
from mlbench.compose import compose
from mlbench.errors import ConfigError
from mlbench.launch.base import Launch, Launcher
from mlbench.launch.containers import Container, Docker
from mlbench.launch.environment import PASSED_ON
from mlbench.launch.factory import Attempt, make_container, make_launch, make_launcher
from mlbench.launch.supervisor import Queued
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from mlbench.preflight.machine import probe_machine

# name -> (overrides, mlbench's own variables beside the usual ones)
LAUNCHERS: dict[str, tuple[list[str], dict[str, str]]] = {
    "local": (["launcher=local"], {}),
    "local over MPI": (["launcher=local", "launcher.transport=mpi"], {}),
    "mpirun": (["launcher=mpirun", "hosts=[a:1,b:1]"], {}),
    "slurm": (["launcher=slurm"], {}),
    "slurm inside an allocation": (["launcher=slurm"], {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}),
    "rehearsal": (["launcher=rehearsal"], {}),
}
CONTAINERS = {
    "none": [],
    "docker": ["container=docker", "container.image=nvcr.io/nvidia/mxnet:21.05-py3"],
    "apptainer": ["container=apptainer", "container.image=mxnet.sif"],
    "enroot": ["container=enroot", "container.image=mxnet.sqsh"],
}
SECRET = "AWS_SECRET_ACCESS_KEY"
MARK = "20201101-000000-abcd.run_0.0"


FOLDER = Path("/runs/set")
"""Nothing is written: a launcher only says what it would do."""


@functools.cache
def machine() -> Machine:
    return probe_machine()


@functools.cache
def planned(*overrides: str) -> Plan:
    return make_plan(compose(["gpus=2", f"runs_dir={FOLDER.parent}", *overrides]), machine())


@pytest.fixture(params=list(LAUNCHERS))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    overrides, variables = LAUNCHERS[request.param]
    for name, value in {**variables, SECRET: "do not show", "PYTHONPATH": "/elsewhere"}.items():
        monkeypatch.setenv(name, value)
    return Case(planned(*overrides))


class Case:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.container: Container | None = make_container(plan)
        self.launcher: Launcher = make_launcher(plan)
        self.launch: Launch = make_launch(
            plan,
            self.container,
            Attempt(job=FOLDER / "it's a job.json", rank_log_dir=FOLDER, log=FOLDER / "launcher.log", mark=MARK),
        )

    def text(self) -> str:
        """All that says what is started: the command line and, for a scheduler, its script."""
        files = self.launcher.files(self.launch) if isinstance(self.launcher, Queued) else {}
        return "\n".join([*self.launcher.argv(self.launch), *files.values()])


def test_launcher_name_is_the_setting_s(case: Case) -> None:
    assert LauncherName(case.launcher.name) is case.plan.config.launcher.name


def test_argv_is_pure(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same twice, in another environment too; no file is opened and nothing started."""
    before = case.launcher.argv(case.launch)
    afterwards = case.launcher.afterwards(case.launch)

    def refuse(*arguments: object, **named: object) -> object:
        raise AssertionError(f"argv must not touch anything: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    for name in list(os.environ):
        monkeypatch.delenv(name)
    assert case.launcher.argv(case.launch) == before
    assert case.launcher.afterwards(case.launch) == afterwards


def test_argv_is_words_not_a_shell_line(case: Case) -> None:
    argv = case.launcher.argv(case.launch)
    assert argv
    assert all(isinstance(word, str) for word in argv)
    assert not {";", "|", "&&"} & set(argv)


def test_argv_starts_the_command_as_it_stands(case: Case) -> None:
    argv = case.launcher.argv(case.launch)
    if not isinstance(case.launcher, Queued):
        assert tuple(argv[-len(case.launch.command) :]) == case.launch.command
    else:
        line = next(line for line in case.text().splitlines() if line.startswith("mpirun "))
        words = shlex.split(line.removesuffix(" &"))
        assert tuple(words[-len(case.launch.command) :]) == case.launch.command


def test_environment_holds_what_was_listed_and_nothing_of_ours_but_four(case: Case) -> None:
    given = case.launcher.environment(case.launch)
    allowed = {
        *PASSED_ON,
        *case.launch.environment,
        "MLBENCH_JOB",
        *(name for name in given if name.startswith(("SLURM_", "OMPI_ALLOW_RUN_AS_ROOT"))),
    }
    if isinstance(case.launcher, Queued):
        assert given.pop("PYTHONPATH") != "/elsewhere"  # of the follower, not of the ranks
    assert set(given) <= allowed
    assert given["MLBENCH_JOB"] == MARK


def test_every_listed_variable_reaches_the_ranks(case: Case) -> None:
    launch = replace(case.launch, environment={**case.launch.environment, "NCCL_DEBUG": "INFO"})
    given = case.launcher.environment(launch)
    text = "\n".join(case.launcher.files(launch).values()) if isinstance(case.launcher, Queued) else ""
    assert given.get("NCCL_DEBUG") == "INFO" or "export NCCL_DEBUG=INFO" in text
    if case.launcher.name in ("mpirun", "slurm"):
        argv = text.split() if text else case.launcher.argv(launch)
        assert argv[argv.index("NCCL_DEBUG") - 1] == "-x" or "NCCL_DEBUG=INFO" in argv


def test_no_secret_is_passed_or_shown(case: Case) -> None:
    assert "do not show" not in case.text()
    assert SECRET not in case.launcher.environment(case.launch)


def test_afterwards_is_there_whenever_ranks_are_elsewhere(case: Case) -> None:
    elsewhere = case.launcher.name in ("mpirun", "slurm")
    assert bool(case.launcher.afterwards(case.launch)) is elsewhere


@pytest.mark.parametrize("engine", list(CONTAINERS))
@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS if name != "rehearsal"])
def test_any_container_goes_around_the_worker_in_any_launcher(
    launcher: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides, variables = LAUNCHERS[launcher]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plan, contained = planned(*overrides), planned(*CONTAINERS[engine])
    config = copy.deepcopy(plan.config)
    config.container = contained.config.container
    case = Case(replace(plan, config=config))
    first = Path(case.launch.command[0]).name
    assert first.startswith("python") if engine == "none" else first == engine
    assert str(FOLDER / "it's a job.json") in case.launch.command
    assert case.launch.environment.get("PMIX_MCA_gds") == (None if engine == "none" else "hash")


def test_factory_gloo_over_hosts_is_refused() -> None:
    with pytest.raises(ConfigError, match="launcher=slurm starts ranks through Open MPI"):
        make_launcher(planned("launcher=slurm", "launcher.transport=gloo"))


def test_factory_container_without_an_image_is_refused() -> None:
    with pytest.raises(ConfigError, match="container=docker: no image is named"):
        make_container(planned("container=docker"))


def test_factory_image_of_the_profile_is_used() -> None:
    container = make_container(planned("+hardware=dgxa100", "gpus=8", "container=docker", "launcher=slurm"))
    assert isinstance(container, Docker)
    assert container.common.image.name == "nvcr.io/nvidia/mxnet:21.05-py3"
    assert (container.common.gpus, container.common.devices) == (True, ("/dev/infiniband",))
