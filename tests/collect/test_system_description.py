from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlbench.collect.sysdesc import MAX_BYTES, SystemDescription, read_description
from mlbench.errors import InputError

PLAIN = {
    "submitter": "Lab",
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "sysA",
    "number_of_nodes": "2",
    "accelerators_per_node": "8",
    "accelerator_model_name": "A",
    "host_processors_per_node": "2",
    "host_processor_model_name": "P",
    "framework": "MXNet",
}


def described(tmp_path: Path, body: Any) -> SystemDescription:
    path = tmp_path / "sysA.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return read_description(path)


def said(description: SystemDescription) -> list[str]:
    return [note.text for note in description.notes]


def test_description_plain_is_read_without_a_note(tmp_path: Path) -> None:
    found = described(tmp_path, PLAIN)
    assert (found.submitter, found.division, found.number_of_nodes) == ("Lab", "closed", 2)
    assert (found.accelerators_per_node, found.framework) == (8, "MXNet")
    assert said(found) == []


@pytest.mark.parametrize(
    ("key", "written", "note"),
    [
        ("division", "divison", "misspelt key 'divison', read as 'division'"),
        ("number_of_nodes", "number of nodes", "odd key 'number of nodes', read as 'number_of_nodes'"),
        ("number_of_nodes", "Number-of-Nodes", "odd key 'Number-of-Nodes', read as 'number_of_nodes'"),
    ],
)
def test_description_odd_key_is_understood_and_noted(tmp_path: Path, key: str, written: str, note: str) -> None:
    body = {written if name == key else name: value for name, value in PLAIN.items()}
    found = described(tmp_path, body)
    assert str(getattr(found, key)) == PLAIN[key]
    assert said(found) == [note]


def test_description_well_spelt_key_wins_over_a_misspelt_one(tmp_path: Path) -> None:
    assert described(tmp_path, {"divison": "open", **PLAIN}).division == "closed"


def test_description_other_keys_are_not_taken_for_near_ones(tmp_path: Path) -> None:
    body = {**PLAIN, "accelerator_memory_capacity": "32 GB", "host_processor_core_count": "48"}
    del body["accelerators_per_node"]
    assert described(tmp_path, body).accelerators_per_node is None


@pytest.mark.parametrize("value", ["Closed ", "CLOSED"])
def test_description_division_in_other_case_is_understood(tmp_path: Path, value: str) -> None:
    assert described(tmp_path, {**PLAIN, "division": value}).division == "closed"


@pytest.mark.parametrize("value", ["half-open", 7, ["closed"]])
def test_description_division_that_is_none_is_unknown_and_noted(tmp_path: Path, value: Any) -> None:
    found = described(tmp_path, {**PLAIN, "division": value})
    assert found.division is None
    assert any("division is" in text for text in said(found))


@pytest.mark.parametrize(
    ("value", "expected"), [("16", 16), (16, 16), (1.0, 1), ("1.0", None), ("two", None), (True, None), ("N/A", None)]
)
def test_description_counts_are_numbers_or_unknown(tmp_path: Path, value: Any, expected: int | None) -> None:
    assert described(tmp_path, {**PLAIN, "number_of_nodes": value}).number_of_nodes == expected


def test_description_missing_division_is_noted(tmp_path: Path) -> None:
    body = {key: value for key, value in PLAIN.items() if key != "division"}
    assert said(described(tmp_path, body)) == ["no division"]


def test_description_with_byte_order_mark_and_crlf_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sysA.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(PLAIN, indent=2).replace("\n", "\r\n").encode())
    assert read_description(path).submitter == "Lab"


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 50_000, "not json"])
def test_description_no_json_object_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"sysA\.json"):
        described(tmp_path, text)


def test_description_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="larger than"):
        described(tmp_path, '{"a": "' + "x" * MAX_BYTES + '"}')
