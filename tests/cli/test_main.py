"""The command line frame: which verb is meant, how every fault ends, and what starting up costs."""

import errno
import importlib
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer

from mlbench.cli import main as frame
from mlbench.cli.console import make_console
from mlbench.cli.main import VERBS, Verb, run_command, verb_app
from mlbench.errors import MlbenchError, NotCompliantError, RunFailedError, StoppedError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Make a function the verb `run` for this test."""

    def install(function: Callable[..., None]) -> None:
        module = types.ModuleType("mlbench_fake_verb")
        module.app = verb_app()  # type: ignore[attr-defined]
        module.app.command()(function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(frame, "VERBS", (Verb("run", module.__name__, "a fake"),))

    return install


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_verb_of_the_table_is_there_and_has_help(verb: Verb) -> None:
    app = getattr(importlib.import_module(verb.module), verb.attribute)

    assert isinstance(app, typer.Typer)
    assert run_command([verb.name, "--help"]) == 0


def test_help_lists_every_verb_with_a_line(capsys: Capture) -> None:
    assert run_command(["--help"]) == 0

    lines = capsys.readouterr().out.splitlines()
    for verb in VERBS:
        assert any(line.split() == [verb.name, *verb.help.split()] for line in lines)
    assert max(map(len, lines)) <= 100


def test_help_imports_no_verb_and_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['mlbench', '--help']\nfrom mlbench.cli.main import run_command\n"
    code += "run_command(['--help'])\nprint('@', *sorted(sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.rpartition("@")[2].split())

    ours = {name for name in loaded if name.startswith("mlbench")}
    assert ours == {"mlbench", "mlbench.cli", "mlbench.cli.main", "mlbench.errors"}
    assert not loaded & {"hydra", "omegaconf", "sqlalchemy", "alembic", "mxnet", "numpy", "altair", "rich.console"}


def test_version_is_printed(capsys: Capture) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mlbench 0.")


def test_no_verb_means_run_with_the_overrides(verb: Callable[..., None]) -> None:
    seen: list[list[str]] = []

    def record(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        seen.append(list(words or []))

    verb(record)

    assert [run_command([]), run_command(["+hardware=dgxa100", "gpus=32"]), run_command(["run", "gpus=2"])] == [0, 0, 0]
    assert seen == [[], ["+hardware=dgxa100", "gpus=32"], ["gpus=2"]]


def test_word_that_is_neither_verb_nor_override_names_the_near_miss(capsys: Capture) -> None:
    assert run_command(["resluts", "list"]) == 2
    assert "'resluts' is neither a verb nor an override KEY=VALUE; did you mean 'results'?" in capsys.readouterr().err


def test_unknown_option_is_one_sentence_and_status_2(capsys: Capture) -> None:
    assert run_command(["plan", "--jsno"]) == 2

    error = capsys.readouterr().err
    assert error.startswith("mlbench: mlbench plan: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("fault", "status"),
    [(MlbenchError("x"), 2), (RunFailedError("x"), 3), (NotCompliantError("x"), 4), (StoppedError("x"), 130)],
    ids=lambda value: type(value).__name__,
)
def test_fault_of_the_user_is_shown_without_traceback(
    verb: Callable[..., None], capsys: Capture, fault: MlbenchError, status: int
) -> None:
    def fail() -> None:
        raise fault

    verb(fail)

    assert run_command([]) == status
    assert capsys.readouterr().err == "mlbench: x\n"


def test_interrupt_ends_with_130(verb: Callable[..., None], capsys: Capture) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    verb(stop)

    assert run_command([]) == 130


def test_status_of_the_verb_is_the_status_of_the_command(verb: Callable[..., None]) -> None:
    def leave() -> None:
        raise typer.Exit(4)

    verb(leave)

    assert run_command([]) == 4


def test_bug_is_raised_for_a_traceback(verb: Callable[..., None]) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    verb(bug)

    with pytest.raises(ZeroDivisionError):
        run_command([])


def test_control_characters_in_a_sentence_are_shown_not_obeyed(verb: Callable[..., None], capsys: Capture) -> None:
    def fail() -> None:
        raise MlbenchError("folder \x1b[31mred\x07 \u202egnp.exe")

    verb(fail)
    run_command([])

    assert capsys.readouterr().err == "mlbench: folder \\x1b[31mred\\x07 \\u202egnp.exe\n"


def test_module_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(frame, "VERBS", (Verb("run", "mlbench_no_such_module", "a fake"),))

    assert run_command([]) == 2
    assert "needs the Python module 'mlbench_no_such_module'" in capsys.readouterr().err


def test_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mlbench.cli.main", "plan", "--json"]
    try:
        done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)

    assert done.stderr == b""
    assert done.returncode == 141


def _mlbench(*arguments: str, cwd: Path, stdout: str = "") -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it; `stdout` is a shell's redirection."""
    words = " ".join(f"'{argument}'" for argument in arguments)
    command = f"'{sys.executable}' -m mlbench.cli.main {words} {stdout}"
    return subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [("results", "list"), ("results", "list", "--json"), ("--help",)])
def test_output_on_a_full_disk_is_a_sentence_and_status_two(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = _mlbench(*arguments, cwd=tmp_path, stdout=">/dev/full")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("mlbench: the output cannot be written (No space left on device)")
    assert "Traceback" not in done.stderr


def test_file_that_cannot_be_written_unhandled_is_still_a_bug(verb: Callable[[Callable[..., None]], None]) -> None:
    @verb
    def run() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/file")

    with pytest.raises(OSError, match="runs/file"):
        run_command(["run"])


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str, tmp_path: Path) -> None:
    assert _mlbench("results", "list", cwd=tmp_path, stdout=closed).returncode == 0


def test_table_into_a_pipe_that_is_closed_ends_as_unix_tools_do(verb: Callable[[Callable[..., None]], None]) -> None:
    @verb
    def run() -> None:
        make_console().on_broken_pipe()

    before = os.dup(1)
    try:
        assert run_command(["run"]) == frame.EXIT_BROKEN_PIPE
    finally:
        os.dup2(before, 1)
        os.close(before)


@pytest.mark.parametrize("arguments", [("",), ("check", ""), ("import", "a", ""), ("results", "list", "--db", "")])
def test_empty_argument_is_refused_and_not_taken_as_the_current_folder(
    arguments: tuple[str, ...], capsys: Capture
) -> None:
    assert run_command(list(arguments)) == 2
    assert f"argument {len(arguments)} of mlbench is empty" in capsys.readouterr().err


def test_verb_in_a_folder_that_was_removed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert run_command(["plan"]) == 2

    assert capsys.readouterr().err.startswith("mlbench: the current folder cannot be used (No such file or directory);")


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3])
def test_verb_told_to_end_before_it_has_begun_says_interrupted(tmp_path: Path, signum: int, after_s: float) -> None:
    # No program can guard the interpreter's own start-up, so that is waited for.
    code = (
        "import sys; from mlbench.cli.main import main; "
        "sys.stdout.write('up\\n'); sys.stdout.flush(); main(['doctor', 'launcher=rehearsal'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.02 + after_s)
    process.send_signal(signum)
    output, errors = process.communicate(timeout=60)

    if output.strip():  # the verb was over before the signal came, and no program guards the interpreter's own end
        assert errors == ""
        return
    assert (process.returncode, errors) == (130, "mlbench: interrupted\n")
