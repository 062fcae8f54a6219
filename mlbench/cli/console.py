"""What verbs print with: one place for terminal width, JSON and text that comes from others.

Text from logs, trees and databases of others can hold terminal control sequences. `escape_control` shows them
instead of obeying them; every table and every sentence of a verb goes through it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 200
"""Columns of a table written into a pipe or a file, where there is no terminal to ask."""


def escape_control(text: str) -> str:
    r"""The text with control and direction-changing characters written as `\x1b`; tab and newline stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def make_console(*, stderr: bool = False) -> Console:
    """A Rich console: the terminal's width, or `PIPE_WIDTH` in a pipe; no markup, no guessing at numbers."""
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            # Rich would leave with status 1, which means a bug here; cli/main.py knows what to do.
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return PipedConsole(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def make_table(columns: Sequence[str], *, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """A table in house style; columns named in `right` hold numbers and are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def add_row(table: Table, cells: Iterable[object], *, style: str | None = None) -> None:
    """Add a row; None is shown as `-` (not measured, which is not zero), everything else escaped."""
    from rich.text import Text

    table.add_row(*(Text("-" if cell is None else escape_control(str(cell))) for cell in cells), style=style)


def print_text(text: str = "", *, style: str | None = None, stderr: bool = False) -> None:
    """Print one paragraph, control characters escaped; lines are not broken in a pipe."""
    make_console(stderr=stderr).print(escape_control(text), style=style, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON: SI base units, null for what was not measured, never NaN or Infinity."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n")
