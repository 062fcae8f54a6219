"""Everything mlbench refuses, in one family.

    MlbenchError            2
    |- ConfigError          2   a setting, an override, a profile
    |- InputError           2   a file or folder that cannot be read as what it should be
    |- PreflightError       2   this machine cannot run what was asked
    |- StoreError           2   the database cannot be opened, written or understood
    |- RunFailedError       3   an attempt crashed, hung or left no run_stop
    |- NotCompliantError    4   a rule is broken, or a result is worse than the tolerance
    `- StoppedError       130   the user interrupted

A message is one sentence for the user: where, what was found, what was expected, what to do.
Anything that is not an MlbenchError is a bug in mlbench and ends with a traceback and status 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class MlbenchError(Exception):
    """A fault that the user can mend; its text is shown without a traceback."""

    exit_code: ClassVar[int] = 2


class ConfigError(MlbenchError):
    """A setting, an override or a profile is wrong."""


class InputError(MlbenchError):
    """A file or folder cannot be read as what it should be."""


class PreflightError(MlbenchError):
    """This machine cannot run what was asked; nothing was launched."""


class StoreError(MlbenchError):
    """The database cannot be opened, written or understood."""


class RunFailedError(MlbenchError):
    """An attempt crashed, hung or left no run_stop."""

    exit_code = 3


class NotCompliantError(MlbenchError):
    """A rule is broken, or a result is worse than the tolerance."""

    exit_code = 4


class StoppedError(MlbenchError):
    """The user interrupted; what was finished is kept."""

    exit_code = 130


def near_miss(word: str, known: Iterable[str]) -> str:
    """A clause naming the nearest known word, or an empty string: `; did you mean 'dgxa100'?`."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""
