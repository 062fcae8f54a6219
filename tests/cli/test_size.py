"""`mlbench size`: the papers' numbers, the limits, what is not known, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlbench.cli.main import run_command

DGX = "+hardware=[dgxa100,f800]"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sized(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run_command(["size", *arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_white_papers_32_gpus_need_nine_gigabytes_a_second_and_one_chassis(capsys: pytest.CaptureFixture[str]) -> None:
    # White paper: 78,454 images/s x 115 KB = 9.02 GB/s; one F800 chassis delivers 15 GB/s.
    found = sized(capsys, DGX, "gpus=32", "--headroom", "0")
    assert found["bytes_per_s"] == pytest.approx(78_454 * 115e3, rel=1e-3)
    assert (found["units"], found["limiting"], found["unit"]) == (1, "throughput", "chassis")
    assert found["limits"][0]["use"] == pytest.approx(9.02 / 15, rel=1e-2)
    assert found["feasible"] is True
    assert found["num_nodes"] == 4


def test_need_is_linear_in_gpus_and_headroom(capsys: pytest.CaptureFixture[str]) -> None:
    small = sized(capsys, DGX, "gpus=8", "--headroom", "0")
    large = sized(capsys, DGX, "gpus=64", "--headroom", "50")
    assert large["bytes_per_s"] == pytest.approx(small["bytes_per_s"] * 8 * 1.5)
    assert [point["num_gpus"] for point in small["curve"]] == [8, 16, 32]


def test_next_chassis_is_asked_for_where_one_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    # 64 GPUs: 18.04 GB/s without headroom, more than the 15 GB/s of one chassis.
    assert sized(capsys, DGX, "gpus=64", "--headroom", "0")["units"] == 2


def test_small_files_are_limited_by_operations(capsys: pytest.CaptureFixture[str]) -> None:
    # One image an operation: 15 GB/s would be 130,435/s, below the chassis' 250,000, so throughput stays the limit at
    # 115 KB; at 30 KB the same chassis runs out of operations first.
    assert sized(capsys, DGX, "gpus=32", "--file-per-image")["limiting"] == "throughput"
    found = sized(capsys, DGX, "gpus=32", "--file-per-image", "data.mean_image_bytes=30000", "--rate", "20000")
    assert found["limiting"] == "operations"
    assert found["units"] == 4  # 32 x 20,000 x 1.2 / 250,000 = 3.07


@pytest.mark.parametrize(("model", "images_per_s"), [("alexnet", 7095), ("resnet50", 2940), ("vgg16", 1590)])
def test_models_differ_as_in_the_ready_solutions_guide(
    capsys: pytest.CaptureFixture[str], model: str, images_per_s: float
) -> None:
    base = sized(capsys, DGX, "gpus=8", "--model", "resnet50")["samples_per_s_per_gpu"]
    found = sized(capsys, DGX, "gpus=8", "--model", model)
    assert found["samples_per_s_per_gpu"] / base == pytest.approx(images_per_s / 2940)


def test_guides_own_check_of_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    # Ready Solutions guide: 2940 images/s x 0.113 MB x 8 = 2658 Mb/s.
    arguments = ("gpus=1", "hardware.compute.gpus_per_node=1", "--rate", "2940", "data.mean_image_bytes=113000")
    found = sized(capsys, DGX, *arguments, "--headroom", "0")
    assert found["bytes_per_s"] * 8 / 1e6 == pytest.approx(2658, abs=1)


def test_data_set_that_fits_loads_storage_in_the_first_epoch_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert sized(capsys, DGX, "gpus=32")["cached_after_first_epoch"] is True
    # Ten copies, as in the guide: 1,448 GB in 1 TB of memory.
    assert sized(capsys, DGX, "gpus=32", "--dataset-gb", "1448.28")["cached_after_first_epoch"] is False


def test_cluster_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    # 63 chassis deliver 945 GB/s.
    found = sized(capsys, DGX, "gpus=8000", status=4)
    assert found["units"] > 63
    assert found["feasible"] is False


def test_node_links_can_be_what_is_too_small(capsys: pytest.CaptureFixture[str]) -> None:
    found = sized(capsys, DGX, "gpus=8", "--rate", "60000", status=4)
    assert found["node_link_use"] > 1
    assert found["units"] is not None
    assert found["units"] <= 63


def test_endpoint_whose_rate_nobody_knows_gives_no_answer_until_it_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("+hardware=[dss8440,ecs]", "gpus=16", "hardware.compute.gpus_per_node=2")
    found = sized(capsys, *arguments, "--rate", "400", status=4)
    assert found["units"] is None
    assert found["limiting"] is None
    assert "throughput" in found["unknown"]
    # 16 x 400 x 115 KB x 1.2 = 0.883 GB/s over endpoints of 0.5 GB/s.
    found = sized(capsys, *arguments, "--rate", "400", "--endpoint-gb-per-s", "0.5")
    assert (found["units"], found["unit"], found["limiting"]) == (2, "endpoint", "throughput")


def test_answer_is_told_in_words_with_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["size", DGX, "gpus=32"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1] == "1 chassis (4 nodes), limited by throughput."
    assert any("78,454 images/s over 32 GPUs" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "begins"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_plot_is_saved(tmp_path: Path, ending: str, begins: bytes) -> None:
    assert run_command(["size", DGX, "gpus=32", "--plot", f"need{ending}"]) == 0
    assert (tmp_path / f"need{ending}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["+hardware=dgxa100"], "a compute and a storage profile are needed"),
        ([DGX, "--rate", "0"], "found --rate 0, expected samples/s above 0"),
        ([DGX, "--rate", "5", "--from", "x"], "--rate and --from both name a rate"),
        ([DGX, "--headroom", "-1"], "found gpus=8 and headroom -1 %"),
        ([DGX, "--model", "inception4"], "has no rate for inception4"),
        ([DGX, "--endpoint-gb-per-s", "1"], "--endpoint-gb-per-s takes a rate above 0, for an S3 storage profile"),
        ([DGX, "--plot", "need.gif"], "found the ending '.gif', expected one of .svg, .png, .pdf, .html"),
        ([DGX, "data.mean_image_bytes=null"], "has no mean_image_bytes"),
    ],
)
def test_what_cannot_be_sized_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run_command(["size", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_mean_image_of_a_set_that_states_none_comes_from_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (DGX, "gpus=8", "data=digits", "data.path=set", "--rate", "2000", "--headroom", "0")
    assert run_command(["size", *asked]) == 2
    assert "digits has no mean_image_bytes, and its record files are not here" in capsys.readouterr().err

    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.rec").write_bytes(bytes(640 * 1100))  # 640 images train
    found = sized(capsys, *asked)
    assert found["mean_sample_bytes"] == 1100
    assert found["bytes_per_s"] == pytest.approx(8 * 2000 * 1100)
