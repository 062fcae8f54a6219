"""Every host proven before run 1: it answers, sees the data and the runs folder, has the software, and shares our time.

    report = prove_hosts(plan, reaches, python=..., wrap=...)
    require(report.checks)                 # PreflightError, nothing was launched
    report.facts, report.clock_offsets_s   # for hosts.json and the record

A folder is shared only if both directions work: each host reads a token that was written here, and what each host
writes is seen here. One program (worker/probe.py) is sent to each host as text and run by the worker's Python; inside
the container, when there is one.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlbench.choices import Device, Stage
from mlbench.errors import PreflightError
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, failed, not_checked, passed
from mlbench.preflight.frameworks import (
    can_run_worker,
    frameworks_command,
    judge_frameworks,
    needs_dali,
    read_frameworks,
)
from mlbench.preflight.reach import Conversation, Reach, run_everywhere
from mlbench.wording import count_of

ISLAND = Path(__file__).resolve().parent.parent / "worker"
_PROBE_SOURCE = ISLAND / "probe.py"
_NUM_PINGS = 5
_WORK_LIMIT_S = 120.0
"""Beside the time to connect: importing MXNet from a cold network file system."""
_SHARED_LIMIT_S = 10.0
"""A network file system may show a new file this much later."""
_MAX_CLOCK_OFFSET_S = 1.0
_SHOWN_HOSTS = 4

Wrap = Callable[[Sequence[str]], Sequence[str]]
"""Puts a command into the container, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """Clock of a host minus ours: `offset_s` give or take `uncertainty_s`, half the shortest round trip."""

    offset_s: float
    uncertainty_s: float

    @property
    def certain_s(self) -> float:
        """The part of the offset that no delay on the way explains, 0 or more."""
        return max(0.0, abs(self.offset_s) - self.uncertainty_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What a host said. `seen` is the probe's object (see worker/probe.py)."""

    host: str
    reach: Reach
    seen: Mapping[str, Any]
    clock: ClockOffset | None
    answer_seen: bool
    """What the host wrote into the runs folder was seen here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsReport:
    checks: list[Check]
    facts: dict[str, dict[str, str]]
    """host -> fact -> text."""
    clock_offsets_s: dict[str, float]


def prove_hosts(
    plan: Plan,
    reaches: Sequence[Reach],
    *,
    python: str,
    environment: Mapping[str, str],
    connect_limit_s: float,
    need_frameworks: bool,
    wrap: Wrap = list,
    island: Path = ISLAND,
) -> HostsReport:
    """Ask every host. Never raises for what a host says: that is in the checks.

    `python` is the worker's, `island` the worker island as that Python sees it; both inside the container if `wrap`
    leads there. `environment` is that of the process that starts the commands.

    Raises: PreflightError: the runs folder cannot be written here.
    """
    name = f".mlbench_probe_{os.getpid()}_{secrets.token_hex(4)}"
    token = secrets.token_hex(16)
    path = plan.runs_dir / name
    try:
        plan.runs_dir.mkdir(parents=True, exist_ok=True)
        path.write_text(token, encoding="utf-8")
    except OSError as error:
        raise PreflightError(f"runs_dir {plan.runs_dir}: cannot be written ({error.strerror}); mend it") from error
    try:
        request = _request(plan, path)
        source = _PROBE_SOURCE.read_text(encoding="utf-8")
        conversations = run_everywhere(
            reaches,
            wrap([python, "-I", "-S", "-c", source, json.dumps(request)]),
            limit_s=connect_limit_s + _WORK_LIMIT_S,
            environment=environment,
            reply=_ping,
        )
        answers, checks = _read_answers(conversations, plan.runs_dir, name)
    finally:
        for left in plan.runs_dir.glob(f"{name}*"):
            left.unlink(missing_ok=True)
    checks += _judge(plan, answers, token)
    if need_frameworks and answers:
        command = wrap(frameworks_command(python, island))
        checks += _ask_frameworks(plan, reaches, command, environment, connect_limit_s + _WORK_LIMIT_S)
    return HostsReport(
        checks=checks,
        facts={answer.host: facts_of(answer) for answer in answers},
        clock_offsets_s={answer.host: answer.clock.offset_s for answer in answers if answer.clock is not None},
    )


def _request(plan: Plan, token_path: Path) -> dict[str, Any]:
    # The all-reduce and storage stages alone touch no record: the data set need not be there yet.
    local = Stage.train in plan.stages and not plan.data.path.startswith("s3://")
    data = plan.data.worker
    return {
        "token_path": str(token_path),
        "answer_dir": str(plan.runs_dir),
        "answer": token_path.name,
        "paths": [*data.train_rec, *data.train_idx, *data.val_rec, *data.val_idx] if local else [],
        "mounts": [str(plan.runs_dir), *([plan.data.path] if local else [])],
        "endpoints": list(data.s3_endpoints),
        "num_pings": _NUM_PINGS,
    }


def _ping(conversation: Conversation) -> bytes | None:
    """Answer each clock line with another, so that round trips can be timed."""
    return b"\n" if len(conversation.sent) < _NUM_PINGS else None


def _said(conversation: Conversation, kind: str) -> list[tuple[float, dict[str, Any]]]:
    """(arrival, object) of the probe's lines of this kind; other output (a login banner) is passed over."""
    found = []
    for arrived_at_s, line in conversation.lines:
        ahead, marker, text = line.partition(f"@mlbench-{kind} ")
        if marker and not ahead.strip():
            try:
                value = json.loads(text)
            except ValueError:
                continue
            if isinstance(value, dict) and isinstance(value.get("host"), str):
                found.append((arrived_at_s, value))
    return found


def clock_offset(conversation: Conversation, host: str) -> ClockOffset | None:
    """From the shortest round trip, as Cristian's algorithm: the host's time lies in its middle, give or take half.

    The first line answers the start of the command; each later one a line that was sent."""
    lines = [(arrived, value["time_s"]) for arrived, value in _said(conversation, "clock") if value["host"] == host]
    begun = [conversation.started_at_s, *conversation.sent]
    # Several hosts behind one command would share its input, so only the start can be paired.
    pairs = list(zip(begun, lines, strict=False)) if conversation.reach.takes_input else []
    if not pairs and lines:
        pairs = [(conversation.started_at_s, lines[0])]
    if not pairs:
        return None
    trips = [(arrived - sent, theirs - (sent + arrived) / 2) for sent, (arrived, theirs) in pairs]
    round_trip_s, offset_s = min(trips)
    return ClockOffset(offset_s=offset_s, uncertainty_s=round_trip_s / 2)


def _read_answers(
    conversations: Sequence[Conversation], runs_dir: Path, name: str
) -> tuple[list[HostAnswer], list[Check]]:
    answers: list[HostAnswer] = []
    checks: list[Check] = []
    for conversation in conversations:
        said = [value for _, value in _said(conversation, "host")]
        if len(said) < conversation.reach.num_hosts:
            checks.append(_silent(conversation, len(said)))
        for value in said:
            host = str(value["host"]) if conversation.reach.names_itself else conversation.reach.name
            wrote = value.get("answer_error") is None
            answers.append(
                HostAnswer(
                    host=host,
                    reach=conversation.reach,
                    seen=value,
                    clock=clock_offset(conversation, str(value["host"])),
                    answer_seen=wrote and _appears(runs_dir / f"{name}.{value['host']}", str(value["host"])),
                )
            )
    if answers:
        checks.insert(0, passed("hosts", f"answered: {_listed([answer.host for answer in answers])}"))
    return answers, checks


def _silent(conversation: Conversation, num_said: int) -> Check:
    reach = conversation.reach
    command = " ".join(reach.prefix) or "the probe"
    remedy = (
        f"make `{' '.join([*reach.prefix, 'true'])}` work without a question (key, known host), or set "
        f"launcher.rsh_agent, launcher.ssh_timeout_s, launcher.python"
    )
    if conversation.start_error is not None:
        found = conversation.start_error
    elif conversation.timed_out:
        found = f"no answer in time through `{command}`"
    elif num_said:
        found = f"{num_said} of {count_of(reach.num_hosts, 'host')} answered"
    else:
        found = f"`{command}` ended with status {conversation.status}: {conversation.last_error or 'no reason given'}"
    return failed(f"host {reach.name}", f"{reach.name}: {found}", remedy)


def _appears(path: Path, text: str) -> bool:
    """The file that a host wrote is seen here, with its content."""
    deadline = time.monotonic() + _SHARED_LIMIT_S
    while True:
        try:
            if path.read_text(encoding="utf-8") == text:
                return True
        except (OSError, UnicodeDecodeError):
            # Looking the folder up makes a network file system ask its server again.
            os.listdir(path.parent)  # noqa: PTH208 - for its effect
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.2)


def _judge(plan: Plan, answers: Sequence[HostAnswer], token: str) -> list[Check]:
    checks: list[Check] = []
    if not answers:
        return checks
    checks += _on_all(
        "shared runs folder",
        answers,
        lambda answer: _runs_folder_fault(answer, token),
        f"{plan.runs_dir} is read and written by every host",
        f"put runs_dir on a file system that all hosts share, or set runs_dir=...; found by a file written to "
        f"{plan.runs_dir}",
    )
    checks += _on_all(
        "data on hosts",
        answers,
        lambda answer: _data_fault(answer, answers[0]),
        f"{plan.data.path} is the same on every host",
        "mount or copy the data set to this path on every host, or set data.path",
    )
    if plan.data.worker.s3_endpoints:
        checks += _on_all(
            "endpoints",
            answers,
            _endpoint_fault,
            f"{len(plan.data.worker.s3_endpoints)} can be reached from every host",
            "start it, or leave it out of hardware.storage.s3_endpoints",
        )
    checks += _on_all(
        "python on hosts",
        answers,
        _python_fault,
        f"Python {answers[0].seen.get('python')}",
        "name a Python of 3.8 or newer with launcher.python",
    )
    if plan.device is Device.gpu:
        slots = {host.name: host.slots for host in plan.placement.hosts}
        checks += _on_all(
            "gpus on hosts",
            answers,
            lambda answer: _gpu_fault(answer, slots.get(answer.host, max(slots.values()))),
            "as many as there are ranks",
            "give each host no more slots than it has GPUs",
        )
    checks.append(_clocks(answers))
    return checks


def _on_all(
    name: str, answers: Sequence[HostAnswer], fault: Callable[[HostAnswer], str | None], good: str, remedy: str
) -> list[Check]:
    """One failed check for each host with a fault, or one that all passed."""
    faults = [(answer.host, fault(answer)) for answer in answers]
    bad = [failed(name, f"{host}: {text}", remedy) for host, text in faults if text is not None]
    return bad or [passed(name, good)]


def _runs_folder_fault(answer: HostAnswer, token: str) -> str | None:
    seen = answer.seen
    if seen.get("token_error") is not None:
        return f"a file written here is not seen there ({seen['token_error']})"
    if seen.get("token") != token:
        return "a file written here has other content there"
    if seen.get("answer_error") is not None:
        return f"cannot write there ({seen['answer_error']})"
    return None if answer.answer_seen else "a file written there is not seen here"


def _data_fault(answer: HostAnswer, first: HostAnswer) -> str | None:
    there, reference = answer.seen.get("paths") or {}, first.seen.get("paths") or {}
    for path, size in there.items():
        if size is None:
            return f"{path} is missing or cannot be read"
        if size != reference.get(path) and reference.get(path) is not None:
            return f"{path} has {size} bytes, on {first.host} it has {reference[path]}"
    return None


def _endpoint_fault(answer: HostAnswer) -> str | None:
    for url, error in (answer.seen.get("endpoints") or {}).items():
        if error is not None:
            return f"{url} cannot be reached ({error})"
    return None


def _python_fault(answer: HostAnswer) -> str | None:
    version = str(answer.seen.get("python", "0"))
    return None if can_run_worker(version) else f"found Python {version}, the worker needs 3.8"


def _gpu_fault(answer: HostAnswer, slots: int) -> str | None:
    found = len(answer.seen.get("gpus") or [])
    if found >= slots:
        return None
    reason = answer.seen.get("gpu_error")
    return f"found {count_of(found, 'GPU')}, expected {slots}" + (f" ({reason})" if reason else "")


def _clocks(answers: Sequence[HostAnswer]) -> Check:
    """Clocks that differ do no harm to a score (one rank logs), but telemetry of hosts cannot be laid side by side."""
    timed = [(answer.clock, answer.host) for answer in answers if answer.clock is not None]
    if not timed:
        return not_checked("clocks", "no host told its time", "telemetry of several hosts may not fit", required=False)
    clock, host = max(timed, key=lambda item: item[0].certain_s)
    text = f"{host}: {clock.offset_s * 1e3:+.1f} ms (give or take {clock.uncertainty_s * 1e3:.1f} ms)"
    if clock.certain_s > _MAX_CLOCK_OFFSET_S:
        return failed("clocks", text, "run chrony or ntpd on every host", required=False)
    return passed("clocks", f"furthest from ours {text}", required=False)


def _ask_frameworks(
    plan: Plan, reaches: Sequence[Reach], command: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> list[Check]:
    """Versions of what the ranks import, on every host; the first host's whole list, and what differs elsewhere."""
    conversations = run_everywhere(reaches, command, limit_s=limit_s, environment=environment)
    checks: list[Check] = []
    versions: dict[tuple[str | None, ...], str] = {}
    for conversation in conversations:
        output = "\n".join(line for _, line in conversation.lines)
        for seen in read_frameworks(output, conversation.status, conversation.last_error, command[0]):
            judged = judge_frameworks(
                seen, plan.device, transport=plan.config.launcher.transport, needs_dali=needs_dali(plan)
            )
            versions.setdefault((seen.python, seen.numpy, seen.mxnet, seen.horovod), conversation.reach.name)
            if not checks or any(check.outcome.value == "fail" for check in judged):
                checks += [_of_host(check, conversation.reach.name) for check in judged]
    if len(versions) > 1:
        text = "; ".join(f"{host} has {' / '.join(map(str, key))}" for key, host in versions.items())
        checks.append(
            failed("versions", f"hosts differ in Python / NumPy / MXNet / Horovod: {text}", "install the same")
        )
    return checks


def _of_host(check: Check, host: str) -> Check:
    return Check(
        name=check.name,
        outcome=check.outcome,
        found=f"{host}: {check.found}",
        remedy=check.remedy,
        required=check.required,
    )


def facts_of(answer: HostAnswer) -> dict[str, str]:
    """The facts of a host as they stand in hosts.json; what is not known is left out."""
    seen = answer.seen
    gpus = seen.get("gpus") or []
    facts: dict[str, object] = {
        key: seen.get(key)
        for key in (
            *("cpu_model", "num_sockets", "num_cores", "num_cpus", "memory_bytes", "operating_system", "kernel"),
            *("python", "executable"),
        )
    }
    facts["num_gpus"] = len(gpus)
    facts["gpus"] = ", ".join(gpu["name"] for gpu in gpus) or None
    facts["driver"] = next((gpu["driver_version"] for gpu in gpus), None)
    facts["nics"] = ", ".join(f"{name} {rate}" if rate else name for name, rate in (seen.get("nics") or {}).items())
    for path, mount in (seen.get("mounts") or {}).items():
        if mount is not None:
            facts[f"mount {path}"] = f"{mount['source']} {mount['type']} {mount['options']}"
    return {name: str(value) for name, value in facts.items() if value not in (None, "")}


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_HOSTS])
    return shown if len(names) <= _SHOWN_HOSTS else f"{shown} and {len(names) - _SHOWN_HOSTS} more"
