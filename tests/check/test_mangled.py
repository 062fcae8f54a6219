"""Whatever happens to a log, `check` comes to a verdict, and never to a better one than the clean log gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbench.check.checker import RUN_RULES
from mlbench.check.finding import Severity, Status
from mlbench.check.judgement import judge, score
from mlbench.check.locate import locate
from mlbench.check.rule import RunContext, apply
from mlbench.check.set_rules import SET_RULES, SetContext
from tests.support.run_logs import BASE_MINUTES, BASE_SEEDS, START_MS, run_lines

CLEAN = [
    ("\n".join(run_lines(minutes=minutes, seed=seed, epochs=35, start_ms=START_MS + index * 3_600_000)) + "\n").encode()
    for index, (minutes, seed) in enumerate(zip(BASE_MINUTES, BASE_SEEDS, strict=True))
]
TEXTS = [
    (b"success", b"aborted"),
    (b"null", b"NaN"),
    (b"3264", b"1e999"),
    (b'"value"', b'"v"'),
    (b"35", b"[[[["),
    (b"time_ms", b"time"),
]
CLEAN_SCORE_S = 36.66044 * 60  # cases.md section 4, ruleset 4.0.0


@st.composite
def mangled(draw: st.DrawFn) -> list[bytes]:
    """The base set with one to three logs cut, glued, repeated, reordered or overwritten."""
    logs = list(CLEAN)
    for number in draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)):
        data = bytearray(logs[number])
        first, second = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        how = draw(st.sampled_from(["cut", "glue", "drop", "repeat", "swap", "bytes", "text"]))
        if how == "cut":
            data = data[:second]
        elif how == "glue":
            data = data.replace(b"\n", b" ", draw(st.integers(1, 40)))
        elif how == "drop":
            data = data[:first] + data[second:]
        elif how == "repeat":
            data = data[:second] + data[first:]
        elif how == "swap":
            lines = bytes(data).split(b"\n")
            here, there = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
            lines[here], lines[there] = lines[there], lines[here]
            data = bytearray(b"\n".join(lines))
        elif how == "bytes":
            for place in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=20)):
                data[place] = draw(st.integers(0, 255))
        else:
            old, new = draw(st.sampled_from(TEXTS))
            data = data.replace(old, new)
        logs[number] = bytes(data)
    return logs


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(logs=mangled())
def test_mangled_set_has_a_verdict_and_never_a_better_score(logs: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, log in enumerate(logs):
            (folder / f"result_{index}.txt").write_bytes(log)
        (item,) = locate(folder, "4.0.0").sets
        judged = judge(item)
        findings = [
            finding
            for file, target, reason in zip(item.logs, judged.targets, judged.why_lost, strict=True)
            for rule in RUN_RULES
            for finding in apply(rule, RunContext(file=file, parent=item, target=target, why_lost=reason), file.name)
        ]
        for set_rule in SET_RULES:
            findings += apply(set_rule, SetContext(item=item, judged=judged), item.name)
        broken = [
            finding
            for finding in findings
            if finding.severity is Severity.error and finding.status is not Status.passed
        ]
        result = score(item, judged, [])
    if not broken and result is not None and result.score_s is not None:
        assert result.score_s >= CLEAN_SCORE_S - 0.01
