"""Rules over one system description, and what it says against the logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mlbench.check.finding import Severity
from mlbench.check.rule import NotApplicable, Outcome, Problem, Rule, Unknown, listed, logged_problem
from mlbench.check.rulesets import DESCRIPTION_STATUSES, DIVISIONS, at_least
from mlbench.check.subject import ResultSet
from mlbench.collect.mllog import shown
from mlbench.errors import near_miss

REQUIRED_FIELDS = (
    "submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node",
    "host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count", "host_processor_frequency",
    "host_processor_caches", "host_processor_interconnect", "host_memory_capacity", "host_storage_type",
    "host_storage_capacity", "host_networking", "host_networking_topology", "host_memory_configuration",
    "accelerators_per_node", "accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency",
    "accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity",
    "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes", "framework",
    "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
"""The 33 fields of mlperf_logging system_desc_checker.py."""
JOINED_FIELDS = (
    "submitter", "system_name", "host_processor_model_name", "host_processor_core_count", "accelerator_model_name",
    "accelerators_per_node", "framework",
)  # fmt: skip
"""The official checker joins these as text and ends in a TypeError on anything else."""
FIRST_CHECKED = "1.0.0"
"""package_checker looks at system descriptions from this ruleset on."""
PLACEHOLDER = re.compile(r"PLACEHOLDER|^(unnamed|your[_ ].*|todo|xxx+)$", re.IGNORECASE)


def _data(item: ResultSet) -> Mapping[str, Any]:
    """The description. Raises NotApplicable where SYS-01 has already said that there is none."""
    if item.description is None or item.description.data is None:
        raise NotApplicable
    return item.description.data


def _softened(item: ResultSet) -> Severity | None:
    """Before ruleset 1.0.0 nobody checked descriptions, and published ones break this rule."""
    return None if at_least(item.ruleset, FIRST_CHECKED) else Severity.warning


def present(item: ResultSet) -> Iterable[Outcome]:
    """SYS-01: the system description is there and is a JSON object."""
    if item.description is None:
        yield Problem(
            found="no system description", expected=item.description_expected or "systems/<system>.json",
            file=item.description_expected,
        )  # fmt: skip
    elif item.description.data is None:
        yield Problem(found=item.description.error or "unreadable", expected="a JSON object")


def fields_complete(item: ResultSet) -> Iterable[Outcome]:
    """SYS-02: all 33 fields are there."""
    data = _data(item)
    odd = [key for key in data if key not in REQUIRED_FIELDS]
    for name in REQUIRED_FIELDS:
        if name not in data:
            yield Problem(
                found=f"no field {name!r}{_misspelt(name, odd)}",
                expected="all 33 fields",
                severity=_softened(item),
            )


def values_are_text(item: ResultSet) -> Iterable[Outcome]:
    """SYS-03: values are text, numbers too."""
    for name, value in _data(item).items():
        if name == "other_software_stack" or isinstance(value, str):
            continue
        joined = name in JOINED_FIELDS
        yield Problem(
            found=f"{name} is {shown(value)} ({type(value).__name__})",
            expected="text",
            severity=None if joined else Severity.warning,
        )


def status_known(item: ResultSet) -> Iterable[Outcome]:
    """SYS-04: `status` is one of the rules' words, from ruleset 4.0.0 on."""
    if not at_least(item.ruleset, "4.0.0"):
        raise NotApplicable
    status = _data(item).get("status")
    if status is None:
        yield Unknown(reason="the description has no status")
    elif status not in DESCRIPTION_STATUSES:
        yield Problem(
            found=f"status {shown(status)}{near_miss(str(status), DESCRIPTION_STATUSES)}",
            expected=" or ".join(DESCRIPTION_STATUSES),
        )


def division_agrees(item: ResultSet) -> Iterable[Outcome]:
    """SYS-05: the description and the logs name the same division."""
    division = _data(item).get("division")
    if division is None:
        yield Unknown(reason="the description has no division", severity=_softened(item))
        return
    if division not in DIVISIONS:
        yield Problem(
            found=f"division {shown(division)}{near_miss(str(division), DIVISIONS)}", expected="closed or open"
        )
    for file in item.logs:
        if file.log.division is not None and file.log.division != division:
            yield logged_problem(
                file,
                "submission_division",
                found=f"submission_division {shown(file.log.division)}",
                expected=f"{shown(division)}, as in the system description",
            )


def submitter_agrees(item: ResultSet) -> Iterable[Outcome]:
    """SYS-06: description, folder and logs name one submitter, and no placeholder."""
    submitter = str(_data(item).get("submitter") or "")
    if not submitter:
        yield Unknown(reason="the description names no submitter", severity=Severity.warning)
    elif item.org is not None and _plain(submitter) != _plain(item.org):
        yield Problem(found=f"submitter {shown(submitter)}", expected=f"{shown(item.org)}, as the folder is called")
    logged = {file.log.org for file in item.logs if file.log.org is not None}
    for org in sorted(logged):
        if PLACEHOLDER.search(org):
            yield _first(item, "submission_org", org, "the submitter, not a placeholder")
        elif submitter and _plain(org) != _plain(submitter):
            yield _first(item, "submission_org", org, f"{shown(submitter)}, as in the system description")


def system_agrees(item: ResultSet) -> Iterable[Outcome]:
    """SYS-07: the system is called the same in the description, the folder's name and the logs."""
    data = _data(item)
    name = data.get("system_name")
    if not name:
        yield Unknown(reason="the description has no system_name", severity=Severity.warning)
    elif item.system is not None and name != item.system:
        yield Problem(found=f"system_name {shown(name)}", expected=f"{shown(item.system)}, as the folder is called")
    for platform in sorted({file.log.platform for file in item.logs if file.log.platform}):
        if PLACEHOLDER.search(platform):
            yield _first(item, "submission_platform", platform, "the system, not a placeholder")


def nodes_agree(item: ResultSet) -> Iterable[Outcome]:
    """SYS-08: `number_of_nodes` is a count, and the platform `<n>x<system>` of the logs says the same."""
    text = str(_data(item).get("number_of_nodes", "")).strip()
    if not text:
        yield Unknown(reason="the description does not say how many nodes", severity=Severity.warning)
        return
    if not text.isdecimal() or int(text) < 1:
        yield Problem(found=f"number_of_nodes {shown(text)}", expected="a count above 0")
        return
    for platform in sorted({file.log.platform for file in item.logs if file.log.platform}):
        counted = re.match(r"^(\d+)x", platform)
        if counted and int(counted[1]) != int(text):
            yield _first(item, "submission_platform", platform, f"{text}x..., as number_of_nodes says")


def filled_in(item: ResultSet) -> Iterable[Outcome]:
    """SYS-09: fields that say something."""
    empty = [name for name in REQUIRED_FIELDS if _data(item).get(name) == ""]
    if empty:
        yield Problem(found=f"empty: {listed(empty)}", expected="a value, or N/A where the system has none")


def _first(item: ResultSet, key: str, value: str, expected: str) -> Problem:
    """One problem for a value that several logs share, at the first of them."""
    for file in item.logs:
        for record in file.records.all(key):
            if record.value == value:
                more = sum(entry.log.org == value or entry.log.platform == value for entry in item.logs)
                in_others = f" (in {more} logs, first here)" if more > 1 else ""
                return Problem(
                    found=f"{key} {shown(value)}{in_others}", expected=expected, file=file.name, line=record.line
                )
    return Problem(found=f"{key} {shown(value)}", expected=expected)


def _plain(name: str) -> str:
    """`Dell EMC`, `DellEMC` and `dell_emc` are one submitter."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _misspelt(name: str, odd: list[str]) -> str:
    plain = {_plain(key): key for key in odd}
    if _plain(name) in plain:
        return f", but {plain[_plain(name)]!r}"
    return near_miss(name, odd).replace("; did you mean ", ", but ").rstrip("?")


SYSTEM_RULES: tuple[Rule[ResultSet], ...] = (
    Rule(id="SYS-01", title="The system description is there", severity=Severity.error,
         source="MLPerf submission rules; mlperf_logging package_checker",
         remedy="write systems/<system>.json; mlbench package does", check=present),
    Rule(id="SYS-02", title="The system description has all fields", severity=Severity.error,
         source="mlperf_logging system_desc_checker (1.0.0 on; a warning before)", remedy="add the field",
         check=fields_complete),
    Rule(id="SYS-03", title="Values of the system description are text", severity=Severity.error,
         source="mlperf_logging system_desc_checker (it joins seven of them as text; the others are a warning)",
         remedy="put the value in quotation marks", check=values_are_text),
    Rule(id="SYS-04", title="The status is one of the rules' words", severity=Severity.error,
         source="mlperf_logging system_desc_checker (4.0.0 on)", remedy="write the status as the rules have it",
         check=status_known),
    Rule(id="SYS-05", title="Logs and description name one division", severity=Severity.error,
         source="mlperf_logging package_checker (it takes the description's)", remedy="correct the one that is wrong",
         check=division_agrees),
    Rule(id="SYS-06", title="One submitter, and no placeholder", severity=Severity.warning,
         source="mlbench; 20 % of published logs break it",
         remedy="set submission.org when running; mlbench package --org fills in `unnamed`", check=submitter_agrees),
    Rule(id="SYS-07", title="One name for the system", severity=Severity.warning, source="mlbench",
         remedy="set submission.platform when running; call the folder as the system", check=system_agrees),
    Rule(id="SYS-08", title="One number of nodes", severity=Severity.warning, source="mlbench",
         remedy="correct number_of_nodes, or the platform that is logged", check=nodes_agree),
    Rule(id="SYS-09", title="The fields say something", severity=Severity.note, source="mlbench",
         remedy="fill them in", check=filled_in),
)  # fmt: skip
