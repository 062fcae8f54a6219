"""Counts in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlbench.wording import count_of, noun

PACKAGE = Path(__file__).resolve().parent.parent / "mlbench"
_SPOKEN = ("analyse", "check", "cli", "publish", "runner")
# What a hand-made plural looks like: `{count} run(s)`, `run{'' if count == 1 else 's'}`, `{len(runs)} runs`.
_HAND_MADE = re.compile(r"\w\(s\)|['\"]s?['\"] if [^{}]*[!=]= 1 else|\{len\([^{}]*\)\} (?:more )?[a-z]+s\b")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (-1, "-1 runs"), (1_000, "1000 runs")]
)
def test_count_of_has_the_singular_for_one_alone(count: int, text: str) -> None:
    assert count_of(count, "run") == text


def test_count_of_takes_another_plural_and_whole_clauses() -> None:
    assert [count_of(count, "process", "processes") for count in (1, 2)] == ["1 process", "2 processes"]
    assert [count_of(count, "fact differs", "facts differ") for count in (1, 2)] == ["1 fact differs", "2 facts differ"]
    assert [noun(count, "chassis", "chassis") for count in (1, 2)] == ["chassis", "chassis"]


@pytest.mark.parametrize("package", _SPOKEN)
def test_no_sentence_makes_its_plural_by_hand(package: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _HAND_MADE.search(line)
    ]
    assert found == []
