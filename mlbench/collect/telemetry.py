"""Telemetry files of one attempt: telemetry/<host>.jsonl to series of one metric on one host.

Long runs are thinned: a series keeps at most `MAX_POINTS` points. Time is cut into equal buckets of whole intervals,
and a bucket becomes one point: the mean of its values, at the mean of their times. Minimum, maximum and mean of the
series are those of all values read, so that a short peak is never thinned away from them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlbench.collect.runlog import Note

MAX_POINTS = 1200
"""One point every three seconds of an hour: finer than any plot shows."""
MAX_LINES = 1_000_000
"""Eleven days at one a second; a longer file is not one run's."""
MAX_METRICS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one host. `times_ms` are milliseconds since 1970 on that host's clock, not decreasing."""

    host: str
    metric: str
    times_ms: tuple[float, ...]
    values: tuple[float, ...]
    mean: float
    min: float
    max: float


def read_telemetry(folder: Path, *, max_points: int = MAX_POINTS) -> tuple[list[Series], list[Note]]:
    """Every series in a telemetry folder, ordered by host and metric; lines that cannot be read are notes.

    A last line cut short is usual (the host was killed) and no note.
    """
    series: list[Series] = []
    notes: list[Note] = []
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        if path.is_symlink() or not path.is_file():
            notes.append(Note(path.name, None, "not a plain file, left out"))
            continue
        found = _read_file(path, notes)
        for metric in sorted(found):
            times, values = zip(*found[metric], strict=True)
            series.append(_series(path.stem, metric, times, values, max_points))
    return series, notes


def _read_file(path: Path, notes: list[Note]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in _lines(path, notes):
        try:
            item = json.loads(line)
            if isinstance(item, dict) and "m" not in item:
                continue  # the head
            time_ms = float(item["t"])
            metrics = {str(name): float(value) for name, value in item["m"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if line.endswith("\n"):
                notes.append(Note(path.name, number, "a telemetry line that cannot be read, left out"))
            continue
        for name, value in metrics.items():
            if math.isfinite(value) and (name in found or len(found) < MAX_METRICS):
                found.setdefault(name, []).append((time_ms, value))
    return {name: sorted(points) for name, points in found.items()}


def _lines(path: Path, notes: list[Note]) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            if number > MAX_LINES:
                notes.append(Note(path.name, number, f"more than {MAX_LINES} lines; the rest is left out"))
                return
            yield number, line


def _series(host: str, metric: str, times: Sequence[float], values: Sequence[float], max_points: int) -> Series:
    kept_times, kept_values = thin(times, values, max_points)
    return Series(
        host=host,
        metric=metric,
        times_ms=kept_times,
        values=kept_values,
        mean=math.fsum(values) / len(values),
        min=min(values),
        max=max(values),
    )


def thin(
    times: Sequence[float], values: Sequence[float], max_points: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """At most `max_points` points: means of neighbours, the same number in each but the last."""
    width = math.ceil(len(times) / max_points)
    if width <= 1:
        return tuple(times), tuple(values)
    starts = range(0, len(times), width)
    buckets = [(times[start : start + width], values[start : start + width]) for start in starts]
    return (
        tuple(math.fsum(part) / len(part) for part, _ in buckets),
        tuple(math.fsum(part) / len(part) for _, part in buckets),
    )
