"""A report as data: sections of blocks. HTML and Markdown show the same blocks, so they cannot disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from mlbench.publish.charts import Figure


class Tone(Enum):
    """How a badge or a sentence is meant; never told by colour alone, the words say it too."""

    good = "good"
    bad = "bad"
    warn = "warn"
    plain = "plain"


@dataclass(frozen=True, slots=True)
class Badge:
    text: str
    tone: Tone = Tone.plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = Tone.plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """A few numbers that are read first: (value, what it is, small print)."""

    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlock:
    """`numbers` are the columns aligned to the right. Cells are text; None is "not measured", shown as a dash."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    numbers: Sequence[str] = ()
    note: str | None = None
    folded: bool = False
    """Long ones are closed on the page until asked for; printed they are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureBlock:
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Command lines, each ready to be pasted."""

    title: str
    lines: Sequence[str]


Block: TypeAlias = Text | Tiles | TableBlock | FigureBlock | Commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The first thing that is read: one sentence, and what it rests on."""

    headline: str
    tone: Tone
    details: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str
    subtitle: str
    badges: Sequence[Badge]
    banner: str | None
    """Said across the whole page, and on every printed page: this is a rehearsal."""
    verdicts: Sequence[Verdict]
    sections: Sequence[Section]
    missing: Sequence[tuple[str, str]]
    """(plot, why it could not be drawn)."""
    made: str
    """When and with which version."""
    command: str
    figures: Sequence[Figure] = field(default_factory=tuple)
