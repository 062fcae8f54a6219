"""What a plot is before it is drawn: a title, words for those who cannot see it, and how to draw it at a width.

A plot without data is not drawn: it is `Absent`, with the reason, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

WIDE = 900
"""Pixels of a plot in the text column of a desktop page, and of the files."""
NARROW = 350
"""Pixels of a plot on a phone; drawn anew rather than shrunk, so that its text can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`draw(width)` makes the Altair chart, `width` in pixels with axes; `alt` says in words what the plot shows."""

    key: str
    title: str
    caption: str
    alt: str
    draw: Callable[[int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A plot that cannot be drawn, and why."""

    key: str
    title: str
    reason: str


Plot: TypeAlias = Figure | Absent
