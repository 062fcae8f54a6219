from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.check.judgement import judge
from mlbench.check.locate import locate
from mlbench.collect.tree import parse_round, round_of, scan_tree
from mlbench.errors import InputError
from mlbench.ingest.published import Imported, import_folder
from mlbench.store.tables import RunSet
from tests.support.run_logs import base_set, run_lines, submission, write_log


def import_all(path: Path, round_name: str | None = None) -> list[RunSet]:
    run_sets = []
    for folder in scan_tree(path, round_name=round_name).folders:
        imported = import_folder(folder)
        assert imported.unreadable == []
        run_sets += imported.run_sets
    return run_sets


def only(path: Path, round_name: str | None = None) -> RunSet:
    (run_set,) = import_all(path, round_name)
    return run_set


def texts(run_set: RunSet) -> list[str]:
    return [note.text for note in run_set.notes]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_import_round_repository_takes_names_from_its_folders(tmp_path: Path) -> None:
    submission(tmp_path / "training_results_v2.1", org="DellEMC", system="DSS8440")
    run_set = only(tmp_path / "training_results_v2.1")
    assert run_set.run_set == "v2.1/DellEMC/DSS8440/resnet"
    assert (run_set.round, run_set.org, run_set.system) == ("v2.1", "DellEMC", "DSS8440")
    assert (run_set.ruleset, run_set.division, run_set.benchmark) == ("2.1.0", "closed", "resnet")
    assert run_set.org_logged == "LabX"
    assert run_set.description is not None
    assert run_set.description.submitter == "Lab of X"
    assert (run_set.num_nodes, run_set.num_accelerators) == (1, 8)
    assert (run_set.score_status, run_set.num_converged) == ("valid", 5)
    # published scores are scaled by scaling.json alone, so the reference factor is told but not applied
    assert run_set.score_s == pytest.approx(36.5 * 60)
    assert run_set.rcp_factor == pytest.approx(1.0043956044)
    assert run_set.cache == "cold"
    assert run_set.started_at is not None


def test_import_round_given_wins_over_the_path(tmp_path: Path) -> None:
    submission(tmp_path / "training_results_v2.1")
    assert only(tmp_path, round_name="v3.0").run_set == "v3.0/Lab/sysA/resnet"


def test_import_round_below_the_given_path_is_found(tmp_path: Path) -> None:
    submission(tmp_path / "v1.0")
    submission(tmp_path / "v1.1")
    assert [item.round for item in import_all(tmp_path)] == ["v1.0", "v1.1"]


@pytest.mark.parametrize("spelling", ["x", "x/", "./x", "../here/x", "absolute", "."])
def test_import_spelling_of_the_path_changes_nothing(
    tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # cases.md, P12
    here = tmp_path / "here"
    base_set(here / "x")
    expected = only(here / "x")
    monkeypatch.chdir(here / "x" if spelling == "." else here)
    found = only(here / "x" if spelling == "absolute" else Path(spelling))
    assert found.run_set == expected.run_set
    assert found.content_hash == expected.content_hash
    assert (found.benchmark, found.score_s) == ("resnet", expected.score_s)


def test_import_copy_elsewhere_is_the_same_content(tmp_path: Path) -> None:
    base_set(tmp_path / "a")
    base_set(tmp_path / "b")
    first, second = only(tmp_path / "a"), only(tmp_path / "b")
    assert first.content_hash == second.content_hash
    assert first.run_set == second.run_set


def test_import_one_byte_changed_is_other_content(tmp_path: Path) -> None:
    before = only(submission(tmp_path)).content_hash
    with (tmp_path / "Lab/results/sysA/resnet/result_2.txt").open("a", encoding="utf-8") as log:
        log.write("\n")
    assert only(tmp_path).content_hash != before


def test_import_files_numbered_from_anything_are_in_natural_order(tmp_path: Path) -> None:
    for number in (9, 10, 100, 11, 12):
        write_log(tmp_path / f"result_{number}.txt", run_lines(minutes=30 + number / 100))
    run_set = only(tmp_path)
    assert [run.index for run in run_set.runs] == [0, 1, 2, 3, 4]
    assert [Path(run.log_path or "").name for run in run_set.runs] == [
        f"result_{number}.txt" for number in (9, 10, 11, 12, 100)
    ]


def test_import_single_log_is_raw(tmp_path: Path) -> None:
    path = write_log(tmp_path / "my run.log", run_lines())
    run_set = only(path)
    assert run_set.run_set.startswith("resnet-")
    assert (run_set.num_runs, run_set.num_converged) == (1, 1)
    assert (run_set.score_status, run_set.score_s) == ("raw", None)
    assert run_set.score_reason == "1 run of 5 asked"


def test_import_folder_of_other_names_takes_its_mllog_files(tmp_path: Path) -> None:
    write_log(tmp_path / "first.log", run_lines())
    write_log(tmp_path / "second.out", run_lines(seed=2))
    (tmp_path / "notes.txt").write_text("nothing to see", encoding="utf-8")
    run_set = only(tmp_path)
    assert run_set.num_runs == 2
    assert any("no result_*.txt here" in text for text in texts(run_set))


def test_import_other_benchmark_is_taken_with_its_target_and_raw(tmp_path: Path) -> None:
    folder = tmp_path / "training_results_v2.1" / "Lab" / "results" / "sysA" / "bert"
    base_set(folder, benchmark="bert", accuracy=0.721)
    base_set(folder.parent / "maskrcnn", benchmark="maskrcnn")
    bert, maskrcnn = import_all(tmp_path)
    assert (bert.benchmark, bert.num_converged, bert.score_status) == ("bert", 5, "raw")
    assert bert.runs[0].quality_target == 0.72  # training_2.1.0/closed_bert.yaml
    assert bert.runs[0].time_to_train_s == 36.5 * 60
    assert bert.score_reason == "mlbench scores resnet, not bert"
    assert (maskrcnn.num_converged, maskrcnn.runs[0].quality_target) == (0, None)
    assert any("quality target is not known from the rules" in text for text in texts(maskrcnn))


def test_import_benchmark_comes_from_the_logs_not_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "v2.0" / "Lab" / "results" / "sysA" / "resnet_new"
    base_set(folder)
    run_set = only(tmp_path)
    assert run_set.benchmark == "resnet"
    assert run_set.run_set == "v2.0/Lab/sysA/resnet_new"
    assert run_set.score_status == "valid"


def test_import_two_benchmarks_in_one_folder_are_two_sets(tmp_path: Path) -> None:
    base_set(tmp_path)
    write_log(tmp_path / "result_5.txt", run_lines(benchmark="ssd"))
    found = {item.benchmark: item for item in import_all(tmp_path)}
    assert {name: item.num_runs for name, item in found.items()} == {"resnet": 5, "ssd": 1}
    assert any("several benchmarks in one folder" in text for text in texts(found["resnet"]))


def test_import_log_without_benchmark_counts_with_its_neighbours(tmp_path: Path) -> None:
    base_set(tmp_path)
    lines = [line for line in run_lines() if "submission_benchmark" not in line]
    write_log(tmp_path / "result_4.txt", lines[:20])
    run_set = only(tmp_path)
    assert (run_set.num_runs, run_set.num_converged, run_set.score_status) == (5, 4, "valid")
    assert any("names no benchmark" in text for text in texts(run_set))


def test_import_mixed_batch_sizes_are_noted_and_unknown(tmp_path: Path) -> None:
    base_set(tmp_path)
    write_log(tmp_path / "result_4.txt", run_lines(batch=2048))
    run_set = only(tmp_path)
    assert run_set.global_batch_size is None
    assert "runs with different global batch sizes: 2048, 3264" in texts(run_set)


@pytest.mark.parametrize(("lost", "status"), [(0, "valid"), (1, "valid"), (2, "invalid"), (5, "invalid")])
def test_import_lost_runs(tmp_path: Path, lost: int, status: str) -> None:
    paths = base_set(tmp_path)
    for path in paths[:lost]:
        edit(path, "0.7602", "0.7589")  # cases.md, D2 (a)
    run_set = only(tmp_path)
    assert (run_set.num_converged, run_set.score_status) == (5 - lost, status)
    assert (run_set.score_s is None) is (status == "invalid")


def test_import_nan_accuracy_is_a_lost_run(tmp_path: Path) -> None:
    paths = base_set(tmp_path)
    edit(paths[3], '"value": 0.7602', '"value": NaN')  # cases.md, D2 (c)
    run_set = only(tmp_path)
    assert [run.converged for run in run_set.runs] == [True, True, True, False, True]


def test_import_record_without_metadata_is_noted_with_file_and_line(tmp_path: Path) -> None:
    paths = base_set(tmp_path)
    lines = paths[1].read_text(encoding="utf-8").splitlines()
    number = next(index for index, line in enumerate(lines) if "train_samples" in line)
    lines[number] = lines[number].split(', "metadata"')[0] + "}"  # cases.md, P13
    write_log(paths[1], lines)
    run_set = only(tmp_path)
    found = [(note.file, note.line) for note in run_set.notes if "no metadata" in note.text]
    assert found == [("result_1.txt", number + 1)]
    assert run_set.score_s == pytest.approx(36.5 * 60)


def test_import_warm_cache_is_raw(tmp_path: Path) -> None:
    paths = base_set(tmp_path)
    edit(paths[2], '"key": "cache_clear", "value": true', '"key": "cache_clear", "value": false')
    run_set = only(tmp_path)
    assert (run_set.cache, run_set.score_status, run_set.score_s) == ("warm", "raw", None)
    assert "the cache was not cleared" in (run_set.score_reason or "")


def test_import_scaling_file_scales_the_score(tmp_path: Path) -> None:
    folder = submission(tmp_path)
    (folder / "scaling.json").write_text('{"scaling_factor": 1.0042}', encoding="utf-8")
    run_set = only(tmp_path)
    assert run_set.scaling_factor == 1.0042
    assert run_set.olympic_mean_s == pytest.approx(36.5 * 60)
    assert run_set.score_s == pytest.approx(36.5 * 60 * 1.0042)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"scaling_factor": "1.1"}', '{"scaling_factor": 0.5}', '{"scaling_factor": NaN}']
)
def test_import_scaling_file_that_makes_no_sense_leaves_no_score(tmp_path: Path, text: str) -> None:
    folder = submission(tmp_path)
    (folder / "scaling.json").write_text(text, encoding="utf-8")
    run_set = only(tmp_path)
    assert (run_set.score_status, run_set.score_s) == ("raw", None)
    assert "scaling.json" in (run_set.score_reason or "")


def test_import_division_logged_is_used_when_the_description_has_none(tmp_path: Path) -> None:
    submission(tmp_path)
    edit(tmp_path / "Lab/systems/sysA.json", '"division": "closed"', '"devision of": "x"')
    run_set = only(tmp_path)
    assert run_set.division == "closed"
    assert "no division" in texts(run_set)


def test_import_division_disagreeing_is_noted(tmp_path: Path) -> None:
    submission(tmp_path)
    edit(tmp_path / "Lab/systems/sysA.json", '"division": "closed"', '"division": "open"')
    run_set = only(tmp_path)
    assert run_set.division == "open"
    assert "division open, logged 'closed'" in texts(run_set)


def test_import_without_description_says_so(tmp_path: Path) -> None:
    submission(tmp_path)
    (tmp_path / "Lab/systems/sysA.json").unlink()
    run_set = only(tmp_path)
    assert run_set.description is None
    assert "no system description" in texts(run_set)


def test_import_broken_description_is_named_and_the_logs_still_read(tmp_path: Path) -> None:
    submission(tmp_path)
    (tmp_path / "Lab/systems/sysA.json").write_text("{", encoding="utf-8")
    imported: Imported = import_folder(scan_tree(tmp_path).folders[0])
    assert len(imported.unreadable) == 1
    assert "sysA.json" in imported.unreadable[0]
    assert imported.run_sets[0].score_status == "valid"


def test_import_link_out_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    outside = write_log(tmp_path / "outside" / "secret.txt", run_lines(minutes=1.0))
    tree = tmp_path / "tree"
    paths = base_set(tree)
    paths[4].unlink()
    paths[4].symlink_to(outside)
    run_set = only(tree)
    assert run_set.num_runs == 4
    assert any("a link that leads to no file of the tree" in text for text in texts(run_set))


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [(make_pipe, "a pipe"), (make_socket, "a socket"), (Path.mkdir, "a folder")],
    ids=["pipe", "socket", "folder"],
)
def test_import_name_of_a_log_that_is_no_file_is_noted_and_never_opened(
    make: Callable[[Path], None], kind: str, tmp_path: Path
) -> None:
    paths = base_set(tmp_path)
    paths[4].unlink()
    make(paths[4])
    run_set = only(tmp_path)
    assert run_set.num_runs == 4
    (note,) = [note for note in run_set.notes if "is not read" in note.text]
    assert (note.file, note.text) == (
        "result_4.txt",
        f"{kind}, not a file; it has the name of a result log and is not read",
    )


def test_import_folder_of_pipes_alone_is_named_and_no_run_set(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    os.mkfifo(tmp_path / "set" / "result_0.txt")
    (tmp_path / "set" / "result_1.txt").symlink_to("/dev/zero")
    found = scan_tree(tmp_path)
    assert found.folders == []
    assert [text.split(", not")[0] for text in found.unreadable] == [
        f"{tmp_path}/set/result_0.txt: a pipe",
        f"{tmp_path}/set/result_1.txt: a link that leads to no file of the tree",
    ]


def test_import_linked_folders_do_not_loop(tmp_path: Path) -> None:
    base_set(tmp_path / "x")
    (tmp_path / "x" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(import_all(tmp_path)) == 1


def test_import_log_that_is_gone_meanwhile_is_named_and_the_rest_imported(tmp_path: Path) -> None:
    paths = base_set(tmp_path)
    (folder,) = scan_tree(tmp_path).folders
    paths[2].unlink()
    imported = import_folder(folder)
    assert "result_2.txt: cannot be read" in imported.unreadable[0]
    assert (imported.run_sets[0].num_runs, imported.run_sets[0].score_status) == (4, "raw")


def test_import_folder_without_records_is_unreadable_not_a_run_set(tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_text("ordinary text\n", encoding="utf-8")
    imported = import_folder(scan_tree(tmp_path).folders[0])
    assert imported.run_sets == []
    assert "no MLLOG record found" in imported.unreadable[0]


def test_scan_missing_path_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        scan_tree(tmp_path / "nowhere")


def test_scan_does_not_enter_git_or_caches(tmp_path: Path) -> None:
    base_set(tmp_path / ".git" / "x")
    base_set(tmp_path / "__pycache__")
    assert scan_tree(tmp_path).folders == []


@pytest.mark.parametrize(("text", "expected"), [("v2.1", "v2.1"), ("2.1", "v2.1"), ("training_results_v0.7", "v0.7")])
def test_round_spellings(text: str, expected: str) -> None:
    assert parse_round(text) == expected


@pytest.mark.parametrize("text", ["", "2", "v2", "latest", "v2.1.0", "v2.1/.."])
def test_round_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected the name of a round"):
        parse_round(text)


def test_round_of_a_path_is_that_of_the_nearest_folder() -> None:
    assert round_of(Path("/data/v1.0/copy/training_results_v2.0/Lab")) == "v2.0"
    assert round_of(Path("/data/model-v1.0/x")) is None


def test_import_epochs_evaluations_and_settings_become_rows(tmp_path: Path) -> None:
    base_set(tmp_path, epochs=3)
    run = only(tmp_path).runs[0]
    assert [row.epoch_num for row in run.epoch_rows] == [1, 2, 3]
    assert run.epoch_rows[0].start_s == 0.0
    assert run.epoch_rows[0].samples_per_s == pytest.approx(1_281_167 / run.epoch_rows[0].duration_s)
    assert [(row.epoch_num, row.accuracy) for row in run.evaluations] == [(3, 0.7602)]
    settings = {row.key: json.loads(row.value) for row in run.hyperparameters}
    assert settings["opt_name"] == "lars"
    assert settings["lars_opt_base_learning_rate"] == 10.5
    assert run.seed == 11
    assert run.init_s == pytest.approx(29.99)


@pytest.mark.parametrize(
    ("logged", "described", "round_name", "target"),
    [
        ("closed", None, None, 0.759),  # the closed division may not choose
        ("closed", None, "v2.1", 0.759),
        ("open", None, None, 0.5),
        ("open", "open", "v2.1", 0.5),
        ("open", "closed", "v2.1", 0.759),  # a log cannot leave the division that is described
        ("open", "open", "v0.7", 0.759),  # training_0.7.0/open_resnet.yaml asks 0.759 all the same
    ],
)
def test_import_and_check_hold_runs_to_the_same_target(
    tmp_path: Path, logged: str, described: str | None, round_name: str | None, target: float
) -> None:
    root = tmp_path / (f"training_results_{round_name}" if round_name else "lab")
    if described is None:
        folder = root / "logs"
        base_set(folder, target=0.5)
    else:
        folder = submission(root)
        base_set(folder, target=0.5)
        system = root / "Lab" / "systems" / "sysA.json"
        system.write_text(system.read_text().replace('"closed"', f'"{described}"'))
    for log in folder.iterdir():
        log.write_text(log.read_text().replace('"closed"', f'"{logged}"'))

    imported = import_folder(scan_tree(root).folders[0]).run_sets[0]
    checked = judge(locate(root).sets[0]).targets

    assert {run.quality_target for run in imported.runs} == {target}
    assert {item.value for item in checked if item is not None} == {target}
