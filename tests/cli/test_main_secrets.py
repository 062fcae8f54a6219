"""No message about an override tells the value of a secret, wherever the mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.cli.main import run_command

KEY = "hardware.compute.environment.AWS_SECRET_ACCESS_KEY"
GPU = "+hardware=dgxa100"
REFUSED = [
    # What a secret really looks like: Base64, which Hydra cannot read without quotes.
    ([f"{KEY}=hunter2/+=="], "cannot be read"),
    ([f"{KEY}=hunter2,other"], "found several values (***)"),
    ([f"{KEY}=hunter2"], "no profile has filled"),
    ([f"~{KEY}=hunter2"], "cannot be taken away"),
    ([f"{KEY}@pack=hunter2"], "has no plain key"),
    ([GPU, f"{KEY}=[hunter2,1]"], "expected a text"),
    ([GPU, f"{KEY}=hunter2", "gpuss=8"], "did you mean 'gpus'?"),
    ([GPU, f"{KEY}=hunter2", "gpus=12"], "the nearest counts are 8 and 16"),
    (["hardware.compute={environment:{AWS_SECRET_ACCESS_KEY:hunter2}}"], "is a section"),
    (["hardware.compute.environment={AWS_SECRET_ACCESS_KEY:hunter2=}"], "cannot be read"),
    (["+hardware={AWS_SECRET_ACCESS_KEY:hunter2}"], "unknown hardware profile '***'"),
    (["+gpus={token:hunter2}"], "gpus exists already"),
    (["AWS_SECRET_ACCESS_KEY:hunter2"], "is neither a verb"),
    (["gpus=2", "AWS_SECRET_ACCESS_KEY:hunter2"], "is not an override"),
    (["db.url=postgresql://u:hunter2@h/d,e"], "found several values (***)"),
    (["db.url=postgresql://u:hunter2@h/{d"], "cannot be read"),
    (["results", "list", f"{KEY}=hunter2"], "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refusal_of_an_override_never_tells_a_secret(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command(arguments) == 2

    output = capsys.readouterr()
    assert sentence in output.err
    assert "hunter2" not in output.err + output.out


def test_plan_of_several_points_never_tells_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command(["plan", "--multirun", GPU, "gpus=8,16", f"{KEY}=hunter2"]) == 0

    output = capsys.readouterr()
    assert f"Point 2 of 2: +hardware=dgxa100 gpus=16 '{KEY}=***'" in output.out
    assert "hunter2" not in output.err + output.out
