"""`mlbench plan` and `mlbench doctor` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlbench.cli.main import run_command
from mlbench.cli.plan import rank_map_lines
from mlbench.plan.types import Host, Placement

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)
    return tmp_path


def planned(capsys: Capture, *overrides: str) -> Any:
    assert run_command(["plan", *overrides, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plan_json_has_its_stable_keys(capsys: Capture, empty_folder: Path) -> None:
    value = planned(capsys)

    assert list(value) == [
        "system", "platform", "hardware", "storage", "device", "benchmark", "kind", "stages", "division", "ruleset",
        "repeats", "warmup_runs", "cache", "launcher", "container", "num_nodes", "num_ranks", "num_accelerators",
        "hosts_known", "hosts", "rank_map", "batch_per_rank", "gradient_accumulation_steps", "global_batch_size",
        "learning_rate", "model", "optimizer", "schedule", "threads_per_rank", "environment", "argv", "data",
        "mean_image_bytes", "storage_need_bytes_per_s", "storage_need_basis", "runs_dir", "time_estimate_s", "notes",
    ]  # fmt: skip
    assert (value["num_ranks"], value["num_accelerators"]) == (2, 0)
    assert list(empty_folder.iterdir()) == []


def test_plan_json_of_four_dgx_a100(capsys: Capture) -> None:
    value = planned(capsys, "+hardware=[dgxa100,f800]", "gpus=32")

    assert (value["num_nodes"], value["batch_per_rank"], value["learning_rate"]) == (4, 102, 6.0)
    assert value["rank_map"][31] == {"rank": 31, "node": 3, "host": "node-4", "local_rank": 7}
    assert value["argv"][value["argv"].index("-H") + 1] == "node-1:8,node-2:8,node-3:8,node-4:8"
    assert "NCCL_SOCKET_IFNAME" in value["argv"]


def test_plan_the_object_storage_run_of_the_paper(capsys: Capture) -> None:
    hosts = ",".join(f"dl-worker-0{number}:2" for number in range(1, 9))
    value = planned(
        capsys,
        "+hardware=[dss8440,ecs]",
        "gpus=16",
        "hardware.compute.gpus_per_node=2",
        "launcher=mpirun",
        f"hosts={hosts}",
    )
    argv = value["argv"]

    # Horovod over MPI: --host dl-worker-01:2,..., bind-to none, map-by slot, report bindings (object-storage test).
    assert argv[argv.index("-H") + 1] == hosts
    assert argv[argv.index("--bind-to") + 1] == "none"
    assert argv[argv.index("--map-by") + 1] == "slot"
    assert "--report-bindings" in argv
    assert value["environment"]["S3_USE_HTTPS"] == "0"


def test_plan_batch_without_reference_says_which_sizes_have_one(capsys: Capture) -> None:
    notes = planned(capsys, "+hardware=dgxa100", "gpus=4096")["notes"]

    assert any("no reference for batch 131072" in note and "3264" in note for note in notes)  # cases P49, D16
    assert not any("reference" in note for note in planned(capsys, "+hardware=dgxa100", "gpus=32")["notes"])


def test_plan_text_shows_what_people_ask_for(capsys: Capture) -> None:
    assert run_command(["plan", "+hardware=[dgxa100,f800]", "gpus=32"]) == 0
    text = capsys.readouterr().out

    for words in (
        "4 nodes, 32 ranks, 32 accelerators",
        "node-4: ranks 24-31",
        "3264 = 102 a rank x 32 ranks",
        "6 (sgd), warm-up 1965 steps",
        "9.023 GB/s",
        "Isilon F800 delivers up to 15 GB/s",
        "HOROVOD_CYCLE_TIME=0.1",
        "mpirun -np 32",
    ):
        assert words in text


def test_plan_text_sums_up_a_long_rank_map(capsys: Capture) -> None:
    assert run_command(["plan", "+hardware=dgxa100", "gpus=4096"]) == 0
    text = capsys.readouterr().out

    assert "... 504 nodes more, 8 ranks each ..." in text
    assert "node-300:8" not in text


def test_plan_multirun_shows_one_plan_for_each_value(capsys: Capture) -> None:
    assert run_command(["plan", "--multirun", "+hardware=dgxa100", "gpus=8,16,32", "--json"]) == 0

    values = json.loads(capsys.readouterr().out)
    assert [value["num_ranks"] for value in values] == [8, 16, 32]


def test_plan_path_of_user_is_shown_as_given_and_absolute(capsys: Capture, empty_folder: Path) -> None:
    assert run_command(["plan", "data.path=./d"]) == 0
    text = capsys.readouterr().out

    assert f"{empty_folder}/d" in text
    assert "given as ./d" in text


def test_plan_rehearsal_shows_its_own_command(capsys: Capture) -> None:
    value = planned(capsys, "launcher=rehearsal")

    assert "rehearsal" in value["argv"]
    assert any("never scored as real" in note for note in value["notes"])


def test_plan_profiles_lists_shipped_and_own(capsys: Capture, empty_folder: Path) -> None:
    own = empty_folder / "conf" / "hardware" / "ours.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("# @package hardware.compute\n# The box under the desk. Old.\nname: ours\n")

    assert run_command(["plan", "--profiles", "--json"]) == 0

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out) if row["group"] == "hardware"}
    assert {"dgxa100", "dss8440", "f800", "ecs", "ours"} <= set(rows)
    assert rows["ours"] == {"group": "hardware", "name": "ours", "about": "The box under the desk", "file": str(own)}


def test_rank_map_lines_one_rank_a_host() -> None:
    hosts = (Host(name="a", slots=1), Host(name="b", slots=2))

    assert rank_map_lines(Placement(hosts=hosts, ranks=(), known=True)) == ["a: rank 0", "b: ranks 1-2"]


def test_doctor_machine_without_the_gpus_is_status_2(capsys: Capture) -> None:
    assert run_command(["doctor", "+hardware=dgxa100", "gpus=32", "--json"]) == 2

    value = json.loads(capsys.readouterr().out)
    assert value["can_run"] is False
    checks = {check["check"]: check for check in value["checks"]}
    assert checks["hardware"]["outcome"] == "fail"
    assert set(checks["hardware"]) == {"check", "outcome", "required", "found", "remedy"}


def test_doctor_rehearsal_can_always_run(capsys: Capture, empty_folder: Path) -> None:
    assert run_command(["doctor", "launcher=rehearsal"]) == 0

    output = capsys.readouterr().out
    assert "This machine can run it." in output
    assert "not checked" in output
    assert list(empty_folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "limit_s"),
    [(["--help"], 0.3), (["plan"], 1.0), (["plan", "+hardware=dgxa100", "gpus=4096"], 2.0)],
    ids=["help", "plan", "plan of 4096 GPUs"],
)
def test_start_up_takes_little_processor_time(arguments: list[str], limit_s: float) -> None:
    """Processor time of the child, not wall time: the machine may be busy with other things."""
    code = "import sys, time\nfrom mlbench.cli.main import run_command\nrun_command(sys.argv[1:])\n"
    code += "print(time.process_time(), file=sys.stderr)\n"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )

    assert float(done.stderr.split()[-1]) < limit_s


@pytest.mark.parametrize("verb", [["plan"], ["plan", "--json"], ["doctor"], ["run"]], ids=" ".join)
def test_setting_given_twice_is_said_in_one_line(
    verb: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlbench.cli.run._single", lambda ready, as_json: 0)

    run_command([*verb, "gpus=2", "launcher=rehearsal", "gpus=1"])

    output = capsys.readouterr()
    assert output.err == "mlbench: gpus is given twice; the last, 1, counts\n"
    assert "given twice" not in output.out
