from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from mlbench.analyse.rcp import RcpBasis
from mlbench.check import rcp
from mlbench.collect.tree import scan_tree
from mlbench.ingest.published import import_folder
from tests.support.run_logs import base_set

RESNET_RULESETS = ["1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0"]


def test_references_batch_3264_are_those_of_the_rules() -> None:
    # cases.md, section 3: 35.1538 epochs on average, 34.3096 accepted
    for ruleset in RESNET_RULESETS[2:]:
        points = {point.batch_size: point for point in rcp.reference_points(ruleset)}
        assert points[3264].mean_epochs == pytest.approx(35.1538, abs=5e-5)
        assert points[3264].min_epochs == pytest.approx(34.3096, abs=5e-5)


def test_references_ruleset_4_0_has_the_ten_batch_sizes_of_its_file() -> None:
    sizes = [point.batch_size for point in rcp.reference_points("4.0.0")]
    # facts.md: reference batch sizes of ruleset 4.0.0
    assert sizes == [1632, 3264, 4096, 8192, 13056, 32768, 49152, 58880, 65536, 67840]


@pytest.mark.parametrize("ruleset", ["0.7.0", "4.1.0", "9.9.9", "4", "../4.0.0", "v4.0.0"])
def test_references_of_a_ruleset_without_resnet_are_none(ruleset: str) -> None:
    assert rcp.reference_points(ruleset) == ()
    result = rcp.convergence([35.0] * 5, batch_size=3264, ruleset=ruleset)
    assert result.basis is RcpBasis.none
    assert (result.passed, result.factor) == (None, None)
    assert "has no reference points" in (rcp.refusal(result, batch_size=3264, ruleset=ruleset) or "")


def test_base_set_factor_is_the_reference_over_35_epochs() -> None:
    result = rcp.convergence([35.0] * 5, batch_size=3264, ruleset="4.0.0")
    assert result.basis is RcpBasis.found
    assert result.factor == pytest.approx(1.0043956044, abs=5e-11)  # cases.md, section 4
    assert 36.5 * (result.factor or 0) == pytest.approx(36.66044, abs=5e-6)
    assert rcp.refusal(result, batch_size=3264, ruleset="4.0.0") is None


def test_batch_2048_is_interpolated() -> None:
    result = rcp.convergence([35.0] * 5, batch_size=2048, ruleset="4.0.0")
    assert result.basis is RcpBasis.interpolated
    assert result.factor == pytest.approx(1.00112, abs=5e-6)  # cases.md, D16
    assert 36.5 * (result.factor or 0) == pytest.approx(36.54090, abs=5e-6)


def test_batch_131072_has_no_reference_and_no_factor() -> None:
    result = rcp.convergence([35.0] * 5, batch_size=131_072, ruleset="4.0.0")  # cases.md, D16
    assert result.basis is RcpBasis.missing
    assert (result.passed, result.factor) == (None, None)
    said = rcp.refusal(result, batch_size=131_072, ruleset="4.0.0")
    assert said == "no reference for batch 131072 in ruleset 4.0.0"


def test_unknown_or_mixed_batch_size_is_not_passed() -> None:
    assert rcp.convergence([35.0] * 5, batch_size=None, ruleset="4.0.0").passed is None


def test_too_fast_convergence_fails_with_both_numbers() -> None:
    result = rcp.convergence([30.0] * 5, batch_size=3264, ruleset="4.0.0")
    assert result.passed is False
    said = rcp.refusal(result, batch_size=3264, ruleset="4.0.0") or ""
    assert said.startswith("30 epochs on average, at least 34.3096 expected at batch 3264")


def test_one_lost_run_is_the_slowest_two_cannot_be_judged() -> None:
    one = rcp.convergence([35.0, None, 35.0, 35.0, 35.0], batch_size=3264, ruleset="4.0.0")
    assert one.mean_epochs == 35.0
    two = rcp.convergence([35.0, None, None, 35.0, 35.0], batch_size=3264, ruleset="4.0.0")
    assert (two.passed, two.factor) == (None, None)
    assert "too few" in (rcp.refusal(two, batch_size=3264, ruleset="4.0.0") or "")


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (3264, None),
        (2048, "interpolated"),
        (64, "below the smallest reference"),
        (131_072, "so no score"),
    ],
)
def test_plan_note_names_the_references(batch: int, words: str | None) -> None:
    said = rcp.plan_note(batch, "4.0.0")
    assert (said is None) if words is None else (words in (said or ""))


@pytest.mark.parametrize(
    ("ruleset", "division", "tested", "normalised"),
    [
        ("0.7.0", "closed", False, False),
        ("1.0.0", "closed", True, False),
        ("2.0.0", "closed", True, False),
        ("2.1.0", "closed", True, True),
        ("4.0.0", "closed", True, True),
        ("4.0.0", "open", False, False),
        (None, "closed", False, False),
    ],
)
def test_when_the_test_and_the_factor_apply(ruleset: str | None, division: str, tested: bool, normalised: bool) -> None:
    assert rcp.applies(ruleset, division) is tested
    assert rcp.normalises(ruleset, division) is normalised


@pytest.mark.slow
@pytest.mark.parametrize("ruleset", RESNET_RULESETS)
@pytest.mark.parametrize(
    ("batch", "epochs"),
    [(256, 33), (256, 35), (2048, 35), (3264, 34), (3264, 35), (5000, 37), (20_000, 60), (67_840, 85), (131_072, 90)],
)
def test_result_equals_the_official_checker(tmp_path: Path, ruleset: str, batch: int, epochs: int) -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    # the official checker reads records it knows; it writes scaling.json only when asked to
    base_set(tmp_path, batch=batch, epochs=epochs)
    logging.disable(logging.CRITICAL)
    try:
        passed, message, factor = rcp_checker.check_directory(
            str(tmp_path), "training", ruleset, False, False, rcp_pass="pruned_rcps"
        )
    finally:
        logging.disable(logging.NOTSET)
    found = rcp.convergence([float(epochs)] * 5, batch_size=batch, ruleset=ruleset)
    assert bool(found.passed) is bool(passed), message
    if found.basis is RcpBasis.missing:
        assert message.startswith("Missing RCP")
    else:
        assert found.factor == pytest.approx(float(factor), rel=1e-12)


@pytest.mark.slow
@pytest.mark.published
@pytest.mark.parametrize(
    ("system", "ruleset"),
    [
        ("v1.0/Dell/results/DSS8440x8A100-PCIE-40GB", "1.0.0"),
        ("v1.0/NVIDIA/results/dgxa100_ngc21.05_mxnet", "1.0.0"),
        ("v2.0/Dell/results/DSS8440x8xA30-NVBRIDGE", "2.0.0"),
        ("v3.1/Dell/results/XE9680x8H100-SXM-80GB", "3.1.0"),
    ],
)
def test_published_set_is_judged_as_by_the_official_checker(
    tmp_path: Path, published: Path, system: str, ruleset: str
) -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    copy = tmp_path / "resnet"
    shutil.copytree(published / system / "resnet", copy)
    run_set = import_folder(scan_tree(copy).folders[0]).run_sets[0]
    epochs = [run.epochs if run.converged else None for run in run_set.runs]
    found = rcp.convergence(epochs, batch_size=run_set.global_batch_size, ruleset=ruleset)
    logging.disable(logging.CRITICAL)
    try:
        passed, message, factor = rcp_checker.check_directory(
            str(copy), "training", ruleset, False, False, rcp_pass="pruned_rcps"
        )
    finally:
        logging.disable(logging.NOTSET)
    assert bool(found.passed) is bool(passed), message
    assert found.factor == pytest.approx(float(factor), rel=1e-12)


@pytest.mark.published
def test_references_equal_the_published_copies(published: Path) -> None:
    for ruleset in RESNET_RULESETS:
        body = json.loads((published / "rcps" / ruleset / "rcps_resnet.json").read_text(encoding="utf-8"))
        assert sorted(item["BS"] for item in body.values()) == [
            point.batch_size for point in rcp.reference_points(ruleset)
        ]
