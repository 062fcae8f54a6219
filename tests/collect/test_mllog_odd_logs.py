"""Each oddity of tests/data/logs: what is taken all the same, and the note that says so."""

from __future__ import annotations

import io

import pytest

from mlbench.analyse.score import Target, time_to_train_s, why_not_converged
from mlbench.analyse.throughput import throughput
from mlbench.check.targets import target_of
from mlbench.collect.mllog import fold, read_log
from mlbench.collect.mllog_scan import MAX_RECORD_BYTES, scan
from mlbench.collect.runlog import RunLog
from mlbench.errors import InputError
from tests.support.odd_logs import FOLDER, ODD_LOGS, clean, joined
from tests.support.run_logs import record


def read(name: str) -> RunLog:
    return read_log(FOLDER / f"{name}.txt")


def verdict(log: RunLog) -> str | None:
    return why_not_converged(log, target_of(log.benchmark, None, log.quality_target))


@pytest.mark.parametrize("name", sorted(ODD_LOGS))
def test_odd_log_file_is_what_its_maker_makes(name: str) -> None:
    assert (FOLDER / f"{name}.txt").read_bytes() == ODD_LOGS[name](), "run python -m tests.support.odd_logs"


def test_odd_logs_folder_holds_nothing_else() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(ODD_LOGS)


# name -> (records, torn, {line: beginning of the note}); all these give the same ten-minute converged run
HARMLESS: dict[str, tuple[int, int, dict[int | None, str]]] = {
    "crlf": (33, 0, {}),
    "mark_in_the_middle": (33, 0, {}),
    "two_on_a_line": (33, 0, {22: "two records on one line"}),
    "text_after_a_record": (33, 0, {23: "other text follows a record"}),
    "torn_record": (32, 1, {11: "torn record: "}),
    "torn_by_another_record": (33, 1, {30: "torn record of eval_start"}),
    "mark_lost": (32, 1, {8: "torn record of seed"}),
    "repeated_by_ranks": (40, 0, {15: "time_ms goes backwards"}),
    "out_of_order": (33, 0, {9: "time_ms goes backwards (2 times, first here)"}),
    "decimal_times": (33, 0, {}),
    "times_as_text": (33, 0, {}),
    "layout_of_v0_6": (33, 0, {}),
    "launcher_prefixes": (33, 0, {}),
    "no_event_type": (33, 0, {1: "submission_benchmark has no event_type (33 times"}),
    "no_metadata": (33, 0, {22: "train_samples has no metadata"}),
    "no_time": (33, 0, {22: "train_samples has no usable time_ms"}),
    "bytes_not_utf8": (33, 0, {2: "bytes that are not UTF-8"}),
    "nul_bytes": (33, 0, {}),
    "accuracy_exactly_one": (33, 0, {}),
    "nested_too_deep": (33, 1, {33: "torn record"}),
    "number_without_end": (32, 1, {9: "torn record of global_batch_size"}),
    "seed_missing": (32, 0, {}),
    "cache_clear_null": (33, 0, {6: "cache_clear is None, not true or false"}),
    "cache_not_cleared": (33, 0, {}),
    "control_characters": (33, 0, {}),
    "run_stop_twice": (34, 0, {34: "run_stop is logged again with another time; the latest is used"}),
    "run_start_twice": (34, 0, {22: "run_start is logged again with another time; the earliest is used"}),
}


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_odd_log_gives_the_run_of_the_clean_one(name: str) -> None:
    num_records, num_torn, notes = HARMLESS[name]
    log = read(name)
    assert verdict(log) is None
    assert time_to_train_s(log) == 600.0
    assert (log.num_records, log.num_torn) == (num_records, num_torn)
    for line, text in notes.items():
        assert any(note.line == line and note.text.startswith(text) for note in log.notes)
    if not notes:
        assert log.notes == []


# name -> (time to train, beginning of the reason why it did not converge)
LOST: dict[str, tuple[float | None, str]] = {
    "torn_run_stop_beside_a_whole_one": (None, "the log cannot be trusted: torn record of run_stop"),
    "cut_short": (None, "no usable run_stop: torn record of run_stop"),
    "no_time_of_run_stop": (None, "no usable run_stop: run_stop without a usable time_ms (line 33)"),
    "time_infinite": (None, "no usable run_stop: run_stop without a usable time_ms (line 33)"),
    "member_twice": (None, "no usable run_stop: torn record of run_stop"),
    "accuracy_nan": (600.0, "no eval_accuracy"),
    "accuracy_above_one": (600.0, "no eval_accuracy from 0 to 1"),
    "run_stop_with_two_statuses": (600.0, "run_stop status 'aborted', expected 'success'"),
    "run_stop_too_early": (None, "the log cannot be trusted: a record ahead of run_stop is more than a second later"),
    "run_start_too_late": (None, "the log cannot be trusted: a record of the run is more than a second earlier"),
    "run_stop_without_status": (600.0, "run_stop status None, expected 'success'"),
    "run_stop_missing": (None, "no run_stop"),
    "run_start_missing": (None, "no run_start"),
    "target_of_its_own": (600.0, "best eval_accuracy 0.7602 of 0.77"),
    "no_records": (None, "no run_start"),
    "nothing": (None, "no run_start"),
}


@pytest.mark.parametrize("name", sorted(LOST))
def test_odd_log_is_a_lost_run_with_a_reason(name: str) -> None:
    time_s, reason = LOST[name]
    log = read(name)
    assert time_to_train_s(log) == time_s
    assert (verdict(log) or "converged").startswith(reason)


def test_every_odd_log_has_its_expectation() -> None:
    assert set(HARMLESS) | set(LOST) | set(BLOCKS) == set(ODD_LOGS)


# name -> (method, samples per second): two blocks of two epochs, 280 s each, evaluation 20 s in it where it is timed
BLOCKS = {
    "blocks_before_eval": ("blocks before eval", 1_281_167 * 4 / 560.0),
    "blocks_with_timed_eval": ("blocks less eval", 1_281_167 * 4 / 520.0),
    "blocks_without_count": ("none", None),
}


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_log_with_blocks_only_gives_throughput_where_it_can_be_told(name: str) -> None:
    log = read(name)
    method, rate = BLOCKS[name]
    rates = throughput(log)
    assert rates.method.value == method
    assert rates.samples_per_s == (None if rate is None else pytest.approx(rate))
    assert rates.samples_per_s_first_epoch is None
    assert verdict(log) is None
    assert time_to_train_s(log) == 600.0


def test_facts_of_a_clean_log_are_all_taken(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "result_7.txt"
    path.write_bytes(joined(clean()))
    log = read_log(path)
    assert (log.file, log.benchmark, log.org, log.division) == ("result_7.txt", "resnet", "LabX", "closed")
    assert (log.submission_status, log.platform, log.cache_clear) == ("onprem", "1xDSS8440", True)
    assert log.seeds == [11]
    assert (log.global_batch_size, log.train_samples, log.eval_samples) == (3264, 1_281_167, 50_000)
    assert [span.num for span in log.epochs] == [1, 2, 3]
    assert [(item.epoch_num, item.accuracy) for item in log.evaluations] == [(3, 0.7602)]
    assert len(log.evals) == 1
    assert log.hyperparameters["opt_name"] == "lars"
    assert log.hyperparameters["lars_opt_base_learning_rate"] == 10.5
    assert log.notes == []
    assert log.sha256 is not None


def test_cache_not_cleared_is_told_and_null_is_not_false() -> None:
    assert read("cache_not_cleared").cache_clear is False
    assert read("cache_clear_null").cache_clear is None


def test_control_characters_and_surrogates_are_storable() -> None:
    org = read("control_characters").org
    assert org is not None
    org.encode()  # a lone surrogate would raise
    assert "\0" not in org


def test_line_numbers_are_those_of_the_file_when_text_is_ahead() -> None:
    import io

    lines = ["ordinary text"] * 100 + clean()
    lines[100 + 21] = lines[100 + 21].replace(', "metadata"', ', "meta', 1)
    log = fold(scan(io.BytesIO(joined(lines))), "result_0.txt")
    assert [note.line for note in log.notes if "torn" in note.text] == [122]  # cases.md, D2 (b)


def test_record_longer_than_the_limit_is_torn_and_the_rest_is_read() -> None:
    import io

    lines = clean()
    bomb = ':::MLLOG {"key": "seed", "value": "' + "x" * (3 * MAX_RECORD_BYTES) + '"}'
    log = fold(scan(io.BytesIO(joined([*lines[:10], bomb, *lines[10:]]))), "result_0.txt")
    assert log.num_torn == 1
    assert time_to_train_s(log) == 600.0
    assert [note.line for note in log.notes] == [11]


@pytest.mark.parametrize("size", [1, 2, 7, 100, 4_096])
def test_reading_in_small_pieces_gives_the_same_log(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from mlbench.collect import mllog_scan

    for name, maker in ODD_LOGS.items():
        text = maker()
        whole = fold(scan(io.BytesIO(text)), name)
        monkeypatch.setattr(mllog_scan, "CHUNK_BYTES", size if len(text) < 20_000 else 4_096)
        assert fold(scan(io.BytesIO(text)), name) == whole, name
        monkeypatch.undo()


def test_missing_file_is_an_input_error_that_names_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=r"no_such\.txt: cannot be read"):
        read_log(tmp_path / "no_such.txt")


def test_notes_are_bounded() -> None:
    import io

    torn = [':::MLLOG {"key": "seed"'] * 5_000
    log = fold(scan(io.BytesIO(joined(torn))), "result_0.txt")
    assert log.num_torn == 5_000
    assert len(log.notes) <= 202
    assert "more notes are left out" in log.notes[-1].text


def test_minigo_run_stop_dated_back_is_not_a_contradiction() -> None:
    import io

    text = ODD_LOGS["run_stop_too_early"]().replace(b'"resnet"', b'"minigo"')
    log = fold(scan(io.BytesIO(text)), "result_0.txt")
    # evaluation beside training: seen in every published minigo log of round v2.1
    assert why_not_converged(log, Target(0.5)) is None
    assert time_to_train_s(log) == 540.0


def test_input_pipeline_is_read_with_its_reason_and_is_no_hyperparameter() -> None:
    lines = [record("input_pipeline", "simplejpeg", 1.0, reason="native: not built")] * 2
    log = fold(scan(io.BytesIO("".join(f"{line}\n" for line in lines).encode())), "log")
    assert (log.input_pipeline, log.input_pipeline_reason) == ("simplejpeg", "native: not built")
    assert "input_pipeline" not in log.hyperparameters

    log = fold(scan(io.BytesIO(f"{record('input_pipeline', 7, 1.0, reason=7)}\n".encode())), "log")
    assert (log.input_pipeline, log.input_pipeline_reason) == (None, None)
    assert "input_pipeline is 7, not a text" in [note.text for note in log.notes]
