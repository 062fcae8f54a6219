"""Every system of expected.json comes out equal. Tolerances are those of its `about`."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from mlbench.analyse.throughput import Throughput, throughput
from mlbench.check import rcp
from mlbench.collect.mllog import read_log
from mlbench.collect.tree import scan_tree
from mlbench.ingest.published import import_folder
from mlbench.store.tables import RunSet

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = Path(os.environ.get("MLBENCH_PUBLISHED") or ROOT.parent / "shared" / "published").resolve()
EXPECTED: dict[str, Any] = (
    json.loads((PUBLISHED / "expected.json").read_text(encoding="utf-8"))["systems"]
    if (PUBLISHED / "expected.json").is_file()
    else {}
)
SYSTEMS = sorted(EXPECTED) or ["none: the folder is not there"]
RULESETS = {"v0.7": "0.7.0", "v1.0": "1.0.0", "v2.0": "2.0.0", "v3.1": "3.1.0"}

pytestmark = pytest.mark.published


def minutes(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60


def same(found: float | None, expected: float | None, rel: float) -> bool:
    if found is None or expected is None:
        return found is expected
    return found == pytest.approx(expected, rel=rel, abs=0)


@lru_cache
def imported(name: str) -> RunSet:
    """The run set of one system, imported by itself."""
    result = import_folder(scan_tree(PUBLISHED / logs_of(name)).folders[0])
    assert result.unreadable == []
    (run_set,) = result.run_sets
    return run_set


def logs_of(name: str) -> Path:
    expected = EXPECTED[name]
    return Path(expected["round"], expected["org"], "results", expected["system_folder"], "resnet")


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_system_score_and_spread_equal_expected(name: str) -> None:
    expected, run_set = EXPECTED[name], imported(name)
    assert run_set.run_set == f"{name}/resnet"
    assert same(minutes(run_set.olympic_mean_s), expected["olympic_minutes"], 1e-9)
    assert same(minutes(run_set.score_s), expected["published_minutes"], 1e-9)
    assert same(minutes(run_set.mean_s), expected["mean_minutes"], 1e-9)
    assert same(minutes(run_set.min_s), expected["min_minutes"], 1e-9)
    assert same(minutes(run_set.max_s), expected["max_minutes"], 1e-9)
    assert same(run_set.cv, expected["cv"], 1e-6)
    assert run_set.scaling_factor == expected["scaling_factor"]
    assert run_set.num_runs == expected["n_runs"]
    assert run_set.num_runs - run_set.num_converged == expected["n_not_converged"]
    assert (run_set.score_status == "valid") is expected["valid"]
    if expected["mlcommons_table_minutes"] is not None:
        assert same(minutes(run_set.score_s), expected["mlcommons_table_minutes"], 1e-9)


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_system_runs_equal_expected(name: str) -> None:
    expected, run_set = EXPECTED[name], imported(name)
    for row, run in zip(expected["runs"], run_set.runs, strict=True):
        assert Path(run.log_path or "").name == row["file"]
        assert same(minutes(run.time_to_train_s), row["minutes"], 1e-9)
        assert run.converged is row["converged"]
        assert run.status == row["status"]
        assert run.final_accuracy == row["final_eval_accuracy"]
        assert run.best_accuracy == row["best_eval_accuracy"]
        assert run.epochs == row["final_eval_epoch_num"]
        assert run.global_batch_size == row["global_batch_size"]
        assert run.seed == (row["seeds"][0] if row["seeds"] else None)
        assert run.train_samples == row["train_samples"]
        rates = row["throughput"]
        assert same(run.samples_per_s, rates["overall_throughput"], 1e-6)
        assert same(run.samples_per_s_first_epoch, rates["epoch1_throughput"], 1e-6)
        assert same(run.samples_per_s_steady, rates["steady_throughput"], 1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_logs_hold_what_expected_counts(name: str) -> None:
    for row in EXPECTED[name]["runs"]:
        log = read_log(PUBLISHED / logs_of(name) / row["file"])
        assert log.num_records == row["mllog_lines"]
        assert log.num_torn == len(row["unparsed_mllog_lines"])
        assert log.seeds == row["seeds"]
        assert log.benchmark == row["benchmark_logged"][0]
        assert log.org == row["org_logged"][0]
        assert log.hyperparameters["opt_name"] == row["optimizer"]
        rates, expected = throughput(log), row["throughput"]
        assert rates.method.value == expected["method"]
        assert rates.num_epochs == expected["epochs_timed"]
        assert same(rates.samples_per_s_first_block, expected["first_block_throughput"], 1e-6)
        assert same(rates.first_epoch_over_overall, expected["first_epoch_over_overall"], 1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_system_throughput_equal_expected(name: str) -> None:
    expected, run_set = EXPECTED[name], imported(name)
    assert same(run_set.samples_per_s, expected["overall_throughput"], 1e-6)
    assert same(run_set.samples_per_s_first_epoch, expected["epoch1_throughput"], 1e-6)
    assert run_set.throughput_method == ", ".join(expected["throughput_method"])
    rates = [throughput(read_log(Path(run.log_path or ""))) for run in run_set.runs if run.converged]
    assert same(mean_of(rates, "samples_per_s_steady"), expected["steady_throughput"], 1e-6)
    assert same(mean_of(rates, "samples_per_s_first_block"), expected["first_block_throughput"], 1e-6)
    assert same(mean_of(rates, "first_epoch_over_overall"), expected["first_epoch_over_overall"], 1e-6)


def mean_of(rates: list[Throughput], name: str) -> float | None:
    values = [getattr(item, name) for item in rates]
    return None if None in values else sum(values) / len(values)


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_system_description_equal_expected(name: str) -> None:
    expected, run_set = EXPECTED[name], imported(name)
    assert (run_set.round, run_set.org, run_set.system) == (
        expected["round"],
        expected["org"],
        expected["system_folder"],
    )
    described = expected["system"]
    assert run_set.division == described["division"]
    assert run_set.num_nodes == described["number_of_nodes"]
    assert run_set.num_accelerators == described["accelerators"]
    assert run_set.framework == described["framework"]
    system = run_set.description
    assert system is not None
    assert system.submitter == described["submitter"]
    assert system.status == described["status"]
    assert system.system_name == described["system_name"]
    assert system.accelerators_per_node == described["accelerators_per_node"]
    assert system.accelerator_model == described["accelerator_model_name"]
    assert system.host_processors_per_node == described["host_processors_per_node"]
    assert system.host_processor_model == described["host_processor_model_name"]
    for warning in described["warnings"]:
        assert any(warning in note.text for note in run_set.notes)


@pytest.mark.parametrize("name", SYSTEMS)
def test_published_system_reference_test_equal_expected(name: str) -> None:
    expected, run_set = EXPECTED[name], imported(name)
    ruleset = RULESETS[expected["round"]]
    assert rcp.applies(ruleset, run_set.division) is expected["rcp"]["applies"]
    if not expected["rcp"]["applies"]:
        assert run_set.rcp_factor is None
        return
    epochs = [run.epochs if run.converged else None for run in run_set.runs]
    found = rcp.convergence(epochs, batch_size=run_set.global_batch_size, ruleset=ruleset)
    assert found.passed is expected["rcp"]["pass"]
    assert found.basis.value == expected["rcp"]["how"]
    assert found.reference is not None
    assert found.reference.batch_size == expected["rcp"]["rcp_batch_size"]
    assert same(found.reference.mean_epochs, expected["rcp"]["rcp_mean_epochs"], 1e-9)
    assert same(found.reference.min_epochs, expected["rcp"]["rcp_min_epochs"], 1e-9)
    assert same(found.mean_epochs, expected["rcp"]["submission_mean_epochs"], 1e-9)
    assert same(found.factor, expected["rcp"]["factor"], 1e-9)
    assert run_set.rcp_factor == found.factor


def test_published_folder_holds_every_expected_system_and_nothing_else() -> None:
    folders = scan_tree(PUBLISHED).folders
    assert sorted(f"{item.round}/{item.org}/{item.system}" for item in folders) == sorted(EXPECTED)
