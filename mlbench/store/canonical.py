"""Two run sets row for row, whatever numbers their databases gave the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mlbench.store.rows import RunSetRows, build_rows
from mlbench.store.summary import iso_utc
from mlbench.store.tables import RunSet


def canonical_rows(run_set: RunSet) -> dict[str, list[str]]:
    """table -> its rows as JSON text, sorted. Rows of a run carry the run's index, attempt and warm-up.

    Links between rows are told by these names, never by the numbers that a database gave them.
    """
    return _canonical(build_rows(run_set))


def differences(found: RunSet, expected: RunSet) -> Iterator[str]:
    """What differs, a clause each: which table, how many rows on each side, and the first differing columns."""
    left, right = canonical_rows(found), canonical_rows(expected)
    for table in sorted(set(left) | set(right)):
        ours, theirs = left.get(table, []), right.get(table, [])
        if ours == theirs:
            continue
        if len(ours) != len(theirs):
            yield f"{table}: {len(ours)} rows, expected {len(theirs)}"
            continue
        first = next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
        yield f"{table}: {_columns(*map(json.loads, first))}"


def _canonical(rows: RunSetRows) -> dict[str, list[str]]:
    # A name given to the folder later is no difference: it tells where the files lie, not what they are.
    own = {key: value for key, value in rows.row.items() if key != "runs_folder"}
    tables: dict[str, list[str]] = {"run_set": [_text(own)], "system": [_text(rows.system)] if rows.system else []}
    for table, children in rows.children.items():
        tables.setdefault(table.name, []).extend(map(_text, children))
    for run in rows.runs:
        tables.setdefault("run", []).append(_text(run.row))
        key = {f"run_{name}": run.row[name] for name in ("index", "attempt", "warmup")}
        for table, children in run.children.items():
            tables.setdefault(table.name, []).extend(_text(key | child) for child in children)
    return {name: sorted(texts) for name, texts in tables.items() if texts}


def _columns(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    names = [name for name in sorted(set(ours) | set(theirs)) if ours.get(name) != theirs.get(name)]
    shown = [f"{name} {_short(ours.get(name))}, expected {_short(theirs.get(name))}" for name in names[:3]]
    return "; ".join(shown) + (f"; and {len(names) - 3} more columns" if len(names) > 3 else "")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return iso_utc(value)
