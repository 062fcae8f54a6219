"""The printed table of nccl-tests, read by the names in its header.

Columns changed over the years (`error` became `#wrong`, `root` came, time stamps and per-iteration columns are
optional), and launchers put their own text ahead of every line. So the header line tells which column is which and
what stands ahead of it; a layout that is not understood is an error, never zeros.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlbench.collect.allreduce import AllReduceRow, AllReduceTable, fault_of_rows
from mlbench.errors import InputError

_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device", re.IGNORECASE)
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s*(\w*)")
_ERROR = re.compile(r"#\s*error:\s*(\S.*)|Test (?:NCCL|CUDA) failure.*")
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)")
_TIMES = ("time", "cputime")
_WRONG = ("#wrong", "error")
_MAX_WRONG_ERROR = 1e-3
"""The old `error` column is a largest deviation, not a count; half precision sums deviate by less than this."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Columns of one place: positions in the row."""

    time: int
    algbw: int
    busbw: int
    wrong: int
    counts_wrong: bool
    in_place: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    size: int
    num_columns: int
    groups: tuple[_Group, ...]
    prefix: re.Pattern[str]


@dataclass(slots=True)
class _Reading:
    layout: _Layout | None = None
    num_headers: int = 0
    places: str = ""
    hosts: dict[str, str] = field(default_factory=dict)
    num_rank_lines: int = 0
    rows: list[AllReduceRow] = field(default_factory=list)
    average: float | None = None
    failure: str | None = None
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def parse_nccl_tests(text: str, *, num_ranks: int | None = None) -> AllReduceTable:
    """Read the output of `all_reduce_perf`.

    Args:
        text: everything the launcher printed, with any prefix and other lines between.
        num_ranks: what was asked for; a table of another number of ranks is a failure.
    Returns:
        the table; `failure` says why it is no result: wrong values, no average line (incomplete), processes that ran
        apart, zeros. Values of a table whose checks were off are kept with `num_wrong` None and a note.
    Raises:
        InputError: no table in the text, or a header that is not understood.
    """
    reading = _Reading()
    for number, line in enumerate(text.splitlines(), start=1):
        _read_line(reading, number, line)
    if reading.num_headers == 0:
        raise InputError(f"no nccl-tests table in {len(text.splitlines())} lines: {_last_words(text)}")
    found_ranks = len(reading.hosts)
    failure = (
        _ran_apart(reading, num_ranks)
        or reading.failure
        or _incomplete(reading)
        or fault_of_rows(reading.rows, num_ranks or found_ranks)
    )
    return AllReduceTable(
        backend="nccl_tests",
        transport="NCCL",
        num_ranks=found_ranks or num_ranks or 0,
        hosts=tuple(dict.fromkeys(reading.hosts.values())),
        rows=tuple(reading.rows),
        failure=failure,
        notes=tuple(dict.fromkeys(reading.notes)),
        settings=reading.settings,
    )


def _read_line(reading: _Reading, number: int, line: str) -> None:
    if _is_header(line):
        reading.num_headers += 1
        layout = _layout(line, reading.places, number)
        reading.layout = reading.layout or layout
    elif "-place" in line and "#" in line:
        reading.places = line
    elif match := _RANK.search(line):
        reading.num_rank_lines += 1
        reading.hosts[match[1]] = match[2]
    elif match := _AVERAGE.search(line):
        reading.average = _number(match[1])
    elif match := _OUT_OF_BOUNDS.search(line):
        if int(match[1]) or match[2] == "FAILED":
            reading.failure = f"line {number}: {match[1]} values out of bounds, expected 0"
    elif match := _ERROR.search(line):
        reading.failure = reading.failure or f"line {number}: {match[0].strip()}"
    elif match := _VERSION.search(line):
        reading.settings["nccl_tests_version"] = match[1]
    elif reading.layout is not None:
        _read_row(reading, reading.layout, number, line)


def _is_header(line: str) -> bool:
    words = line.replace("#wrong", "").split()
    return "#" in line and {"size", "algbw", "busbw"} <= set(words) and any(name in words for name in _TIMES)


def _layout(line: str, places: str, number: int) -> _Layout:
    prefix_text, _, names_text = line.partition("#")
    names = names_text.split()
    starts = [position for position, name in enumerate(names) if name in _TIMES]
    groups = []
    for position, start in enumerate(starts):
        end = starts[position + 1] if position + 1 < len(starts) else len(names)
        block = names[start:end]
        wrong = next((name for name in _WRONG if name in block), None)
        if "algbw" not in block or "busbw" not in block or wrong is None:
            raise InputError(f"line {number}: nccl-tests columns {' '.join(names)!r} are not understood")
        in_place = position > 0 or (len(starts) == 1 and "out-of-place" not in places)
        groups.append(
            _Group(
                time=start,
                algbw=start + block.index("algbw"),
                busbw=start + block.index("busbw"),
                wrong=start + block.index(wrong),
                counts_wrong=wrong == "#wrong",
                in_place=in_place,
            )
        )
    num_columns = len(names) - (1 if names[-1] == "timestamp" else 0)
    return _Layout(names.index("size"), num_columns, tuple(groups), _prefix_pattern(prefix_text))


def _prefix_pattern(text: str) -> re.Pattern[str]:
    """What the launcher puts ahead, with any number in place of each number: `[1,0]<stdout>:` becomes `[1,7]...`."""
    parts = re.split(r"\d+", text.rstrip())
    return re.compile(r"\s*" + r"\d+".join(re.escape(part) for part in parts))


def _read_row(reading: _Reading, layout: _Layout, number: int, line: str) -> None:
    match = layout.prefix.match(line)
    cells = line[match.end() if match else 0 :].split()
    if not cells or not cells[layout.size].isdigit() or "NCCL" in cells or reading.average is not None:
        return
    if len(cells) < layout.num_columns:
        if len(cells) > 1 and cells[1].isdigit():
            reading.failure = reading.failure or f"line {number}: the row is cut short, so the table is incomplete"
        return
    for group in layout.groups:
        row = _row(layout, group, cells)
        if row is None:
            reading.failure = reading.failure or f"line {number}: {line.strip()!r} holds no numbers"
            return
        if row.num_wrong is None:
            reading.notes.append("not verified: the checks of nccl-tests were off")
        reading.rows.append(row)


def _row(layout: _Layout, group: _Group, cells: list[str]) -> AllReduceRow | None:
    time_us, algbw, busbw = (_number(cells[position]) for position in (group.time, group.algbw, group.busbw))
    if time_us is None or algbw is None or busbw is None:
        return None
    wrong = _number(cells[group.wrong])
    num_wrong = None if wrong is None else int(wrong) if group.counts_wrong else int(wrong > _MAX_WRONG_ERROR)
    return AllReduceRow(
        size_bytes=int(cells[layout.size]),
        in_place=group.in_place,
        time_us=time_us,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=busbw,
        num_wrong=num_wrong,
    )


def _ran_apart(reading: _Reading, num_ranks: int | None) -> str | None:
    if reading.num_headers > 1:
        return (
            f"{reading.num_headers} tables instead of one: the processes ran apart, each on its own; "
            f"start them with the mpirun of the MPI that nccl-tests was built with (MPI=1)"
        )
    found = len(reading.hosts)
    if num_ranks is not None and found and found != num_ranks:
        return f"a table of {found} ranks, expected {num_ranks}"
    return None


def _incomplete(reading: _Reading) -> str | None:
    if reading.average is None:
        return f"incomplete: {len(reading.rows)} values and no average line, expected `# Avg bus bandwidth`"
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"the last says {lines[-1][:200]!r}" if lines else "it is empty"
