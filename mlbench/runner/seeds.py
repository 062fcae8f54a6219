"""A fresh seed for every attempt."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

SEED_BITS = 31
"""Seeds fit a signed 32-bit integer, which every library takes."""


def fresh_seed(used: Collection[int], draw: Callable[[], int] = lambda: secrets.randbits(SEED_BITS)) -> int:
    """A seed from the operating system's entropy that this run set has not used."""
    while (seed := draw()) in used:
        continue
    return seed


def numbered_seed(first: int, *, index: int, attempt: int, warmup: bool, repeats: int, warmup_runs: int) -> int:
    """The seed of one attempt when the user fixed the first one: `first` + index for the runs; warm-ups come after
    the runs, and each later attempt takes the next block of numbers, so that none is ever used twice."""
    place = index + (repeats if warmup else 0)
    return first + place + attempt * (repeats + warmup_runs)
