"""The reference is complete and true: every key of the schema with its default, every command in it works."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from mlbench.cli.main import run_command
from mlbench.compose import compose
from mlbench.config import Config
from mlbench.overrides import Schema

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
PROFILES = (ROOT / "docs" / "howto" / "profiles.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(?P<key>[a-z0-9_.]+)` \| (?P<rest>.*) \|$", re.MULTILINE)
EVERY_KEY = REFERENCE.partition("## Every key")[2]


def shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def value_at(config: Config, key: str) -> str:
    node: Any = config
    for word in key.split("."):
        node = getattr(node, word)
    return shown(node)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)


def test_reference_names_every_key_of_the_schema_and_no_other() -> None:
    schema = Schema(Config)
    leaves = {key for key in schema.every_key() if (node := schema.find(key)) is not None and node.children is None}

    assert {match["key"] for match in ROW.finditer(EVERY_KEY)} == leaves


def test_reference_shows_the_defaults_that_composition_gives() -> None:
    digits, imagenet = compose(), compose(["data=imagenet"])

    for match in ROW.finditer(EVERY_KEY):
        key, cells = match["key"], match["rest"].split(" | ")
        if key.startswith("hardware."):
            continue
        assert cells[1] == f"`{value_at(digits, key)}`", key
        if key.startswith(("data.", "training.")):
            assert cells[2] == f"`{value_at(imagenet, key)}`", key


def test_reference_lists_every_choice_of_a_key() -> None:
    schema = Schema(Config)
    takes = {match["key"]: match["rest"].split(" | ")[0] for match in ROW.finditer(EVERY_KEY)}

    for key, cell in takes.items():
        node = schema.find(key)
        if node is not None and isinstance(node.type, type) and issubclass(node.type, Enum):
            assert cell == node.expected, key


REFUSALS = re.findall(r"^    \$ mlbench (.*)\n    mlbench: (.*)$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize(("arguments", "sentence"), REFUSALS, ids=[arguments for arguments, _ in REFUSALS])
def test_reference_refusal_reads_as_printed(arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments.split()) == 2
    assert capsys.readouterr().err == f"mlbench: {sentence}\n"


def blocks() -> dict[str, str]:
    """The YAML examples of the how-to by the name of the system they describe."""
    found = re.findall(r"```yaml\n(.*?)```", PROFILES, re.DOTALL)
    return {match[1]: text for text in found if (match := re.search(r"^ *name: (\w+)$", text, re.MULTILINE))}


@pytest.mark.parametrize("overrides", [["+hardware=lab"], ["+hardware=dgxa100_80gb"], ["+hardware=[lab,nas]"]], ids=str)
def test_profile_of_the_how_to_composes(overrides: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "hardware"
    folder.mkdir(parents=True)
    for name, text in blocks().items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    config = compose(overrides)

    assert config.data.name == "imagenet"
    assert (config.hardware.storage is not None) == ("nas" in overrides[0])


def test_submission_of_the_how_to_composes(tmp_path: Path) -> None:
    (text,) = [text for text in re.findall(r"```yaml\n(.*?)```", PROFILES, re.DOTALL) if text.startswith("org:")]
    (tmp_path / "conf" / "submission").mkdir(parents=True)
    (tmp_path / "conf" / "submission" / "ours.yaml").write_text(text, encoding="utf-8")

    assert compose(["submission=ours"]).submission.org == "LabX"
