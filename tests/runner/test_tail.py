"""Following a log that is being written: torn lines wait, nothing is read twice."""

from __future__ import annotations

import json
from pathlib import Path

from mlbench.runner.tail import LogTail, last_lines


def line(key: str, value: object = None, time_ms: int = 0, **metadata: object) -> str:
    record = {"namespace": "", "time_ms": time_ms, "event_type": "x", "key": key, "value": value, "metadata": metadata}
    return ":::MLLOG " + json.dumps(record) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_tail_missing_file_has_no_news(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "result.txt")
    assert tail.poll() is False
    assert tail.progress.num_records == 0


def test_tail_torn_last_line_is_taken_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    tail = LogTail(path)
    whole = line("eval_accuracy", 0.5, epoch_num=1)
    append(path, line("run_start") + whole[:40])
    assert tail.poll() is True
    assert tail.progress.accuracy is None
    append(path, whole[40:])
    assert tail.poll() is True
    assert tail.progress.accuracy == 0.5
    assert tail.progress.num_records == 2
    assert tail.poll() is False


def test_tail_rate_is_samples_of_ended_epochs_over_the_time_in_them(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    append(path, line("run_start", time_ms=1_000) + line("train_samples", 640))
    append(path, line("epoch_start", time_ms=5_000, epoch_num=1) + line("epoch_stop", time_ms=15_000, epoch_num=1))
    tail = LogTail(path)
    tail.poll()
    assert tail.progress.samples_per_s == 64.0  # 640 samples in 10 s; the 4 s before are a warm-up
    assert tail.progress.epoch == 1
    append(path, line("eval_start", time_ms=15_000) + line("eval_stop", time_ms=35_000))
    append(path, line("epoch_start", time_ms=35_000, epoch_num=2) + line("epoch_stop", time_ms=41_000, epoch_num=2))
    tail.poll()
    assert tail.progress.samples_per_s == 80.0  # 1,280 samples in 16 s


def test_tail_text_that_is_no_record_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    append(path, 'warning: slow disk\n:::MLLOG {broken\n:::MLLOG [1]\n:::MLLOG {"key": 3}\n\n')
    append(path, "[17:00:01] src/x.cc:1: glued " + line("run_stop", status="success"))
    tail = LogTail(path)
    tail.poll()
    assert tail.progress.num_records == 1
    assert tail.progress.run_stopped


def test_tail_last_record_has_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    append(path, ':::MLLOG {"key": "seed", "value": "\x1b[31m"}\n'.replace("\x1b", "\\u001b") + "\n")
    append(path, ':::MLLOG {"key": "seed",\t"value": 1}\n')
    tail = LogTail(path)
    tail.poll()
    assert tail.progress.last_record is not None
    assert tail.progress.last_record.isprintable()


def test_tail_large_growth_is_read_over_several_polls(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    num = 20_000
    append(path, "".join(line("tracked_stats", number) for number in range(num)))
    tail = LogTail(path)
    polls = 0
    while tail.poll():
        polls += 1
    assert tail.progress.num_records == num
    assert polls > 1


def test_last_lines_gives_the_end_escaped(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_text("".join(f"line {number}\n" for number in range(50)) + "\x1b[2Jgone\n")
    found = last_lines(path, 3)
    assert found == ["line 48", "line 49", "\\x1b[2Jgone"]


def test_last_lines_of_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "nothing.log") == []
