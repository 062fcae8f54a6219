"""A run folder of mlbench to the rows of the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbench.check.checker import check
from mlbench.collect.runfolder import RunFolder
from mlbench.errors import InputError
from mlbench.ingest.run_set import read_run_set
from mlbench.store.canonical import canonical_rows
from tests.support.run_folders import write_attempt, write_run_folder

ENVIRONMENT = {"NCCL_DEBUG": "WARN", "AWS_SECRET_ACCESS_KEY": "hunter2", "MY_SITE": "x", "SLURM_JOB_TOKEN": "t0k"}


def test_folder_of_the_base_set_is_scored(tmp_path: Path) -> None:
    """cases.md, section 4: 36.5, 36.0, 37.0, 36.2, 36.8 minutes, olympic mean 36.5."""
    row = read_run_set(write_run_folder(tmp_path))
    assert row.olympic_mean_s == pytest.approx(36.5 * 60, rel=1e-6)
    assert (row.score_status, row.num_runs, row.num_converged) == ("valid", 5, 5)
    assert [run.seed for run in row.runs] == [11, 12, 13, 14, 15]
    assert (row.system, row.num_accelerators, row.benchmark, row.origin) == ("DSS8440", 8, "resnet", "run")
    assert row.rcp_factor is not None
    assert row.score_s == pytest.approx(36.5 * 60 * max(1.0, row.rcp_factor), rel=1e-6)


def test_folder_read_twice_gives_the_same_rows(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path)
    assert canonical_rows(read_run_set(folder)) == canonical_rows(read_run_set(folder))


def test_folder_with_a_changed_file_has_another_hash(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path)
    before = read_run_set(folder).content_hash
    folder.hosts.write_text(json.dumps({"localhost": {"kernel": "6.1"}}))
    assert read_run_set(folder).content_hash != before


def test_folder_moved_has_the_same_hash(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path / "a")
    before = read_run_set(folder).content_hash
    (tmp_path / "b").mkdir()
    folder.path.rename(tmp_path / "b" / folder.run_set)
    assert read_run_set(RunFolder(tmp_path / "b" / folder.run_set)).content_hash == before


def test_last_attempt_counts_and_failed_ones_stay(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path, num_written=4)
    write_attempt(folder, 4, 0, status="crashed", minutes=10.0)
    write_attempt(folder, 4, 1)
    row = read_run_set(folder)
    assert (row.num_runs, row.num_converged, row.score_status) == (5, 5, "valid")
    assert [(run.index, run.attempt, run.status) for run in row.runs][-2:] == [(4, 0, "crashed"), (4, 1, "success")]
    assert not row.runs[-2].converged
    assert row.olympic_mean_s == pytest.approx(36.5 * 60, rel=1e-6)


def test_attempt_without_record_and_without_end_is_interrupted(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path, num_written=4)
    write_attempt(folder, 4, record=False)
    log = folder.attempt(4, 0).mllog
    log.write_text("\n".join(log.read_text().splitlines()[:40]) + "\n")
    run = read_run_set(folder).runs[-1]
    assert (run.status, run.converged) == ("interrupted", False)
    assert "mlbench ended before this attempt did" in (run.status_reason or "")


def test_attempt_without_record_that_came_to_its_end_counts(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path, num_written=4)
    write_attempt(folder, 4, record=False)
    assert read_run_set(folder).num_converged == 5


def test_warm_ups_are_kept_and_never_averaged(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path, warmup_runs=1)
    write_attempt(folder, 0, warmup=True, minutes=90.0)
    row = read_run_set(folder)
    assert [run.warmup for run in row.runs].count(True) == 1
    assert (row.num_runs, row.max_s) == (5, pytest.approx(37.0 * 60, rel=1e-6))


def test_fewer_runs_than_asked_are_raw(tmp_path: Path) -> None:
    row = read_run_set(write_run_folder(tmp_path, num_written=4))
    assert (row.score_s, row.score_status) == (None, "raw")
    assert "4 runs of 5 asked" in (row.score_reason or "")


def test_rehearsal_is_never_a_score(tmp_path: Path) -> None:
    row = read_run_set(write_run_folder(tmp_path, rehearsal=True))
    assert (row.score_s, row.score_status, row.rehearsal) == (None, "raw", True)


def test_closed_batch_without_reference_has_no_score(tmp_path: Path) -> None:
    """D16: batch 131072 is larger than any reference of ruleset 4.0.0."""
    row = read_run_set(write_run_folder(tmp_path, log={"batch": 131072}))
    assert (row.score_s, row.score_status) == (None, "invalid")
    assert "no reference for batch 131072" in (row.score_reason or "")


def test_factor_of_interpolated_reference_scales_the_score(tmp_path: Path) -> None:
    """D16: batch 2048 and 35 epochs: factor 1.00112, 36.54090 minutes."""
    row = read_run_set(write_run_folder(tmp_path, log={"batch": 2048}))
    assert row.rcp_factor == pytest.approx(1.00112, abs=1e-5)
    assert row.score_s == pytest.approx(36.54090 * 60, abs=0.01)


def test_open_division_needs_no_reference(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path, division="open", global_batch_size=131072, log={"batch": 131072})
    for attempt in folder.attempts():
        attempt.mllog.write_text(attempt.mllog.read_text().replace('"closed"', '"open"'))
    row = read_run_set(folder)
    assert (row.score_status, row.score_s) == ("valid", pytest.approx(36.5 * 60, rel=1e-6))


def test_no_secret_reaches_the_rows(tmp_path: Path) -> None:
    folder = write_run_folder(
        tmp_path,
        environment=ENVIRONMENT,
        command_line=["mlbench", "db.url=postgresql://u:hunter2@h/d", "+extra.api_token=hunter2"],
    )
    folder.config.write_text("storage:\n  environment: {AWS_SECRET_ACCESS_KEY: hunter2}\n  password: hunter2\n")
    folder.hosts.write_text(json.dumps({"a": {"proxy": "http://u:hunter2@proxy"}}))
    text = json.dumps(canonical_rows(read_run_set(folder)))
    assert "hunter2" not in text
    assert "t0k" not in text
    assert "WARN" in text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run_set.json", "{", "is not JSON"),
        ("run_set.json", "[]", "expected an object"),
        ("config.yaml", "a: &x [1]\nb: *x\n", "uses YAML aliases"),
        ("config.yaml", "a: [", "is not YAML"),
        ("findings.json", "{}", "expected a list"),
        ("hosts.json", "\xff\xfe", "is not JSON"),
    ],
)
def test_damaged_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = write_run_folder(tmp_path)
    (folder.path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        read_run_set(folder)
    assert name in str(raised.value)


def test_link_in_place_of_a_record_is_refused(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path)
    folder.hosts.unlink()
    folder.hosts.symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="is a link"):
        read_run_set(folder)


def test_folder_with_another_name_is_refused(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path)
    folder.path.rename(tmp_path / "renamed")
    with pytest.raises(InputError, match="give the folder its name back"):
        read_run_set(RunFolder(tmp_path / "renamed"))


@pytest.mark.parametrize(("division", "num_converged"), [("closed", 0), ("open", 5)])
def test_only_the_open_division_may_choose_a_lower_target(tmp_path: Path, division: str, num_converged: int) -> None:
    folder = write_run_folder(tmp_path, division=division, log={"accuracy": 0.6, "target": 0.5})
    for attempt in folder.attempts():
        text = attempt.mllog.read_text().replace('"value": "closed"', f'"value": "{division}"')
        attempt.mllog.write_text(text)
    assert read_run_set(folder).num_converged == num_converged


def test_broken_rule_of_check_leaves_no_score_in_the_database_either(tmp_path: Path) -> None:
    """design.md: invalid is also what breaks a rule. Two runs of one seed are two clones, whatever their times say."""
    folder = write_run_folder(tmp_path, log={"seed": 11})
    row = read_run_set(folder)
    assert (row.score_status, row.score_s) == ("invalid", None)
    assert row.score_reason is not None
    assert row.score_reason.startswith("broken: ")
    assert row.olympic_mean_s is not None
    report = check(folder.path)
    assert report.score_s is None
    assert report.sets[0].score is not None
    assert report.sets[0].score.score_reason == row.score_reason
