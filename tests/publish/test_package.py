"""From run sets to a submission tree: what it holds, who accepts it, what is refused, and that it is all or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.check.checker import check
from mlbench.check.finding import Severity, Status, Verdict
from mlbench.check.system_rules import REQUIRED_FIELDS
from mlbench.cli.main import run_command
from mlbench.collect.runfiles import write_json
from mlbench.collect.runfolder import RunFolder
from mlbench.collect.tree import scan_tree
from mlbench.errors import ConfigError, NotCompliantError
from mlbench.ingest.published import import_folder
from mlbench.publish.package import package
from tests.support.submissions import RUN_SET, attempt_file, edit_record, hashes, own_run_set, run_set_file

pytestmark = pytest.mark.slow
SYSTEM = "Standard_PC_x2cpu"
RULESETS = ("0.7.0", "1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submitter's tree, built once for the tests that only read it."""
    place = tmp_path_factory.mktemp("finished")
    return package([own_run_set(place / "runs")], out=place / "out", org="LabX").root


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return own_run_set(tmp_path / "runs")


def imported_score_s(tree: Path) -> float | None:
    (folder,) = scan_tree(tree).folders
    (row,) = import_folder(folder).run_sets
    return row.score_s


def strays(out: Path) -> list[str]:
    """What is left in and beside an output folder."""
    return sorted(path.name for path in out.parent.iterdir() if path.name.startswith(".mlbench")) + (
        sorted(path.name for path in out.iterdir()) if out.exists() else []
    )


def test_package_has_the_layout_of_a_submission(finished: Path) -> None:
    names = set(hashes(finished.parent))
    code = "LabX/benchmarks/resnet/implementations/mlbench"
    assert {f"LabX/results/{SYSTEM}/resnet/result_{number}.txt" for number in range(5)} <= names
    assert {
        f"LabX/systems/{SYSTEM}.json",
        f"{code}/README.md",
        f"{code}/worker/train.py",
        f"{code}/{SYSTEM}/README.md",
        f"{code}/{SYSTEM}/config.yaml",
        f"{code}/{SYSTEM}/job_4.json",
        f"{code}/{SYSTEM}/packaging.json",
    } <= names
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)
    assert strays(finished.parent) == ["LabX"]


def test_package_system_description_has_33_fields_of_text(folder: RunFolder, tmp_path: Path) -> None:
    made = package([folder], out=tmp_path / "out", org="LabX", given={"cooling": "air"})
    description = json.loads((made.root / "systems" / f"{SYSTEM}.json").read_text(encoding="utf-8"))
    assert tuple(description) == REQUIRED_FIELDS
    assert all(isinstance(value, str) for name, value in description.items() if name != "other_software_stack")
    assert all(isinstance(value, str) for value in description["other_software_stack"].values())
    expected = {
        "submitter": "LabX",
        "division": "open",
        "status": "Available on-premise",
        "system_name": SYSTEM,
        "number_of_nodes": "1",
        "accelerators_per_node": "0",
        "accelerator_model_name": "N/A",
        "host_processor_model_name": "Processor 1 @ 2.50GHz",
        "host_processor_frequency": "2.50GHz",
        "host_processor_core_count": "2",
        "host_memory_capacity": "24 GB",
        "framework": "MXNet 1.9.1",
        "operating_system": "Debian GNU/Linux 12, kernel 6.1.0",
        "cooling": "air",
    }
    assert {name: description[name] for name in expected} == expected
    assert "" not in description.values()


@pytest.mark.parametrize("ruleset", RULESETS)
def test_package_passes_the_official_package_checker(finished: Path, tmp_path: Path, ruleset: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlperf_logging.package_checker", str(finished), "training", ruleset],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    log = (tmp_path / "package_checker.log").read_text(encoding="utf-8")
    assert "PACKAGE CHECKER FOUND NO ERRORS" in log, done.stderr
    assert "ERROR - " not in log
    report = check(finished, ruleset=ruleset)
    assert (report.verdict, report.own, report.official) == (Verdict.compliant,) * 3


def test_package_passes_the_official_repository_checker(finished: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mlperf_logging.repo_checker", str(finished), "training", "4.0.0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "ALL CHECKS PASSED" in (tmp_path / "repo_checker.log").read_text(encoding="utf-8")


def test_package_of_the_same_run_set_has_the_same_bytes(folder: RunFolder, tmp_path: Path) -> None:
    package([folder], out=tmp_path / "one", org="LabX")
    package([folder], out=tmp_path / "two", org="LabX")
    first = hashes(tmp_path / "one")
    assert first == hashes(tmp_path / "two")
    package([folder], out=tmp_path / "one", org="LabX")
    assert hashes(tmp_path / "one") == first, "built again over itself"


def test_package_fills_in_unnamed_and_says_so(folder: RunFolder, tmp_path: Path) -> None:
    before = hashes(folder.path)
    made = package([folder], out=tmp_path / "out", org="Lab X & Söhne")
    assert hashes(folder.path) == before, "the run set itself stays as it is"
    assert made.root.name == "LabX&Söhne"
    original = folder.attempt(0, 0).mllog.read_text(encoding="utf-8").split("\n")
    packaged = (made.root / "results" / SYSTEM / "resnet" / "result_0.txt").read_text(encoding="utf-8").split("\n")
    different = [number for number, pair in enumerate(zip(original, packaged, strict=True)) if pair[0] != pair[1]]
    assert [json.loads(packaged[number].removeprefix(":::MLLOG "))["value"] for number in different] == [
        "Lab X & Söhne"
    ]
    readme = (made.root / "benchmarks/resnet/implementations/mlbench" / SYSTEM / "README.md").read_text("utf-8")
    assert before["runs/run_0/attempt_0/result.txt"] in readme
    assert any("filled in" in note for note in made.notes)
    notes = [item for item in check(made.root).findings if item.rule == "PKG-10" and item.status is Status.failed]
    assert len(notes) == 5
    assert {item.severity for item in notes} == {Severity.note}
    assert before["runs/run_0/attempt_0/result.txt"] in (notes[0].expected or "")


def test_check_of_a_package_whose_log_was_edited_afterwards_fails(folder: RunFolder, tmp_path: Path) -> None:
    made = package([folder], out=tmp_path / "out", org="LabX")
    edit_record(made.root / "results" / SYSTEM / "resnet" / "result_1.txt", "run_stop", "1700", "1699")
    failed = [item for item in check(made.root).findings if item.rule == "PKG-10" and item.severity is Severity.error]
    assert [item.found for item in failed] == ["the log is not the one that was packaged"]


def test_package_of_unnamed_without_org_is_refused(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(NotCompliantError, match="name the submitter with --org"):
        package([folder], out=tmp_path / "out")
    assert strays(tmp_path / "out") == []


def test_package_org_must_be_what_was_logged(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs", org="LabX")
    with pytest.raises(NotCompliantError, match="'LabX' was logged, --org says 'LabY'"):
        package([folder], out=tmp_path / "out", org="LabY")


def test_package_of_named_logs_changes_nothing_in_them(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs", org="LabX")
    made = package([folder], out=tmp_path / "out")
    packaged = made.root / "results" / SYSTEM / "resnet" / "result_3.txt"
    assert packaged.read_bytes() == folder.attempt(3, 0).mllog.read_bytes()
    assert made.notes == []


def test_package_refuses_a_rehearsal_and_says_everything_at_once(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs", rehearsal=True)
    edit_record(folder.attempt(1, 0).mllog, "run_stop", "success", "aborted")
    edit_record(folder.attempt(2, 0).mllog, "run_stop", "success", "aborted")
    other = own_run_set(tmp_path / "runs", name="20261202-000000-resnet50-00000000", benchmark_kind="throughput")
    with pytest.raises(NotCompliantError) as refused:
        package([folder, other], out=tmp_path / "out", org=".Lab")
    text = str(refused.value)
    assert "a rehearsal can never be packaged" in text
    assert "3 of 5 converged" in text
    assert "is not a training benchmark of MLPerf" in text
    assert "--org '.Lab' starts with a dot" in text
    assert "is taken by" in text
    assert strays(tmp_path / "out") == []


def test_package_refuses_a_set_with_a_missing_run(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs")
    folder.attempt(4, 0).mllog.unlink()
    folder.attempt(3, 0).mllog.unlink()
    with pytest.raises(NotCompliantError, match="3 of 5 converged"):
        package([folder], out=tmp_path / "out", org="LabX")


def test_package_unknown_field_names_the_nearest(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'cooling'"):
        package([folder], out=tmp_path / "out", org="LabX", given={"coolin": "air"})


def test_package_holds_no_secret_of_configuration_or_environment(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs")
    folder.config.write_text(
        "db:\n  url: postgresql://me:hunter2@db/x\nextra:\n  api_token: hunter2\n", encoding="utf-8"
    )
    text = folder.attempt(0, 0).job.read_text(encoding="utf-8")
    secret = text.replace('"OMP_NUM_THREADS": "1"', '"AWS_SECRET_ACCESS_KEY": "hunter2", "OMP_NUM_THREADS": "1"')
    folder.attempt(0, 0).job.write_text(secret, encoding="utf-8")
    made = package([folder], out=tmp_path / "out", org="LabX")
    assert [path for path in made.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()] == []


def _spoil(root: Path) -> None:
    """D4: everything that MLCommons' repository refuses."""
    (root / "has space.txt").write_text("x", encoding="utf-8")
    (root / ".hidden").write_text("x", encoding="utf-8")
    with (root / "large.bin").open("wb") as stream:
        stream.truncate(51 * 1024 * 1024)
    (root / "dangling").symlink_to("nowhere")
    (root / "empty").mkdir()
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").write_bytes(b"x")


_OFFENDERS = ("has space.txt has a space", ".hidden starts with a dot", "large.bin has 51.0 MiB",
              "dangling is a link that leads nowhere", "empty is an empty folder", "__pycache__ is compiled Python",
              "__pycache__/x.pyc is compiled Python")  # fmt: skip


def test_d4_offenders_in_included_files_are_all_named_and_nothing_is_left(folder: RunFolder, tmp_path: Path) -> None:
    include = tmp_path / "include"
    include.mkdir()
    _spoil(include)
    with pytest.raises(NotCompliantError) as refused:
        package([folder], out=tmp_path / "out", org="LabX", include=include)
    assert [name for name in _OFFENDERS if name not in str(refused.value)] == []
    assert strays(tmp_path / "out") == []


def test_d4_offenders_in_the_tree_are_all_named_and_the_tree_stays_as_it_was(folder: RunFolder, tmp_path: Path) -> None:
    made = package([folder], out=tmp_path / "out", org="LabX")
    _spoil(made.root)
    before = hashes(tmp_path / "out")
    with pytest.raises(NotCompliantError) as refused:
        package([folder], out=tmp_path / "out", org="LabX")
    assert [name for name in _OFFENDERS if name not in str(refused.value)] == []
    assert hashes(tmp_path / "out") == before
    assert strays(tmp_path / "out") == ["LabX"]


def test_package_adds_a_second_system_to_the_tree(folder: RunFolder, tmp_path: Path) -> None:
    package([folder], out=tmp_path / "out", org="LabX")
    first = hashes(tmp_path / "out")
    more = own_run_set(tmp_path / "runs", name="20261202-000000-resnet50-00000000", num_ranks=4, hosts={"node-a": 4})
    made = package([more], out=tmp_path / "out", org="LabX")
    both = hashes(tmp_path / "out")
    unchanged = {name: value for name, value in first.items() if not name.endswith("mlbench/README.md")}
    assert unchanged.items() <= both.items()
    assert {path.name for path in (made.root / "systems").iterdir()} == {f"{SYSTEM}.json", "Standard_PC_x4cpu.json"}
    readme = (made.root / "benchmarks/resnet/implementations/mlbench/README.md").read_text(encoding="utf-8")
    assert "`Standard_PC_x2cpu/`" in readme
    assert "`Standard_PC_x4cpu/`" in readme


def test_p41_stray_files_of_a_run_folder_are_named_and_left_out(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "notes.md").write_text("x", encoding="utf-8")
    (folder.path / "empty").mkdir()
    (folder.path / ".DS_Store").write_bytes(b"x")
    status = run_command(["package", str(folder.path), "--org", "LabX", "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert status == 0
    for name in ("notes.md", "empty", ".DS_Store"):
        assert f"'{name}' is not of mlbench's making; left out" in out
    assert not any(".DS_Store" in name or "notes.md" in name for name in hashes(tmp_path / "out"))


def test_package_after_a_failed_attempt_takes_the_attempt_that_counts(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs")
    identity = run_set_file()
    first, second = folder.attempt(2, 0), folder.attempt(2, 1)
    first.path.rename(second.path)
    first.path.mkdir()
    write_json(first.outcome, attempt_file(identity, 2, 99, status="crashed", exit_status=1, reason="status 1"))
    made = package([folder], out=tmp_path / "out", org="LabX")
    text = (made.root / "benchmarks/resnet/implementations/mlbench" / SYSTEM / "README.md").read_text("utf-8")
    assert f"| results/{SYSTEM}/resnet/result_2.txt | 2 | 1 | 13 |" in text


def test_package_refuses_a_finished_run_that_was_run_again(tmp_path: Path) -> None:
    folder = own_run_set(tmp_path / "runs")
    first, second = folder.attempt(2, 0), folder.attempt(2, 1)
    first.path.rename(second.path)
    first.path.mkdir()
    write_json(first.outcome, attempt_file(run_set_file(), 2, 99))
    with pytest.raises(NotCompliantError, match=r"OWN-04: run 2: attempt 0 had ended, and was run again"):
        package([folder], out=tmp_path / "out", org="LabX")


def test_package_of_a_closed_set_has_the_score_of_the_set(tmp_path: Path) -> None:
    # cases.md section 4: with convergence normalisation 36.66044 minutes
    folder = own_run_set(tmp_path / "runs", logs={"target": None}, org="LabX", division="closed")
    own = check(folder.path)
    made = package([folder], out=tmp_path / "out")
    packaged = check(made.root)
    assert own.score_s == pytest.approx(36.66044 * 60, abs=1e-3)
    assert packaged.score_s == own.score_s
    assert packaged.verdict is Verdict.compliant
    assert imported_score_s(made.root) == pytest.approx(own.score_s, rel=1e-12)


def test_package_imported_has_the_score_of_the_run_set(finished: Path) -> None:
    own = check(finished.parent.parent / "runs" / RUN_SET)
    assert own.score_s == pytest.approx(36.5 * 60)  # the open division is not normalised
    assert imported_score_s(finished) == pytest.approx(own.score_s, rel=1e-12)


def test_package_command_without_a_run_set_folder_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run_command(["package", str(tmp_path), "--org", "X", "--out", str(tmp_path / "out")])
    assert status == 2
    assert "no run_set.json" in capsys.readouterr().err


def test_package_command_resolves_a_run_set_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLBENCH_HOME", str(tmp_path / "home"))
    folder = own_run_set(tmp_path / "home" / "runs")
    status = run_command(["package", folder.run_set, "--org", "LabX", "--out", str(tmp_path / "out"), "--json"])
    made = json.loads(capsys.readouterr().out)
    assert (status, made["org"], made["systems"]) == (0, "LabX", [SYSTEM])
    assert run_command(["check", folder.run_set]) == 0
