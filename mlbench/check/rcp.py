"""Reference Convergence Points of the installed mlperf_logging: which batch sizes have one, the test, the factor.

Only the data files of mlperf_logging are read; the arithmetic is analyse/rcp.py, tested equal to the official checker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlbench.analyse.rcp import RcpBasis, RcpResult, ReferencePoint, find_reference, prune, rcp_test, reference_point
from mlbench.analyse.score import RUNS_ASKED
from mlbench.choices import Division
from mlbench.errors import InputError
from mlbench.plan.rules import CLOSED_REPEATS

FIRST_RULESET = (1, 0, 0)
"""The test applies from here on, in the closed division."""
FIRST_NORMALISING_RULESET = (2, 1, 0)
"""From here on a score is multiplied by the factor when it is above 1."""

_MAX_BYTES = 4_000_000


def ruleset_version(ruleset: str) -> tuple[int, int, int] | None:
    """`2.1.0` (or `2.1`, as a round is called) in numbers; None when it is not a version."""
    parts = ruleset.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and len(part) < 4 for part in parts):
        return None
    numbers = [int(part) for part in parts] + [0]
    return numbers[0], numbers[1], numbers[2]


def applies(ruleset: str | None, division: Division | str | None) -> bool:
    """The test is asked of closed submissions from ruleset 1.0.0 on."""
    return _at_least(ruleset, FIRST_RULESET) and _is_closed(division)


def normalises(ruleset: str | None, division: Division | str | None) -> bool:
    """Whether the score of an own run set is multiplied by the factor."""
    return _at_least(ruleset, FIRST_NORMALISING_RULESET) and _is_closed(division)


def _at_least(ruleset: str | None, first: tuple[int, int, int]) -> bool:
    version = ruleset_version(ruleset) if ruleset is not None else None
    return version is not None and version >= first


def _is_closed(division: Division | str | None) -> bool:
    return division is Division.closed or division == Division.closed.value


@lru_cache(maxsize=64)
def reference_points(ruleset: str, benchmark: str = "resnet") -> tuple[ReferencePoint, ...]:
    """Every reference point of a ruleset, in order of batch size; empty when the ruleset has none.

    Raises: InputError: mlperf_logging is not installed, or its file is not what it should be.
    """
    version = ruleset_version(ruleset)
    if version is None or not benchmark.replace("_", "").isalnum():
        return ()
    path = (
        mlperf_logging_folder() / "rcp_checker" / f"training_{'.'.join(map(str, version))}" / f"rcps_{benchmark}.json"
    )
    if not path.is_file():
        return ()
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: larger than {_MAX_BYTES} bytes; reinstall mlperf_logging")
        body = json.loads(path.read_text(encoding="utf-8"))
        points = [_point(item, benchmark) for item in body.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a file of reference points ({error}); reinstall mlperf_logging") from error
    return tuple(sorted(points, key=lambda point: point.batch_size))


def _point(item: dict[str, Any], benchmark: str) -> ReferencePoint:
    epochs = [float(value) for value in item["Epochs to converge"]]
    return reference_point(int(item["BS"]), epochs, num_runs=RUNS_ASKED.get(benchmark, CLOSED_REPEATS))


def mlperf_logging_folder() -> Path:
    """Where the installed package lies; it is not imported. Raises InputError when it is not installed."""
    spec = find_spec("mlperf_logging")
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not locations:
        raise InputError("mlperf_logging is not installed, so no reference points are known; install mlbench again")
    return Path(locations[0])


@lru_cache(maxsize=64)
def pruned_points(ruleset: str, benchmark: str = "resnet") -> tuple[ReferencePoint, ...]:
    """The points that submissions are compared with, as the official package checker does."""
    return prune(reference_points(ruleset, benchmark))


def convergence(
    epochs: Sequence[float | None], *, batch_size: int | None, ruleset: str, benchmark: str = "resnet"
) -> RcpResult:
    """The official test of one run set.

    Args:
        epochs: shape (num_runs,), epochs to converge, None for a lost run (it counts as the slowest).
        batch_size: global batch size of all runs; None when it is not known or the runs differ.
    """
    points = pruned_points(ruleset, benchmark)
    if not points:
        return RcpResult(basis=RcpBasis.none)
    if batch_size is None:
        return RcpResult(basis=RcpBasis.missing)
    return rcp_test([math.inf if value is None else value for value in epochs], batch_size, points)


def refusal(result: RcpResult, *, batch_size: int | None, ruleset: str) -> str | None:
    """Why a result has no score under the references, in words; None when it passed."""
    if result.passed:
        return None
    if result.basis is RcpBasis.none:
        return f"ruleset {ruleset} has no reference points for this benchmark"
    if result.basis is RcpBasis.missing:
        return f"no reference for batch {batch_size} in ruleset {ruleset}"
    if result.mean_epochs is None or result.reference is None:
        return "too few converged runs to compare with the reference"
    return (
        f"{result.mean_epochs:.4g} epochs on average, at least {result.reference.min_epochs:.4f} expected at batch "
        f"{batch_size} ({result.basis.value}, ruleset {ruleset})"
    )


def plan_note(batch_size: int, ruleset: str, benchmark: str = "resnet") -> str | None:
    """What to tell before launch when a batch size has no reference of its own; None when it has one."""
    points = pruned_points(ruleset, benchmark)
    basis, reference = find_reference(batch_size, points)
    sizes = ", ".join(str(point.batch_size) for point in points)
    if basis is RcpBasis.found:
        return None
    if basis is RcpBasis.none:
        return f"ruleset {ruleset} has no reference points for {benchmark}; convergence cannot be compared"
    if basis is RcpBasis.missing:
        return f"no reference for batch {batch_size} in ruleset {ruleset}, so no score: references are at {sizes}"
    if basis is RcpBasis.smallest and reference is not None:
        return (
            f"batch {batch_size} is below the smallest reference of ruleset {ruleset} ({reference.batch_size}); "
            f"its {reference.mean_epochs:.2f} epochs are the measure"
        )
    return f"batch {batch_size} has no reference of its own in ruleset {ruleset}: interpolated, references at {sizes}"
