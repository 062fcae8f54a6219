"""The command `mlbench`: which verb is meant, its module, and how every fault ends.

`mlbench [overrides]` runs a run set. When the first word is a verb of `VERBS`, that verb is called with the rest.

How a verb plugs in. Its row in `VERBS` names a module of this package and an attribute of it, a `typer.Typer`
(`app` unless several verbs share a module: cli/run.py holds `app`, `resume_app` and `reproduce_app`). An app with one
command is the verb itself; an app with several commands has sub-verbs (`results list`). Make it with `verb_app()`.
The module is imported only when its verb is called, so `mlbench --help` stays quick whatever the verbs need; a verb's
module, too, imports what is heavy inside its functions. A verb ends in one of three ways: it returns (status 0), it
raises `typer.Exit(code)`, or it raises an `MlbenchError`, whose sentence is shown on stderr and whose `exit_code`
becomes the status. Everything else is a bug: a traceback and status 1.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from mlbench.errors import ConfigError, MlbenchError, near_miss

if TYPE_CHECKING:
    import typer

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE, as every Unix tool whose reader has gone; the verb's own verdict is unknown to the reader then."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Verb(NamedTuple):
    name: str
    module: str
    help: str
    attribute: str = "app"


VERBS: tuple[Verb, ...] = (
    Verb("run", "mlbench.cli.run", "Run a run set: preflight, stages, score, verdict (the default verb)."),
    Verb("plan", "mlbench.cli.plan", "Show command lines, rank map, batch, files and time estimate; run nothing."),
    Verb("doctor", "mlbench.cli.doctor", "Check whether this machine can run what is asked."),
    Verb("resume", "mlbench.cli.run", "Run only what is missing of a run set.", "resume_app"),
    Verb("reproduce", "mlbench.cli.run", "Run a stored configuration again and compare.", "reproduce_app"),
    Verb("results", "mlbench.cli.results", "List, show, query and export what is in the database."),
    Verb("import", "mlbench.cli.import_", "Read published results or single logs into the database."),
    Verb("compare", "mlbench.cli.compare", "Put run sets or published systems side by side."),
    Verb("check", "mlbench.cli.check", "Check logs or a run set against the rules; findings and verdict."),
    Verb("package", "mlbench.cli.package", "Build a submission tree from run sets."),
    Verb("report", "mlbench.cli.report", "Write an HTML report with plots."),
    Verb("size", "mlbench.cli.size", "Work out how much storage a number of GPUs needs."),
    Verb("data", "mlbench.cli.data", "Make, import and verify data sets."),
    Verb("db", "mlbench.cli.db", "Upgrade, rebuild, merge and verify the database."),
    Verb("baseline", "mlbench.cli.baseline", "Name and pin run sets to compare against."),
)


def verb_app(help: str | None = None) -> typer.Typer:
    """A Typer application with the settings that every verb shares."""
    import typer

    return typer.Typer(
        help=help,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; never returns."""
    _fill_closed_streams()
    _end_cleanly_when_told()
    sys.exit(run_command(list(sys.argv[1:] if arguments is None else arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command line and return its exit status; faults of the user are shown, bugs are raised."""
    try:
        status = dispatch(arguments)
        sys.stdout.flush()
    except MlbenchError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        # Files are written with their name in the error; what has none is standard output.
        if error.errno not in _FULL or error.filename is not None:
            raise
        _discard_output()
        return _fail(
            f"the output cannot be written ({error.strerror}), so it is not whole; free some space and run it again",
            MlbenchError.exit_code,
        )
    return status


def _end_cleanly_when_told() -> None:
    """SIGTERM and a closed terminal end a verb as Ctrl-C does; a run set has its own way once it has begun."""
    process = os.getpid()

    def end(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt
        # A forked helper of ours simply ends.
        signal.signal(signum, signal.SIG_DFL)
        signal.raise_signal(signum)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays so: nohup ignores SIGHUP.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _fill_closed_streams() -> None:
    """Give 0, 1 and 2 somewhere to go when they were closed (`>&-`): the next file opened must not become one."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")


def _discard_output() -> None:
    """The interpreter flushes stdout once more at exit; give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(arguments: list[str]) -> int:
    """Choose the verb and run it. Raises MlbenchError for what the user can mend."""
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help", "help"):
        _print_help()
        return 0
    if first == "--version":
        from mlbench import __version__

        print(f"mlbench {__version__}")
        return 0
    if "" in arguments:
        # as a path it would mean the current folder, as a database the default one
        number = arguments.index("") + 1
        raise ConfigError(f"argument {number} of mlbench is empty, expected a word; is a variable of the shell unset?")
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except OSError as error:
        raise ConfigError(
            f"the current folder cannot be used ({error.strerror}); it was removed or closed; change to another one"
        ) from error
    verbs = {verb.name: verb for verb in VERBS}
    if first in verbs:
        return _call(verbs[first], arguments[1:])
    # An override has an equals sign or is a deletion, an option has a dash: anything else was meant as a verb.
    if first and "=" not in first and first[0] not in "-+~":
        from mlbench.secret_names import mask_override

        raise ConfigError(
            f"{mask_override(first)!r} is neither a verb nor an override KEY=VALUE{near_miss(first, verbs)} "
            f"Verbs: {', '.join(verbs)}."
        )
    return _call(verbs["run"], arguments)


def _call(verb: Verb, arguments: list[str]) -> int:
    # Imported late: Ctrl-C in the tenth of a second that this takes must find us listening.
    import typer
    from typer.exceptions import TyperException
    from typer.main import get_command

    try:
        app = getattr(importlib.import_module(verb.module), verb.attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"mlbench {verb.name} needs the Python module {error.name!r}, which is not installed here; "
            f"install mlbench with its dependencies"
        ) from error
    program = f"mlbench {verb.name}"
    command = get_command(app)
    try:
        # Not `command.main()`: it would turn a reader that has gone away into status 1, which means a bug here.
        with command.make_context(program, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return int(leave.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except TyperException as error:
        from mlbench.secret_names import mask_override

        text = error.format_message()
        for argument in arguments:
            text = text.replace(argument, mask_override(argument))
        raise ConfigError(f"{program}: {text.rstrip('.')}; see {program} --help") from error
    return 0


def _print_help() -> None:
    width = max(len(verb.name) for verb in VERBS)
    lines = [
        "Usage: mlbench [OVERRIDE...]        run a run set",
        "       mlbench VERB [OPTIONS] ...   one of the verbs below",
        "",
        "MLPerf-style training results that others believe: run, measure, score, check, compare, package.",
        "",
        "Verbs:",
        *(f"  {verb.name:<{width}}  {verb.help}" for verb in VERBS),
        "",
        "Overrides, for run, plan and doctor (docs/reference/configuration.md lists every key):",
        "  +hardware=dgxa100               a system profile; '+hardware=[dgxa100,f800]' adds its storage",
        "  gpus=32 repeats=5 seed=7        ranks, repetitions, first seed",
        "  benchmark=resnet50_throughput   what to run",
        "  launcher=mpirun hosts=[a:8,b:8] where and how",
        "",
        "Options:",
        "  -h, --help   this text; mlbench VERB --help tells more of a verb",
        "  --version    the version of mlbench",
    ]
    print("\n".join(lines))


def _fail(sentence: str, status: int) -> int:
    from mlbench.cli.console import escape_control

    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    print(f"mlbench: {escape_control(sentence)}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
