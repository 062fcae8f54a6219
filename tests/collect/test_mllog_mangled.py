"""Good logs, mangled at random: never a traceback, never a better result than the clean log, torn is called torn.

What no reader can see is left out of the mangling: one digit exchanged for another makes another log that is as good
as the first. `test_digit_...` below says which of those are seen all the same.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbench.analyse.score import Target, time_to_train_s, why_not_converged
from mlbench.analyse.throughput import throughput
from mlbench.collect.mllog import fold
from mlbench.collect.mllog_scan import scan
from mlbench.collect.runlog import RunLog
from tests.support.run_logs import record, run_lines

TARGET = Target(0.759)
NUM_MANGLED = 2_500


@dataclass(frozen=True)
class Clean:
    name: str
    text: bytes

    @property
    def log(self) -> RunLog:
        return read(self.text)


def read(text: bytes) -> RunLog:
    return fold(scan(io.BytesIO(text)), "result_0.txt")


def result_s(log: RunLog) -> float:
    """Seconds of a converged run; infinity for a lost one."""
    time_s = time_to_train_s(log)
    return time_s if time_s is not None and why_not_converged(log, TARGET) is None else float("inf")


def text_of(lines: list[str], end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


def with_ranks(lines: list[str], ranks: int) -> list[str]:
    """Every init_start once per rank, launcher prefixes, and ordinary text in between."""
    out = ["+ ./run_and_time.sh", "STARTING TIMING RUN"]
    for number, line in enumerate(lines):
        copies = ranks if "init_start" in line else 1
        out += [f"[1,{rank}]<stdout>:{line}" for rank in range(copies)]
        if number % 7 == 0:
            out.append(f"[17:40:{number:02d}] src/operator/nn/cudnn: Running performance tests")
    return out


CLEAN = [
    Clean("plain", text_of(run_lines())),
    Clean("crlf", text_of(run_lines(epochs=5), end="\r\n")),
    Clean("ranks", text_of(with_ranks(run_lines(epochs=5), 4))),
    Clean("aborted", text_of(run_lines(epochs=5, status="aborted"))),
    Clean("below the target", text_of(run_lines(epochs=5, accuracy=0.7589))),
    Clean("no run_stop", text_of(run_lines(epochs=5)[:-1])),
    Clean("own target", text_of(run_lines(epochs=5, target=0.759))),
]
CLEAN_RESULT_S = {clean.name: result_s(clean.log) for clean in CLEAN}


def test_clean_logs_give_what_they_should() -> None:
    assert CLEAN_RESULT_S["plain"] == CLEAN_RESULT_S["ranks"] == 36.5 * 60
    assert CLEAN_RESULT_S["aborted"] == CLEAN_RESULT_S["no run_stop"] == float("inf")
    assert all(clean.log.num_torn == 0 for clean in CLEAN)


NOT_DIGITS = [bytes([value]) for value in range(256) if not 0x30 <= value <= 0x39]


@st.composite
def mangled(draw: st.DrawFn) -> tuple[Clean, bytes]:
    clean = draw(st.sampled_from(CLEAN))
    text = clean.text
    for _ in range(draw(st.integers(1, 4))):
        text = draw(st.sampled_from([cut, truncate, glue, repeat_bytes, repeat_lines, reorder, corrupt, insert]))(
            draw, text
        )
    return clean, text


def position(draw: st.DrawFn, text: bytes) -> int:
    return draw(st.integers(0, len(text)))


def cut(draw: st.DrawFn, text: bytes) -> bytes:
    start = position(draw, text)
    return text[:start] + text[start + draw(st.integers(1, 2_000)) :]


def truncate(draw: st.DrawFn, text: bytes) -> bytes:
    return text[: position(draw, text)]


def glue(draw: st.DrawFn, text: bytes) -> bytes:
    """Line ends lost: several records on a line."""
    lines = text.split(b"\n")
    start = draw(st.integers(0, max(0, len(lines) - 2)))
    count = draw(st.integers(1, 5))
    return b"\n".join([*lines[:start], b"".join(lines[start : start + count + 1]), *lines[start + count + 1 :]])


def repeat_bytes(draw: st.DrawFn, text: bytes) -> bytes:
    start = position(draw, text)
    piece = text[start : start + draw(st.integers(1, 2_000))]
    at = position(draw, text)
    return text[:at] + piece + text[at:]


def repeat_lines(draw: st.DrawFn, text: bytes) -> bytes:
    lines = text.split(b"\n")
    start = draw(st.integers(0, len(lines)))
    piece = lines[start : start + draw(st.integers(1, 20))]
    at = draw(st.integers(0, len(lines)))
    return b"\n".join([*lines[:at], *piece, *lines[at:]])


def reorder(draw: st.DrawFn, text: bytes) -> bytes:
    lines = text.split(b"\n")
    for _ in range(draw(st.integers(1, 8))):
        a, b = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def corrupt(draw: st.DrawFn, text: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(draw(st.integers(1, 10))):
        if changed:
            at = draw(st.integers(0, len(changed) - 1))
            changed[at : at + 1] = draw(st.sampled_from(NOT_DIGITS))
    return bytes(changed)


def insert(draw: st.DrawFn, text: bytes) -> bytes:
    at = position(draw, text)
    return text[:at] + b"".join(draw(st.lists(st.sampled_from(NOT_DIGITS), min_size=1, max_size=20))) + text[at:]


@pytest.mark.slow
@settings(
    max_examples=NUM_MANGLED,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(mangled())
def test_mangled_log_is_read_and_never_better_than_the_clean_one(case: tuple[Clean, bytes]) -> None:
    clean, text = case
    log = read(text)
    throughput(log)
    assert result_s(log) >= CLEAN_RESULT_S[clean.name], [note.text for note in log.notes]
    assert all(note.text.isprintable() for note in log.notes)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_record_cut_inside_is_called_torn_with_its_line(data: st.DataObject) -> None:
    lines = run_lines(epochs=5)
    number = data.draw(st.integers(0, len(lines) - 1))
    body = lines[number].removeprefix(":::MLLOG ")
    start = data.draw(st.integers(0, len(body) - 1))
    body = body[:start] + body[start + data.draw(st.integers(1, len(body))) :]
    try:
        json.loads(body)
    except ValueError:
        torn = True
    else:
        torn = False
    lines[number] = f":::MLLOG {body}"
    log = read(text_of(lines))
    if torn:
        assert log.num_torn == 1
        assert any(note.line == number + 1 and "torn record" in note.text for note in log.notes)
    assert result_s(log) >= 36.5 * 60


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=4_000))
def test_any_bytes_are_read_without_a_fault(text: bytes) -> None:
    read(text)
    read(b":::MLLOG " + text)
    read(b":::MLL 1571433686.379 run_start: " + text)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_digit_changed_in_a_time_gains_no_more_than_the_gap_to_its_neighbours(data: st.DataObject) -> None:
    lines = run_lines(epochs=5)
    number = data.draw(st.integers(0, len(lines) - 1))
    head, rest = lines[number].split('"time_ms": ', 1)
    at = data.draw(st.integers(0, 12))
    lines[number] = f'{head}"time_ms": {rest[:at]}{data.draw(st.integers(0, 9))}{rest[at + 1 :]}'
    # run_start is as late as the first epoch, run_stop one millisecond after the last evaluation
    assert result_s(read(text_of(lines))) >= 36.5 * 60 - 0.001


def test_two_logs_in_one_file_are_one_long_run_not_a_fast_one() -> None:
    slow = run_lines(minutes=60.0)
    fast = run_lines(minutes=30.0, start_ms=1_700_000_900_000)
    log = read(text_of(slow + fast))
    assert result_s(log) >= 60 * 60
    assert any("run_start is logged again" in note.text for note in log.notes)


def test_two_statuses_are_not_a_success() -> None:
    lines = run_lines()
    for other in (record("run_stop", None, 1_700_000_000_500, "INTERVAL_END", status="aborted"),):
        assert result_s(read(text_of([*lines, other]))) == float("inf")
        assert result_s(read(text_of([other, *lines]))) == float("inf")
