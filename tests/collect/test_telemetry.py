"""Reading telemetry files: torn lines, thinning that keeps the extremes, nothing guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.collect.telemetry import read_telemetry, thin


def _write(folder: Path, lines: list[object], *, end: str = "") -> None:
    text = "".join(json.dumps(line) + "\n" for line in [{"schema_version": 1, "host": "a"}, *lines])
    (folder / "a.jsonl").write_text(text + end)


def test_series_of_a_host_are_ordered_and_torn_last_line_is_no_note(tmp_path: Path) -> None:
    _write(tmp_path, [{"t": 2000, "m": {"x": 3}}, {"t": 1000, "m": {"x": 1, "y": 5}}], end='{"t": 3000, "m": {"x"')
    series, notes = read_telemetry(tmp_path)
    assert notes == []
    assert [(item.host, item.metric, item.times_ms, item.values) for item in series] == [
        ("a", "x", (1000.0, 2000.0), (1.0, 3.0)),
        ("a", "y", (1000.0,), (5.0,)),
    ]


@pytest.mark.parametrize("line", ["nonsense", '{"t": "x", "m": {"a": 1}}', '{"t": 1, "m": [1]}', "[1]", "3"])
def test_line_that_cannot_be_read_is_a_note_and_the_rest_is_read(tmp_path: Path, line: str) -> None:
    _write(tmp_path, [], end=line + "\n" + '{"t": 1, "m": {"x": 2}}\n')
    series, notes = read_telemetry(tmp_path)
    assert [item.values for item in series] == [(2.0,)]
    assert [(note.file, note.line) for note in notes] == [("a.jsonl", 2)]


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1, "m": {"x": NaN, "y": Infinity, "z": 1}}\n')
    assert [item.metric for item in read_telemetry(tmp_path)[0]] == ["z"]


def test_thinning_keeps_the_extremes_of_the_whole_series(tmp_path: Path) -> None:
    values = [0.0] * 999 + [100.0]
    _write(tmp_path, [{"t": n, "m": {"x": value}} for n, value in enumerate(values)])
    (series,) = read_telemetry(tmp_path, max_points=10)[0]
    assert len(series.values) == 10
    assert (series.min, series.max, series.mean) == (0.0, 100.0, 0.1)


def test_thin_takes_means_of_neighbours() -> None:
    assert thin([0, 1, 2, 3, 4], [1, 3, 5, 7, 9], 3) == ((0.5, 2.5, 4.0), (2.0, 6.0, 9.0))


def test_folder_that_is_not_there_has_no_series(tmp_path: Path) -> None:
    assert read_telemetry(tmp_path / "none") == ([], [])


def test_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"t": 1, "m": {"x": 2}}\n')
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "secret")
    series, notes = read_telemetry(tmp_path)
    assert series == []
    assert notes[0].text == "not a plain file, left out"
