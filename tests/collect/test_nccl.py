"""The table of nccl-tests in all its layouts (cases.md D9, P30, P32). The texts are our own, in the tool's form."""

from __future__ import annotations

import pytest

from mlbench.collect.allreduce import AllReduceRow, AllReduceTable, average_busbw_gb_per_s, peak_row
from mlbench.collect.nccl import parse_nccl_tests
from mlbench.errors import InputError

DEVICES = "\n".join(
    f"#  Rank {rank:2d} Group  0 Pid {4100 + rank:6d} on dl-worker-01 device {rank:2d} [0000:0{rank}:00] NVIDIA A100"
    for rank in range(8)
)
MODERN = f"""# nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22807
# nThread 1 nGpus 8 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
{DEVICES}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    112.5   74.57  130.49      0    110.9   75.64  132.37      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 131.43
#
"""
OLD = f"""# nThread 1 nGpus 8 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
{DEVICES.replace(" Group  0", "")}
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152   float     sum    112.5   74.57  130.49  0e+00    110.9   75.64  132.37  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 131.43
#
"""


def _with_prefix(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def _noisy() -> str:
    lines = _with_prefix(MODERN, "[1,0]<stdout>:").splitlines()
    row = next(number for number, line in enumerate(lines) if "8388608       2097152" in line)
    lines[row:row] = [
        "[1,3]<stdout>:dl-worker-01:4103:4150 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/IPC",
        "[1,0]<stdout>:dl-worker-01:4100:4147 [0] NCCL WARN NET/IB : Got completion with error 12",
    ]
    return "\n".join(lines)


PER_ITERATION = (
    MODERN.replace(
        "#wrong     time   algbw   busbw #wrong",
        "#wrong  i_min  i_max     time   algbw   busbw #wrong  i_min  i_max timestamp",
    )
    .replace("130.49      0", "130.49      0  110.0  118.0")
    .replace("132.37      0", "132.37      0  109.0  112.0 2026-01-02 03:04:05")
)
EXPECTED = (
    AllReduceRow(
        size_bytes=8388608, in_place=False, time_us=112.5, algbw_gb_per_s=74.57, busbw_gb_per_s=130.49, num_wrong=0
    ),
    AllReduceRow(
        size_bytes=8388608, in_place=True, time_us=110.9, algbw_gb_per_s=75.64, busbw_gb_per_s=132.37, num_wrong=0
    ),
)


@pytest.mark.parametrize(
    "text",
    [
        MODERN,
        _noisy(),
        OLD,
        PER_ITERATION,
        MODERN.replace("\n", "\r\n"),
        _with_prefix(MODERN, " 0: "),
        _with_prefix(MODERN, "Mon Jan  5 10:11:12 2026[1,0]<stdout>:"),
    ],
    ids=["modern", "prefix-and-nccl-lines", "old", "per-iteration-and-time", "crlf", "srun-label", "time-and-prefix"],
)
def test_table_in_any_layout_gives_the_same_rows(text: str) -> None:
    table = parse_nccl_tests(text, num_ranks=8)
    assert table.failure is None
    assert table.rows == EXPECTED
    assert table.average_busbw_gb_per_s == pytest.approx(131.43)
    assert (table.num_ranks, table.hosts) == (8, ("dl-worker-01",))


def test_wrong_values_fail_the_table() -> None:
    table = parse_nccl_tests(MODERN.replace("130.49      0", "130.49      3"), num_ranks=8)
    assert table.failure == "3 wrong values at 8388608 B, expected 0"


def test_out_of_bounds_line_fails_the_table() -> None:
    table = parse_nccl_tests(MODERN.replace("values : 0 OK", "values : 2 FAILED"), num_ranks=8)
    assert table.failure is not None
    assert "2 values out of bounds" in table.failure


def test_checks_off_keeps_the_values_and_says_not_verified() -> None:
    text = MODERN.replace("130.49      0", "130.49    N/A").replace("132.37      0", "132.37    N/A")
    table = parse_nccl_tests(text, num_ranks=8)
    assert table.failure is None
    assert [row.num_wrong for row in table.rows] == [None, None]
    assert table.notes == ("not verified: the checks of nccl-tests were off",)


def test_text_cut_before_the_average_is_incomplete() -> None:
    table = parse_nccl_tests(MODERN[: MODERN.index("# Out of bounds")], num_ranks=8)
    assert table.failure == "incomplete: 2 values and no average line, expected `# Avg bus bandwidth`"


def test_row_cut_short_is_incomplete() -> None:
    table = parse_nccl_tests(MODERN[: MODERN.index("    110.9")], num_ranks=8)
    assert table.failure is not None
    assert "cut short" in table.failure


def test_processes_that_ran_apart_are_refused() -> None:
    alone = MODERN.replace(DEVICES, DEVICES.splitlines()[0]).replace("130.49", "0.00").replace("132.37", "0.00")
    text = _with_prefix(alone, "[1,0]<stdout>:") + _with_prefix(alone, "[1,1]<stdout>:")
    table = parse_nccl_tests(text, num_ranks=2)
    assert table.failure is not None
    assert table.failure.startswith("2 tables instead of one: the processes ran apart")


def test_table_of_another_number_of_ranks_is_refused() -> None:
    assert parse_nccl_tests(MODERN, num_ranks=16).failure == "a table of 8 ranks, expected 16"


def test_zero_time_is_not_a_measurement() -> None:
    table = parse_nccl_tests(MODERN.replace("    112.5", "     0.00"), num_ranks=8)
    assert table.failure is not None
    assert "zero is not a measurement" in table.failure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("bash: all_reduce_perf: command not found\n", "command not found"),
        (MODERN.replace("busbw #wrong     time", "busbw #odd     time"), "are not understood"),
    ],
)
def test_unknown_text_is_an_error_and_not_zeros(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_nccl_tests(text, num_ranks=8)


def test_peak_at_large_sizes_stands_beside_the_average() -> None:
    # cases.md P32: sizes 8 B to 8 GB; the average says little of what large sizes reach.
    sizes = [(8, 0.0), (8192, 0.4), (8589934592, 95.1)]
    rows = tuple(
        AllReduceRow(size_bytes=s, in_place=False, time_us=1.0, algbw_gb_per_s=b, busbw_gb_per_s=b, num_wrong=0)
        for s, b in sizes
    )
    table = AllReduceTable(backend="nccl_tests", transport="NCCL", num_ranks=8, hosts=("a",), rows=rows)
    assert table.peak is not None
    assert (table.peak.size_bytes, table.peak.busbw_gb_per_s) == (8589934592, 95.1)
    assert table.average_busbw_gb_per_s == pytest.approx(31.8333, abs=1e-3)


def sized(size_bytes: int, busbw_gb_per_s: float) -> AllReduceRow:
    return AllReduceRow(
        size_bytes=size_bytes,
        in_place=True,
        time_us=1.0,
        algbw_gb_per_s=busbw_gb_per_s,
        busbw_gb_per_s=busbw_gb_per_s,
        num_wrong=0,
    )


def test_peak_is_the_best_of_large_sizes_however_fast_a_small_one_is() -> None:
    rows = [sized(1024, 900.0), sized(1 << 20, 20.0), sized(1 << 21, 30.0), sized(1 << 22, 25.0)]
    assert peak_row(rows) == rows[2]


def test_peak_without_large_sizes_is_the_largest_and_of_no_rows_none() -> None:
    rows = [sized(2048, 1.0), sized(1024, 9.0)]
    assert peak_row(rows) == rows[0]
    assert peak_row([]) is None
    assert average_busbw_gb_per_s(rows) == 5.0
    assert average_busbw_gb_per_s([]) is None
