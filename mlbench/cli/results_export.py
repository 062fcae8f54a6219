"""`mlbench results export`: where the rows or the bundle go, and what is said about it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Any, TypeVar

from sqlalchemy import Engine

from mlbench.cli.console import print_text
from mlbench.errors import InputError, near_miss
from mlbench.store.export import (
    Format,
    Subject,
    export_columns,
    export_rows,
    write_csv,
    write_json,
    write_parquet,
)
from mlbench.store.repository import RunSetFilter, find_run_set, list_run_sets
from mlbench.wording import count_of

_E = TypeVar("_E", bound=Enum)


def export_rows_to(
    engine: Engine, format_: str, what: str, out: Path | None, filters: RunSetFilter, limit: int | None
) -> None:
    """Write rows to `out` (there whole or not at all) or to standard output."""
    form, subject = _member(Format, "--format", format_), _member(Subject, "--rows", what)
    rows = export_rows(engine, subject, filters, limit)
    columns = export_columns(subject)
    names = [str(column.key) for column in columns]
    if form is Format.parquet:
        if out is None and sys.stdout.isatty():
            raise InputError("results export: Parquet is no text for a terminal; give --out FILE")
        _write(out, True, lambda stream: write_parquet(stream, columns, rows))
    elif form is Format.json:
        _write(out, False, lambda stream: write_json(stream, rows))
    else:
        _write(out, False, lambda stream: write_csv(stream, names, rows))
    if out is not None:
        print_text(f"{count_of(len(rows), 'row')} of {subject.value.replace('_', ' ')} written to {out}", stderr=True)


def export_bundle(engine: Engine, out: Path, names: Sequence[str], filters: RunSetFilter, limit: int | None) -> None:
    """Write run sets with their files into one file."""
    from mlbench.ingest.bundle import write_bundle

    chosen = [find_run_set(engine, name) for name in names]
    if not chosen:
        chosen = [item.run_set for item in list_run_sets(engine, filters, limit)]
    written = write_bundle(engine, chosen, replaceable(out))
    held = f"{count_of(written.num_run_sets, 'run set')} with {count_of(written.num_files, 'file')}"
    print_text(f"{held} ({written.size_bytes} bytes) in {out}")
    print_text(f"read it elsewhere with: mlbench import --bundle {out.name}")


def replaceable(out: Path) -> Path:
    """Where a file is put whole: the end of a link, so that the link stays. Raises InputError for a device or a pipe,
    which the finished file would take the place of."""
    if out.exists() and not out.is_file():
        kind = "folder" if out.is_dir() else "device or pipe"
        raise InputError(f"{out}: is a {kind}, expected the name of a file; without --out rows go to standard output")
    return Path(os.path.realpath(out))


def _member(kind: type[_E], option: str, text: str) -> _E:
    try:
        return kind(text.lower())
    except ValueError as error:
        words = [str(member.value) for member in kind]
        raise InputError(
            f"{option}: found {text!r}, expected one of {', '.join(words)}{near_miss(text, words)}"
        ) from error


def _write(out: Path | None, binary: bool, write: Callable[[IO[Any]], None]) -> None:
    if out is None:
        write(sys.stdout.buffer if binary else sys.stdout)
        return
    out = replaceable(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") if binary else part.open("w", encoding="utf-8", newline="") as stream:
            write(stream)
        part.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); nothing was left there") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
