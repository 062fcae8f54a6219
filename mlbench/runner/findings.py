"""findings.json: what stages and checks found, for whoever reads the run set later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlbench.check.finding import Severity
from mlbench.collect.runfiles import write_json
from mlbench.collect.runfolder import RunFolder
from mlbench.ingest.plain import load_json


def read_findings(folder: RunFolder) -> list[dict[str, Any]]:
    """The findings so far. Raises InputError: the file is damaged."""
    return [item for item in load_json(folder.findings, list) if isinstance(item, dict)]


def put_finding(
    folder: RunFolder,
    rule: str,
    severity: Severity,
    text: str,
    *,
    file: str | None = None,
    line: int | None = None,
) -> None:
    """Add one finding; an earlier one of the same rule and file is replaced. Raises OSError, InputError."""
    finding = {"rule": rule, "severity": severity.value, "file": file, "line": line, "text": text}
    kept = [item for item in read_findings(folder) if (item.get("rule"), item.get("file")) != (rule, file)]
    write_json(folder.findings, [*kept, finding])


def drop_findings(folder: RunFolder, rules: Sequence[str]) -> None:
    """Take back findings that no longer hold."""
    before = read_findings(folder)
    kept = [item for item in before if item.get("rule") not in rules]
    if len(kept) != len(before):
        write_json(folder.findings, kept)
