"""The faults of cases.md that `mlbench check` must find, from the outside: status, last line, JSON."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.collect.runfiles import write_json
from tests.support.run_logs import START_MS, base_set, run_lines, write_log
from tests.support.submissions import (
    attempt_file,
    description,
    edit,
    edit_record,
    hashes,
    lab,
    own_run_set,
    results,
    run_set_file,
)

pytestmark = pytest.mark.slow
# cases.md section 4: raw olympic mean 36.5; with convergence normalisation 36.66044
BASE_MIN, BASE_NORMALISED_MIN = 36.5, 36.66044


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = run_command(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict]:
    status, out, _ = run(capsys, *arguments, "--json")
    return status, json.loads(out)


def failed(value: dict, rule: str | None = None) -> list[dict]:
    return [
        item
        for item in value["findings"]
        if item["status"] != "pass" and item["severity"] == "error" and rule in (None, item["rule"])
    ]


def last_line(out: str) -> str:
    return out.rstrip("\n").rsplit("\n", 1)[-1]


@pytest.mark.parametrize(
    ("ruleset", "minutes"), [("3.1.0", BASE_NORMALISED_MIN), ("4.0.0", BASE_NORMALISED_MIN), ("1.0.0", BASE_MIN)]
)
def test_check_base_set_is_compliant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ruleset: str, minutes: float
) -> None:
    status, value = run_json(capsys, lab(tmp_path), "--ruleset", ruleset)
    assert failed(value) == []
    assert (status, value["verdict"], value["ruleset"]) == (0, "compliant", ruleset)
    assert value["official_verdict"] == "compliant"
    assert value["score_s"] / 60 == pytest.approx(minutes, abs=1e-5)


def test_check_base_set_text_ends_with_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, lab(tmp_path))
    assert status == 0
    assert last_line(out).startswith("compliant: ")
    assert "(ruleset 4.0.0)" in last_line(out)
    assert "mlperf_logging: compliant; mlbench: compliant" in out


def _drop_a_run(lab: Path) -> None:
    (results(lab) / "result_4.txt").unlink()


def _miss_the_target_twice(lab: Path) -> None:
    for index in (1, 2):
        edit_record(results(lab) / f"result_{index}.txt", "eval_accuracy", "0.7602", "0.7589", -1)


def _repeat_a_seed(lab: Path) -> None:
    edit_record(results(lab) / "result_3.txt", "seed", '"value": 14', '"value": 11')


def _forget_a_field(lab: Path) -> None:
    fields = description()
    del fields["cooling"]
    (lab / "systems" / "sysA.json").write_text(json.dumps(fields), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        pytest.param(_drop_a_run, {"SET-01", "OFF-05"}, id="four runs"),
        pytest.param(_miss_the_target_twice, {"SET-02", "RUN-07", "OFF-05"}, id="two lost"),
        pytest.param(_repeat_a_seed, {"SET-05", "OFF-02"}, id="seed twice"),
        pytest.param(_forget_a_field, {"SYS-02", "OFF-03"}, id="no cooling"),
    ],
)
def test_d1_one_fault_is_status_4_and_the_last_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], rules: set[str]
) -> None:
    submitter = lab(tmp_path)
    spoil(submitter)
    status, out, _ = run(capsys, submitter)
    assert status == 4
    assert last_line(out).startswith("not compliant: ")
    status, value = run_json(capsys, submitter)
    assert (status, value["verdict"], value["score_s"]) == (4, "not_compliant", None)
    assert rules <= {item["rule"] for item in failed(value)}


def test_d1_unreadable_folder_is_status_2_without_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, tmp_path / "nothing" / "here")
    assert (status, out) == (2, "")
    assert "cannot be read" in err
    assert "Traceback" not in err


def test_d1_folder_without_logs_is_nothing_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, tmp_path)
    assert status == 4
    assert last_line(out).startswith("nothing checked")


def test_d2_no_run_converged_is_a_verdict_and_no_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path, accuracy=0.7589)
    status, out, err = run(capsys, submitter)
    assert status == 4
    assert "0 of 5 converged" in out
    assert "Traceback" not in out + err


def test_d2_line_number_is_that_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    log = results(submitter) / "result_2.txt"
    log.write_text("ordinary text\n" * 100 + log.read_text(encoding="utf-8"), encoding="utf-8")
    line = edit_record(log, "global_batch_size", "3264", "-3264")
    assert line > 100
    _, value = run_json(capsys, submitter)
    found = [item for item in failed(value) if item["file"].endswith("result_2.txt")]
    assert line in {item["line"] for item in found if item["rule"] == "RUN-15"}
    official = [item for item in value["findings"] if item["rule"] == "OFF-01" and item["status"] == "fail"]
    assert [item["line"] for item in official] == [line]


def test_d2_nan_accuracy_is_not_converged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    log = results(submitter) / "result_3.txt"
    line = edit_record(log, "eval_accuracy", "0.7602", "NaN", -1)
    status, value = run_json(capsys, submitter)
    assert value["sets"][0]["num_converged"] == 4
    assert {(item["rule"], item["line"]) for item in value["findings"] if item["found"] == "eval_accuracy NaN"} == {
        ("RUN-08", line)
    }
    # one lost run of five is the slowest, not a fault
    assert (status, value["verdict"]) == (0, "compliant")


def test_d3_checking_twice_changes_nothing_and_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    (results(submitter) / "scaling.json").write_text('{"scaling_factor": 1.0043956044}', encoding="utf-8")
    before = hashes(tmp_path)
    first = run(capsys, submitter)
    second = run(capsys, submitter)
    assert first == second
    assert hashes(tmp_path) == before


def test_d3_read_only_folder_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    for folder, _, _ in os.walk(submitter, topdown=False):
        Path(folder).chmod(0o555)
    try:
        status, value = run_json(capsys, submitter)
    finally:
        for folder, _, _ in os.walk(submitter):
            Path(folder).chmod(0o755)
    assert (status, value["official_verdict"]) == (0, "compliant")


def test_p03_every_line_names_file_rule_found_expected_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    line = edit_record(results(submitter) / "result_3.txt", "seed", '"value": 14', '"value": 11')
    _, out, _ = run(capsys, submitter)
    assert (
        f"  results/sysA/resnet/result_3.txt:{line}: SET-05 error: seed 11, as in result_0.txt; "
        "expected a seed of its own; draw a fresh seed for each run" in out
    )
    assert "current context" not in out, "dumps of rules are no findings"


def test_p12_one_folder_by_any_name_gives_one_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base_set(tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    answers = [run_json(capsys, name) for name in ("x", "x/", "./x", str(tmp_path / "x"))]
    monkeypatch.chdir(tmp_path / "x")
    answers.append(run_json(capsys, "."))
    assert all(answer == answers[0] for answer in answers)
    status, value = answers[0]
    assert (status, value["verdict"]) == (0, "compliant")
    assert value["score_s"] / 60 == pytest.approx(BASE_NORMALISED_MIN, abs=1e-5)


def test_p13_record_without_metadata_is_a_finding_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    log = results(submitter) / "result_1.txt"
    line = edit_record(log, "train_samples", ', "metadata": {"file": "train.py", "lineno": 10}', "")
    status, value = run_json(capsys, submitter)
    assert status == 4
    assert [(item["file"], item["line"], item["found"]) for item in failed(value, "RUN-01")] == [
        ("results/sysA/resnet/result_1.txt", line, "train_samples has no metadata")
    ]
    # mlperf_logging ends in KeyError: it gave no verdict, which is not a pass
    crashes = [item for item in value["findings"] if "crashed: KeyError" in (item["found"] or "")]
    assert {item["rule"] for item in crashes} >= {"OFF-01", "OFF-05"}
    assert {item["status"] for item in crashes} == {"not_checked"}
    assert sum(item["rule"] == "OFF-01" and item["status"] == "pass" for item in value["findings"]) == 4


@pytest.mark.parametrize(
    ("ruleset", "nearest"), [("4.0", "4.0.0"), ("v4.0.0", "4.0.0"), ("9.9.9", ""), ("4.0.0 ", "4.0.0")]
)
def test_p14_unknown_ruleset_lists_the_known_and_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ruleset: str, nearest: str
) -> None:
    status, _, err = run(capsys, tmp_path, "--ruleset", ruleset)
    assert status == 2
    assert "0.7.0, 1.0.0" in err
    assert f"did you mean '{nearest}'" in err if nearest else "Traceback" not in err


def test_p14_unknown_division_lists_the_known_and_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, tmp_path, "--division", "opne")
    assert status == 2
    assert "closed, open; did you mean 'open'?" in err


def test_p14_unknown_division_in_a_log_is_a_finding_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    for log in results(submitter).iterdir():
        line = edit_record(log, "submission_division", "closed", "closd")
    status, value = run_json(capsys, submitter)
    assert status == 4
    finding = next(item for item in failed(value, "RUN-11"))
    assert finding["found"] == "submission_division closd; did you mean 'closed'?"
    assert finding["line"] == line


def test_check_benchmark_that_the_ruleset_does_not_know_names_the_last_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, value = run_json(capsys, lab(tmp_path), "--ruleset", "4.1.0")
    assert (status, value["verdict"], value["official_verdict"]) == (4, "not_compliant", "nothing_checked")
    finding = failed(value, "RUN-11")[0]
    assert finding["found"] == "ruleset 4.1.0 does not know the benchmark resnet"
    assert finding["expected"] == "a ruleset up to 4.0.0, the last that does"


def test_p16_options_file_is_read_whatever_its_line_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # batch 131072 has no reference; with rcp_bypass that is a warning (cases.md D16, P16)
    submitter = lab(tmp_path, batch=131_072)
    status, value = run_json(capsys, submitter)
    assert "no reference for batch 131072 in ruleset 4.0.0" in failed(value, "SET-09")[0]["found"]
    params = results(submitter) / "package_checker_params"
    params.write_bytes(b"# reviewed\r\n\r\nrcp_bypass\r\n")
    status, value = run_json(capsys, submitter)
    assert status == 4, "mlperf_logging itself ignores the word for its line end"
    assert failed(value, "SET-09") == []
    assert any("in force: rcp-bypass" in (item["found"] or "") for item in value["findings"])
    params.write_text("rcp-bypas\n", encoding="utf-8")
    _, value = run_json(capsys, submitter)
    unknown = failed(value, "PKG-09")
    assert [(item["found"], item["line"]) for item in unknown] == [("unknown word rcp-bypas", 1)]


def test_p18_seed_repeated_at_another_source_line_is_still_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    log = results(submitter) / "result_3.txt"
    edit_record(log, "seed", '"value": 14', '"value": 11')
    edit_record(log, "seed", '"lineno": 10', '"lineno": 99')
    status, value = run_json(capsys, submitter)
    assert (status, value["official_verdict"], value["own_verdict"]) == (4, "compliant", "not_compliant")
    assert [item["rule"] for item in failed(value)] == ["SET-05"]
    assert "SET-05" in value["sets"][0]["difference"]


def test_d16_interpolated_reference_normalises_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # cases.md D16: batch 2048, 35 epochs: factor 1.00112, score 36.54090
    status, value = run_json(capsys, lab(tmp_path, batch=2048), "--ruleset", "4.0.0")
    assert status == 0
    assert value["sets"][0]["rcp_factor"] == pytest.approx(1.00112, abs=1e-5)
    assert value["score_s"] / 60 == pytest.approx(36.54090, abs=1e-5)


def test_check_mixed_batches_is_a_finding_where_the_official_tool_crashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = lab(tmp_path)
    line = edit_record(results(submitter) / "result_2.txt", "global_batch_size", "3264", "4096")
    status, value = run_json(capsys, submitter)
    assert status == 4
    assert [(item["file"], item["line"]) for item in failed(value, "SET-03")] == [
        ("results/sysA/resnet/result_2.txt", line)
    ]
    # style.md section 3B: KeyError: None
    assert "official checker crashed: KeyError: None" in {item["found"] for item in failed(value, "OFF-04")}


def test_check_single_log_is_judged_by_the_rules_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "train.log", run_lines())
    status, value = run_json(capsys, log)
    assert (status, value["verdict"], value["score_s"]) == (0, "compliant", None)
    assert {item["rule"][:3] for item in value["findings"]} == {"RUN", "OFF"}
    assert {item["file"] for item in value["findings"]} == {"train.log"}


def test_check_log_that_names_a_rule_file_of_its_own_executes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mlperf_logging puts submission_division into the path of a rule file, whose Python it executes."""
    marker = tmp_path / "executed"
    rules = tmp_path / "evil_common.yaml"
    rules.write_text(f"- BEGIN:\n    CODE: \"open('{marker}', 'w')\"\n", encoding="utf-8")
    log = write_log(tmp_path / "result_0.txt", run_lines())
    edit_record(log, "submission_division", '"closed"', f'"/../../../../../../../../../../../../..{tmp_path}/evil"')
    status, value = run_json(capsys, log)
    assert status == 4
    assert not marker.exists()
    assert failed(value, "OFF-01")


def test_check_control_characters_of_a_log_are_shown_and_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "result_0.txt", run_lines())
    edit(log, '"submission_status", "value": "onprem"', '"submission_status", "value": "\\u001b[2Jonprem"')
    for name in ("text", "github", "junit"):
        _, out, _ = run(capsys, log, "--format", name)
        assert "\x1b" not in out
        assert "\\x1b[2J" in out


def test_check_link_out_of_the_folder_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    secret = tmp_path / "secret.txt"
    shutil.move(results(submitter) / "result_4.txt", secret)
    (results(submitter) / "result_4.txt").symlink_to(secret)
    status, value = run_json(capsys, submitter)
    assert status == 4
    assert "leads out of the folder" in failed(value, "SET-01")[0]["found"]
    assert failed(value, "PKG-04")[0]["file"] == "results/sysA/resnet/result_4.txt"


def test_check_same_log_twice_is_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    shutil.copyfile(results(submitter) / "result_0.txt", results(submitter) / "result_4.txt")
    _, value = run_json(capsys, submitter)
    assert failed(value, "SET-06")[0]["found"] == "the same bytes as result_0.txt"


def test_check_shifted_copy_with_another_seed_is_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitter = lab(tmp_path)
    shifted = run_lines(minutes=36.5, seed=99, start_ms=START_MS + 50_000_000)  # result_0's course, hours later
    write_log(results(submitter) / "result_4.txt", shifted)
    _, value = run_json(capsys, submitter)
    assert "every epoch time and every accuracy is that of result_0.txt" in failed(value, "SET-06")[0]["found"]


def test_check_throughput_run_set_is_nothing_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own_run_set(tmp_path, benchmark_kind="throughput", mlperf_name=None)
    status, out, _ = run(capsys, folder.path)
    assert status == 4
    assert last_line(out).startswith("nothing checked")


def test_check_own_run_set_is_compliant_and_uses_its_own_ruleset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_run_set(tmp_path, ruleset="3.0.0")
    before = hashes(tmp_path)
    status, value = run_json(capsys, folder.path)
    assert failed(value) == []
    assert (status, value["ruleset"], value["verdict"]) == (0, "3.0.0", "compliant")
    assert value["score_s"] == pytest.approx(BASE_MIN * 60)
    assert hashes(tmp_path) == before


def test_check_folder_of_run_sets_checks_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_run_set(tmp_path, name="a")
    own_run_set(tmp_path, name="b", rehearsal=True)
    status, value = run_json(capsys, tmp_path)
    assert status == 4
    assert [(item["name"], item["own_verdict"]) for item in value["sets"]] == [
        ("a", "compliant"),
        ("b", "not_compliant"),
    ]


def test_check_other_benchmark_is_judged_without_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log of bert counts samples and no epochs; what it need not have is no fault of it."""
    lines = [
        line.replace('"lars"', '"lamb"')
        for line in run_lines(benchmark="bert", accuracy=0.7201)
        if "epoch_st" not in line and "lars_" not in line
    ]
    log = write_log(tmp_path / "result_0.txt", lines)
    _, value = run_json(capsys, log, "--ruleset", "3.1.0")
    assert [item["rule"] for item in failed(value)] == ["OFF-01"] * len(failed(value))
    assert value["own_verdict"] == "compliant"


def test_check_run_that_the_runner_saw_crash_is_lost_whatever_its_log_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_run_set(tmp_path)
    crashed = attempt_file(run_set_file(), 3, 14, status="crashed", exit_status=1, reason="status 1 after run_stop")
    write_json(folder.attempt(3, 0).outcome, crashed)
    status, value = run_json(capsys, folder.path)
    assert value["sets"][0]["num_converged"] == 4
    # the slowest of the four good ones is kept then: 36.2, the lost one, is dropped with 36.0
    assert value["score_s"] / 60 == pytest.approx((36.5 + 36.8 + 37.0) / 3)
    assert (status, value["verdict"]) == (0, "compliant"), "one run may be lost"
    warned = {item["rule"] for item in value["findings"] if item["severity"] == "warning" and item["status"] == "fail"}
    assert {"OWN-02", "RUN-07"} <= warned


def test_check_pipe_is_unreadable_and_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "result_0.txt")

    status, _, err = run(capsys, tmp_path / "result_0.txt")

    assert status == 2
    assert "is a device, pipe or socket; expected a log" in err


def test_check_name_of_a_log_that_is_no_file_is_named_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base_set(tmp_path)
    (tmp_path / "result_3.txt").unlink()
    (tmp_path / "result_3.txt").mkdir()
    (tmp_path / "result_4.txt").unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "result_4.txt").symlink_to("pipe")

    status, out, _ = run(capsys, tmp_path, "--json")

    value = json.loads(out)
    assert (status, value["verdict"]) == (4, "not_compliant")
    assert {item["file"]: item["found"] for item in value["findings"] if item["rule"] == "SET-01"} == {
        "result_3.txt": "not read: a folder, not a file",
        "result_4.txt": "not read: a pipe, not a file",
    }
