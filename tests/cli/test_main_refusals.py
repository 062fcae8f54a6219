"""Bad input of `mlbench`: one sentence, status 2, nothing launched and nothing written (issue of the main job, D14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.cli.main import run_command

REFUSED = [
    (["+hardware=dgxb200"], "unknown hardware profile 'dgxb200'"),
    (["hardware=dgxa100"], "write +hardware=dgxa100"),
    (["+hardware=dgx-a100"], "did you mean 'dgxa100'?"),
    (["training=fast"], "training is a section"),
    (["gpsu=2"], "did you mean 'gpus'?"),
    (["gpus=0"], "expected a whole number of at least 1"),
    (["gpus=two"], "expected a whole number"),
    (["gpus=8,16"], "add --multirun"),
    (["+hardware=dgxa100", "gpus=12"], "the nearest counts are 8 and 16"),
    (["hardware.compute.gpus_per_node=2"], "no profile has filled hardware.compute"),
    (["repeats=0"], "repeats=0"),
    (["submission.division=closed", "repeats=4"], "the closed division scores 5 runs"),
    (["data.path=/nowhere", "data=imagenet"], "the data folder /nowhere is not there"),
    (["runs_dir=/proc/mlbench"], "/proc/mlbench cannot be written"),
    (["+hardware=dgxa100", "gpus=32"], "here is"),
    (["launcher.python=/nowhere/python"], "/nowhere/python cannot be started"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_run_bad_input_is_one_sentence_and_launches_nothing(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)

    assert run_command(arguments) == 2

    output = capsys.readouterr()
    assert sentence in output.err
    assert output.err.startswith("mlbench: ")
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []
