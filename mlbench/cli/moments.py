"""Moments as people type them and as tables show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mlbench.errors import InputError

_AGO = re.compile(r"^(\d{1,6})([hdw])$")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def parse_since(text: str, now: datetime | None = None) -> datetime:
    """`2024-05-01`, `2024-05-01T09:30`, `12h`, `7d`, `4w` as a moment in UTC; a time without a zone is UTC.

    Raises: InputError.
    """
    ago = _AGO.match(text)
    if ago is not None:
        try:
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError as error:
            raise InputError(f"--since: {text!r} lies before the calendar begins") from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--since: found {text!r}, expected a date as 2024-05-01 or a span as 12h, 7d, 4w") from error
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def shown(moment: datetime | None) -> str:
    """`2024-05-01 09:30 UTC`, or `-`."""
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
