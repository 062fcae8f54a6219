"""Counts as a sentence has them."""

from __future__ import annotations


def noun(count: int, one: str, many: str | None = None) -> str:
    """The form that stands after a count; `many` where it is not `one` with an s, also of several words."""
    if count == 1:
        return one
    return many if many is not None else f"{one}s"


def count_of(count: int, one: str, many: str | None = None) -> str:
    """`1 run`, `5 runs`; `1 fact differs`, `2 facts differ`."""
    return f"{count} {noun(count, one, many)}"
