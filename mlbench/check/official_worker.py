"""The official checks of mlperf_logging, run in a process of their own over copies of the files.

    python -m mlbench.check.official_worker     request on stdin, one JSON answer a line on stdout

A process of its own because the official code keeps its state in module globals, configures the root logger, prints,
writes into the folder it reads and ends in all kinds of exceptions. `package_checker` is called where there is a
whole package; what it calls is noted on the way, and what it did not come to is called afterwards, one by one.

Three things are changed from outside, none of which changes a verdict on a well-meant log: rule files and logs are
parsed once, and a log may no longer name the rule file that is executed (`submission_division` is put into a path).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from mlperf_logging.compliance_checker import mlp_compliance, mlp_parser
from mlperf_logging.package_checker import package_checker, seed_checker
from mlperf_logging.rcp_checker import rcp_checker
from mlperf_logging.system_desc_checker import system_desc_checker

_RULE_FILE = re.compile(r"^training_\d+\.\d+\.\d+/[a-z0-9_]+\.yaml$")
_USAGE = "training"
Outcome = dict[str, Any]


class _Capture(logging.Handler):
    """Keeps (module, level, text) of every record since `clear`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.module, record.levelno, _message(record)))

    def texts(self, start: int, module: str, level: int) -> list[str]:
        """At least `level`, of one module of mlperf_logging."""
        return [text.strip() for name, at, text in self.kept[start:] if name == module and at >= level]


def _message(record: logging.LogRecord) -> str:
    """The text; official code sometimes gives more arguments than its format takes."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _outcome(ok: bool | None, messages: list[str], crash: str | None = None, **more: Any) -> Outcome:
    return {"ok": ok, "messages": messages, "crash": crash, **more}


class _OfficialCrashError(Exception):
    """What an official check raised, passed on through package_checker as one sentence."""


def _guarded(call: Callable[[], Outcome]) -> Outcome:
    """One official step. Its code evaluates rules over whatever a log holds, so every exception type is possible;
    each is kept as the step's outcome, which is then not a pass."""
    try:
        return call()
    except _OfficialCrashError as error:
        return _outcome(None, [], str(error))
    except SystemExit as error:
        return _outcome(None, [], f"SystemExit: {error.code}")
    except Exception as error:  # noqa: BLE001
        return _outcome(None, [], f"{type(error).__name__}: {error}"[:500])


class _ParsedOnce:
    """Stands in for `yaml` inside the compliance checker: a rule file is parsed once, by libyaml when it is there."""

    BaseLoader = yaml.BaseLoader

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def load(self, stream: Any, Loader: Any) -> Any:
        if stream.name not in self._known:
            fast = getattr(yaml, "CBaseLoader", Loader) if Loader is yaml.BaseLoader else Loader
            self._known[stream.name] = yaml.load(stream, Loader=fast)
        return self._known[stream.name]


def _enqueue_known(config: str) -> None:
    """The official `enqueue_config`, but only for rule files of mlperf_logging itself."""
    if not _RULE_FILE.match(str(config)):
        raise ValueError(f"{config!r} is not a rule file of mlperf_logging")
    mlp_compliance.enqueued_configs.append(config)


class Worker:
    """Runs the steps of one request after another."""

    def __init__(self) -> None:
        self.capture = _Capture()
        self._compliance: dict[str, Outcome] = {}
        self._seeds: Outcome | None = None
        self._rcp: Outcome | None = None
        self._systems: Outcome | None = None
        self._original: dict[str, Callable[..., Any]] = {}
        self._install()

    def _install(self) -> None:
        root = logging.getLogger()
        root.handlers = [self.capture]
        root.setLevel(logging.INFO)
        self._original = {
            "compliance": mlp_compliance.main,
            "seeds": seed_checker.SeedChecker.check_seeds,
            "rcp": rcp_checker.check_directory,
            "system": system_desc_checker.check_system_desc,
            "parse": mlp_parser.parse_file,
        }
        parsed: dict[tuple[str, str], Any] = {}

        def parse_file(filename: str, ruleset: str = "0.6.0") -> Any:
            key = (filename, ruleset)
            if key not in parsed:
                parsed[key] = self._original["parse"](filename, ruleset=ruleset)
            return parsed[key]

        mlp_parser.parse_file = parse_file
        mlp_compliance.yaml = _ParsedOnce()
        mlp_compliance.enqueue_config = _enqueue_known
        mlp_compliance.main = self._check_compliance
        seed_checker.SeedChecker.check_seeds = lambda checker, files, bypass=False: self._check_seeds(
            checker, files, bypass
        )
        rcp_checker.check_directory = self._check_rcp
        system_desc_checker.check_system_desc = self._check_system

    # -- what package_checker calls: noted, then passed on

    def _note(self, keep: Callable[[Outcome], None], call: Callable[[], tuple[Outcome, Any]]) -> Any:
        """Run one official call, keep its outcome, and give package_checker what it expects, exceptions too."""
        answer: list[Any] = []

        def run() -> Outcome:
            outcome, value = call()
            answer.append(value)
            return outcome

        outcome = _guarded(run)
        keep(outcome)
        if not answer:
            raise _OfficialCrashError(outcome["crash"])
        return answer[0]

    def _check_compliance(self, filename: str, config_file: str, checker: Any) -> Any:
        mlp_compliance.enqueued_configs.clear()

        def call() -> tuple[Outcome, Any]:
            start = len(self.capture.kept)
            value = self._original["compliance"](filename, config_file, checker)
            return _outcome(bool(value[0]), self.capture.texts(start, "mlp_compliance", logging.WARNING)), value

        return self._note(lambda outcome: self._compliance.__setitem__(filename, outcome), call)

    def _check_seeds(self, checker: Any, files: list[str], bypass: bool) -> Any:
        def call() -> tuple[Outcome, Any]:
            start = len(self.capture.kept)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = self._original["seeds"](checker, files, bypass)
            return _outcome(bool(value), self.capture.texts(start, "seed_checker", logging.ERROR)), value

        return self._note(lambda outcome: setattr(self, "_seeds", outcome), call)

    def _check_rcp(self, *args: Any, **kwargs: Any) -> Any:
        def call() -> tuple[Outcome, Any]:
            start = len(self.capture.kept)
            passed, message, factor = self._original["rcp"](*args, **kwargs)
            warned = self.capture.texts(start, "rcp_checker", logging.WARNING)
            return _outcome(bool(passed), [message, *warned], factor=float(factor)), (passed, message, factor)

        return self._note(lambda outcome: setattr(self, "_rcp", outcome), call)

    def _check_system(self, json_file: str, usage: str, ruleset: str) -> Any:
        def call() -> tuple[Outcome, Any]:
            start = len(self.capture.kept)
            value = self._original["system"](json_file, usage, ruleset)
            return _outcome(bool(value[0]), self.capture.texts(start, "system_desc_checker", logging.ERROR)), value

        return self._note(lambda outcome: setattr(self, "_systems", outcome), call)

    # -- one set of results

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Every official check of one set. `request` is official.py's `_request`."""
        self._compliance, self._seeds, self._rcp, self._systems = {}, None, None, None
        ruleset: str = request["ruleset"]
        package = _guarded(lambda: self._package(request["package"], ruleset)) if request["package"] else None
        if request["description"] and self._systems is None:
            _attempt(lambda: system_desc_checker.check_system_desc(request["description"], _USAGE, ruleset))
        for log in request["logs"]:
            if log not in self._compliance:
                _attempt(lambda log=log: self._one_log(log, ruleset))  # type: ignore[misc]
        if request["seeds"] and self._seeds is None:
            _attempt(lambda: seed_checker.SeedChecker(ruleset).check_seeds(request["logs"]))
        if request["rcp"] and self._rcp is None:
            folder = str(Path(request["logs"][0]).parent)
            _attempt(lambda: rcp_checker.check_directory(folder, _USAGE, ruleset, False, False, rcp_pass="pruned_rcps"))
        return {
            "compliance": {Path(name).name: outcome for name, outcome in self._compliance.items()},
            "system": self._systems,
            "seeds": self._seeds,
            "rcp": self._rcp,
            "package": package,
        }

    def _package(self, folder: str, ruleset: str) -> Outcome:
        start = len(self.capture.kept)
        package_checker.check_training_package(folder, _USAGE, ruleset, False, False, False, False, False, "a log")
        lines = self.capture.texts(start, "package_checker", logging.INFO)
        success = any("PACKAGE CHECKER FOUND NO ERRORS" in line for line in lines)
        errors = self.capture.texts(start, "package_checker", logging.ERROR)
        warned = [line for line in self.capture.texts(start, "package_checker", logging.WARNING) if line not in errors]
        return _outcome(success and not errors, errors, warnings=warned)

    def _one_log(self, log: str, ruleset: str) -> None:
        checker = mlp_compliance.make_checker(_USAGE, ruleset, False, False)
        mlp_compliance.main(log, f"{_USAGE}_{ruleset}/common.yaml", checker)


def _attempt(call: Callable[[], Any]) -> None:
    """A call whose outcome `_note` keeps, crashes included; the crash is not needed a second time."""
    with contextlib.suppress(_OfficialCrashError):
        call()


def _requests(stream: io.TextIOBase) -> Iterator[dict[str, Any]]:
    yield from json.load(stream)


def main() -> int:
    """Answer every request; what the official code prints does not reach stdout."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    worker = Worker()
    for request in _requests(sys.stdin):  # type: ignore[arg-type]
        answers.write(json.dumps(worker.run(request)) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
