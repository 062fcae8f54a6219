"""Small logs, one oddity each. `python -m tests.support.odd_logs`, in the project's folder, writes tests/data/logs.

They are made by `run_logs.run_lines` (three epochs, ten minutes) and broken here; nothing is taken from published logs.
A test keeps the files and this text in step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.support.run_logs import record, run_lines

FOLDER = Path(__file__).resolve().parents[1] / "data" / "logs"
BEGIN_MS = 1_700_000_030_001
END_MS = BEGIN_MS + 600_000


def clean() -> list[str]:
    return run_lines(minutes=10.0, epochs=3)


def joined(lines: list[str], end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


def line_of(lines: list[str], key: str) -> int:
    """Index of the first record of a key."""
    return next(number for number, line in enumerate(lines) if f'"key": "{key}"' in line)


def changed(key: str, old: str, new: str) -> bytes:
    lines = clean()
    number = line_of(lines, key)
    assert old in lines[number], (key, old)
    lines[number] = lines[number].replace(old, new)
    return joined(lines)


def without(key: str) -> list[str]:
    return [line for line in clean() if f'"key": "{key}"' not in line]


def crlf() -> bytes:
    return joined(clean(), "\r\n")


def mark_in_the_middle() -> bytes:
    lines = clean()
    number = line_of(lines, "init_start")
    lines[number] = "[17:40:01] src/kvstore/kvstore.cc: using kvstore device" + lines[number]
    return joined(lines)


def two_on_a_line() -> bytes:
    lines = clean()
    number = line_of(lines, "train_samples")
    return joined([*lines[:number], lines[number] + lines[number + 1], *lines[number + 2 :]])


def text_after_a_record() -> bytes:
    lines = clean()
    number = line_of(lines, "eval_samples")
    lines[number] += "[17:40:01] rank 3: ready"
    return joined(lines)


def torn_record() -> bytes:
    lines = clean()
    number = line_of(lines, "opt_name")
    lines[number] = lines[number][:70]
    return joined(lines)


def torn_by_another_record() -> bytes:
    lines = clean()
    number = line_of(lines, "eval_start")
    lines[number] = lines[number][:50] + lines[number]
    return joined(lines)


def torn_run_stop_beside_a_whole_one() -> bytes:
    lines = clean()
    return joined([*lines, lines[-1][:120]])


def mark_lost() -> bytes:
    lines = clean()
    number = line_of(lines, "seed")
    lines[number] = lines[number].removeprefix(":::MLL")
    return joined(lines)


def cut_short() -> bytes:
    text = joined(clean())
    return text[: len(text) - 100]


def repeated_by_ranks() -> bytes:
    lines = clean()
    number = line_of(lines, "init_start")
    repeats = [lines[number].replace("1700000000010", str(1_700_000_000_010 + rank)) for rank in range(1, 8)]
    return joined([*lines[: number + 1], *repeats, *lines[number + 1 :]])


def out_of_order() -> bytes:
    lines = clean()
    number = line_of(lines, "seed")
    lines[number], lines[number + 3] = lines[number + 3], lines[number]
    return joined(lines)


def decimal_times() -> bytes:
    return re.sub(rb'"time_ms": (\d+)', rb'"time_ms": \1.125', joined(clean()))


def times_as_text() -> bytes:
    return re.sub(rb'"time_ms": (\d+)', rb'"time_ms": "\1"', joined(clean()))


def layout_of_v0_6() -> bytes:
    lines = []
    for line in clean():
        body = json.loads(line.removeprefix(":::MLLOG "))
        tail = json.dumps({"value": body["value"], "metadata": body["metadata"]})
        lines.append(f":::MLL {body['time_ms'] / 1000:.3f} {body['key']}: {tail}")
    return joined(lines)


def launcher_prefixes() -> bytes:
    return joined([f"[1,{number % 2}]<stdout>: {line}" for number, line in enumerate(clean())])


def _as_blocks(*, timed_eval: bool, counted: bool = True) -> bytes:
    keys = ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy", "run_stop")
    lines = [line for line in clean() if not any(f'"key": "{key}"' in line for key in keys)]
    now = BEGIN_MS
    count = {"epoch_count": 2} if counted else {}
    for block in range(2):
        first = 1 + 2 * block
        lines.append(record("block_start", None, now, "INTERVAL_START", first_epoch_num=first, **count))
        now += 280_000
        if timed_eval:
            lines.append(record("eval_start", None, now - 20_000, "INTERVAL_START", epoch_num=first + 1))
            lines.append(record("eval_stop", None, now, "INTERVAL_END", epoch_num=first + 1))
        lines.append(record("block_stop", None, now, "INTERVAL_END", first_epoch_num=first))
        lines.append(record("eval_accuracy", 0.5 if block == 0 else 0.7602, now + 5_000, epoch_num=first + 1))
        now += 10_000
    lines.append(record("run_stop", None, END_MS, "INTERVAL_END", status="success"))
    return joined(lines)


def blocks_before_eval() -> bytes:
    return _as_blocks(timed_eval=False)


def blocks_with_timed_eval() -> bytes:
    return _as_blocks(timed_eval=True)


def blocks_without_count() -> bytes:
    return _as_blocks(timed_eval=False, counted=False)


def no_event_type() -> bytes:
    return re.sub(rb'"event_type": "[A-Z_]+", ', b"", joined(clean()))


def no_metadata() -> bytes:
    lines = clean()
    number = line_of(lines, "train_samples")
    lines[number] = re.sub(r', "metadata": .*', "}", lines[number])
    return joined(lines)


def no_time() -> bytes:
    lines = clean()
    number = line_of(lines, "train_samples")
    lines[number] = re.sub(r'"time_ms": \d+, ', "", lines[number])
    return joined(lines)


def no_time_of_run_stop() -> bytes:
    lines = clean()
    lines[-1] = re.sub(r'"time_ms": \d+, ', "", lines[-1])
    return joined(lines)


def bytes_not_utf8() -> bytes:
    return joined(clean()).replace(b"LabX", b"Lab\xfcX")


def nul_bytes() -> bytes:
    lines = clean()
    number = line_of(lines, "seed")
    return joined([*lines[:number], "\0" * 300 + lines[number], *lines[number + 1 :]])


def accuracy_nan() -> bytes:
    return changed("eval_accuracy", '"value": 0.7602', '"value": NaN')


def accuracy_above_one() -> bytes:
    return changed("eval_accuracy", '"value": 0.7602', '"value": 7.602')


def accuracy_exactly_one() -> bytes:
    return changed("eval_accuracy", '"value": 0.7602', '"value": 1.0')


def time_infinite() -> bytes:
    return changed("run_stop", f'"time_ms": {END_MS}', '"time_ms": 1e400')


def member_twice() -> bytes:
    return changed("run_stop", '"time_ms"', '"time_ms": 1700000100000, "time_ms"')


def nested_too_deep() -> bytes:
    lines = clean()
    return joined([*lines[:-1], ":::MLLOG " + "[" * 20_000, lines[-1]])


def number_without_end() -> bytes:
    return changed("global_batch_size", '"value": 3264', '"value": ' + "9" * 6_000)


def run_start_twice() -> bytes:
    lines = clean()
    number = line_of(lines, "run_start")
    later = lines[number].replace(str(BEGIN_MS), str(BEGIN_MS + 60_000))
    return joined([*lines[: number + 1], later, *lines[number + 1 :]])


def run_stop_twice() -> bytes:
    lines = clean()
    return joined([*lines, lines[-1].replace(str(END_MS), str(END_MS - 60_000))])


def run_stop_with_two_statuses() -> bytes:
    lines = clean()
    return joined([*lines, lines[-1].replace("success", "aborted")])


def run_stop_too_early() -> bytes:
    return changed("run_stop", str(END_MS), str(END_MS - 60_000))


def run_start_too_late() -> bytes:
    return changed("run_start", str(BEGIN_MS), str(BEGIN_MS + 60_000))


def run_stop_without_status() -> bytes:
    return changed("run_stop", '"status": "success", ', "")


def run_stop_missing() -> bytes:
    return joined(without("run_stop"))


def run_start_missing() -> bytes:
    return joined(without("run_start"))


def seed_missing() -> bytes:
    return joined(without("seed"))


def cache_clear_null() -> bytes:
    return changed("cache_clear", '"value": true', '"value": null')


def cache_not_cleared() -> bytes:
    return changed("cache_clear", '"value": true', '"value": false')


def target_of_its_own() -> bytes:
    return joined(run_lines(minutes=10.0, epochs=3, target=0.77))


def control_characters() -> bytes:
    return changed("submission_org", "LabX", "Lab\\u001b[31mX\\u0000\\ud800")


def no_records() -> bytes:
    return b"Traceback (most recent call last):\n  File train.py, line 10\nMemoryError\n"


def nothing() -> bytes:
    return b""


MAKERS: tuple[Callable[[], bytes], ...] = (
    crlf, mark_in_the_middle, two_on_a_line, text_after_a_record, torn_record, torn_by_another_record,
    torn_run_stop_beside_a_whole_one, mark_lost, cut_short, repeated_by_ranks, out_of_order, decimal_times,
    times_as_text, layout_of_v0_6, launcher_prefixes, blocks_before_eval, blocks_with_timed_eval,
    blocks_without_count, no_event_type, no_metadata, no_time, no_time_of_run_stop, bytes_not_utf8, nul_bytes,
    accuracy_nan, accuracy_above_one, accuracy_exactly_one, time_infinite, member_twice, nested_too_deep,
    number_without_end, run_start_twice, run_stop_twice, run_stop_with_two_statuses, run_stop_too_early,
    run_start_too_late, run_stop_without_status, run_stop_missing, run_start_missing, seed_missing,
    cache_clear_null, cache_not_cleared, target_of_its_own, control_characters, no_records, nothing,
)  # fmt: skip
ODD_LOGS = {maker.__name__: maker for maker in MAKERS}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / ".gitattributes").write_text("*.txt -text\n", encoding="utf-8")
    for name, maker in ODD_LOGS.items():
        (FOLDER / f"{name}.txt").write_bytes(maker())


if __name__ == "__main__":
    main()
