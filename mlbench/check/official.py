"""The official checks of mlperf_logging over a copy of the results, and what they said.

mlperf_logging writes into the folder it reads, ends with status 0 after errors and crashes on some inputs. So it gets
a copy in a temporary folder and a process of its own (`official_worker`), and is judged by its log and its return
values. A crash is an outcome like another one, and never a pass.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_LOG_BYTES = 256 << 20
"""The official parser reads a whole log into memory; a larger one is not given to it, and is then not checked."""
TIMEOUT_S = 600.0
_KEPT_FILES = ("scaling.json", "package_checker_params")
_MAX_KEPT_BYTES = 1 << 20
_RESULT_NAME = re.compile(r"^result_[A-Za-z0-9]+\.txt$")
_SEPARATOR = "\n" + "-" * 30 + "\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One complaint in short. `record` is the MLLOG text it is about, when it names one."""

    text: str
    record: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Outcome of one official check. `ok` is None when it gave none: it crashed, or was not run."""

    ok: bool | None
    messages: tuple[Message, ...] = ()
    crash: str | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialInput:
    """One set of results as it lies on disk. Paths were resolved and lie inside the folder that is checked."""

    ruleset: str
    benchmark: str
    system: str
    logs: Sequence[Path]
    description: Path | None
    """systems/<system>.json; without it package_checker cannot be asked."""
    other_names: Sequence[str] = ()
    """What else lies in the result folder: package_checker warns of it."""
    seeds: bool = False
    rcp: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialReport:
    """What mlperf_logging says. A step that does not apply is None. `logs` follows the order of the input."""

    logs: tuple[Step, ...]
    system: Step | None = None
    seeds: Step | None = None
    rcp: Step | None = None
    package: Step | None = None
    package_warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """The official verdict: package_checker's where there is a package, else all the single checks together."""
        if self.package is not None:
            return self.package.ok is True
        steps = [step for step in (self.seeds, self.rcp) if step is not None]
        good = sum(step.ok is True for step in self.logs)
        # one file that does not comply is accepted under olympic scoring, as package_checker does
        logs_pass = good == len(self.logs) or (len(self.logs) > 1 and good == len(self.logs) - 1)
        return bool(self.logs) and logs_pass and all(step.ok is True for step in steps)


class OfficialChecks:
    """The official checks of several sets in one process, started at once and read later.

    A context manager: leaving it ends the process and removes the copies.
    """

    def __init__(self, inputs: Sequence[OfficialInput], *, timeout_s: float = TIMEOUT_S) -> None:
        self._inputs = inputs
        self._timeout_s = timeout_s
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._copied: list[list[str | None]] = []

    def __enter__(self) -> OfficialChecks:
        self._folder = tempfile.TemporaryDirectory(prefix="mlbench-check-")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()

    def start(self) -> None:
        """Copy the files and start the process; `reports` waits for it."""
        assert self._folder is not None, "use it as a context manager"
        requests = [self._copy(item, Path(self._folder.name) / str(n)) for n, item in enumerate(self._inputs)]
        request_file = Path(self._folder.name) / "requests.json"
        request_file.write_text(json.dumps(requests), encoding="utf-8")
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with request_file.open(encoding="utf-8") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mlbench.check.official_worker"],
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                cwd=self._folder.name,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            )

    def reports(self) -> list[OfficialReport]:
        """One report per input. What the process did not come to, because it died or took too long, is a crash."""
        assert self._process is not None, "start() comes first"
        assert self._folder is not None
        fault = "ended without an answer"
        try:
            answers, errors = self._process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            answers, errors = self._process.communicate()
            fault = f"did not end within {self._timeout_s:.0f} s"
        if self._process.returncode and errors.strip():
            fault = errors.strip().splitlines()[-1]
        # the copies' folder has another name each time; two checks must say the same
        answers = re.sub(re.escape(self._folder.name) + r"/\d+/org/?", "", answers)
        fault = fault.replace(self._folder.name, "")
        lines = [json.loads(line) for line in answers.splitlines() if line.endswith("}")]
        return [
            _report(item, copied, lines[n] if n < len(lines) else None, fault)
            for n, (item, copied) in enumerate(zip(self._inputs, self._copied, strict=True))
        ]

    def _copy(self, item: OfficialInput, folder: Path) -> dict[str, Any]:
        """Lay one set out as mlperf_logging expects it. Returns the request for the worker."""
        system = re.sub(r"[^A-Za-z0-9._-]", "_", item.system).lstrip(".") or "system"
        package = folder / "org"
        results = package / "results" / system / item.benchmark
        results.mkdir(parents=True)
        (package / "benchmarks" / item.benchmark).mkdir(parents=True)
        (package / "systems").mkdir()
        names: list[str | None] = []
        for index, log in enumerate(item.logs):
            name = log.name if _RESULT_NAME.match(log.name) else f"result_{index}.txt"
            name = name if name not in names else f"result_{index}x.txt"
            if log.stat().st_size > MAX_LOG_BYTES:
                names.append(None)
                continue
            shutil.copyfile(log, results / name)
            names.append(name)
        self._copied.append(names)
        for other in item.other_names:
            source = item.logs[0].parent / other if item.logs else None
            target = results / re.sub(r"[^A-Za-z0-9._-]", "_", other)
            if source is not None and other in _KEPT_FILES and source.stat().st_size <= _MAX_KEPT_BYTES:
                shutil.copyfile(source, target)
            elif not target.exists():
                target.touch()
        description = None
        if item.description is not None:
            description = package / "systems" / f"{system}.json"
            shutil.copyfile(item.description, description)
        logs = [str(results / name) for name in names if name is not None]
        return {
            "ruleset": item.ruleset,
            "logs": logs,
            "description": str(description) if description else None,
            "package": str(package) if description and len(logs) == len(names) else None,
            "seeds": item.seeds and bool(logs),
            "rcp": item.rcp and bool(logs),
        }


def _report(
    item: OfficialInput, copied: Sequence[str | None], answer: Mapping[str, Any] | None, fault: str
) -> OfficialReport:
    if answer is None:
        lost = Step(None, crash=fault)
        return OfficialReport(
            logs=tuple(lost for _ in item.logs),
            system=lost if item.description else None,
            seeds=lost if item.seeds else None,
            rcp=lost if item.rcp else None,
            package=lost if item.description else None,
        )
    too_large = Step(None, crash=f"not given a log of more than {MAX_LOG_BYTES >> 20} MiB")
    compliance: Mapping[str, Any] = answer["compliance"]
    logs = [too_large if name is None else _step(compliance.get(name)) or Step(None, crash=fault) for name in copied]
    package: Mapping[str, Any] | None = answer["package"]
    return OfficialReport(
        logs=tuple(logs),
        system=_step(answer["system"]),
        seeds=_step(answer["seeds"]),
        rcp=_step(answer["rcp"]),
        package=_step(package) or (too_large if item.description and too_large in logs else None),
        package_warnings=tuple(package.get("warnings", ())) if package else (),
    )


def _step(outcome: Mapping[str, Any] | None) -> Step | None:
    if outcome is None:
        return None
    messages = [message for text in outcome["messages"] for message in summaries(text)]
    return Step(outcome["ok"], tuple(messages), outcome["crash"], outcome.get("factor"))


def summaries(text: str) -> list[Message]:
    """The complaints in one entry of the official log, without the dumps of rules and state that follow them."""
    return [_summary(part.strip()) for part in text.split(_SEPARATOR) if part.strip()]


def _summary(text: str) -> Message:
    lines = text.splitlines()
    record = next((line for line in lines if line.startswith(":::MLL")), None)
    test = next((line.removeprefix("failed test:").strip() for line in lines if line.startswith("failed test:")), None)
    checked = re.match(r"CHECK for '([^']*)' failed", text)
    if checked and test:
        return Message(f"{checked[1]}: failed test {test}", record)
    if text.startswith("Failed executing CHECK code:") and len(lines) > 1:
        return Message(f"rule could not be evaluated: {lines[1].strip()}", record)
    if text.startswith("Failed executing code"):
        return Message("rule could not be executed", record)
    if record is not None and lines[0] == record:
        return Message("record cannot be parsed", record)
    if test:
        return Message(f"failed test {test}")
    return Message(re.sub(r"\s+", " ", lines[0])[:300])


@dataclass(slots=True)
class RecordFinder:
    """Finds the line of an MLLOG record in a file, as the official messages give only the record's text."""

    path: Path
    _lines: dict[str, int] = field(default_factory=dict)

    def line(self, record: str) -> int | None:
        """The first line, from 1, that holds the record; None when it is not there."""
        if not self._lines:
            with self.path.open(encoding="latin-1", newline="\n") as stream:
                for number, line in enumerate(stream, start=1):
                    mark = line.rfind(":::MLLOG ")
                    if mark >= 0:
                        self._lines.setdefault(line[mark:].strip(), number)
        return self._lines.get(record)
