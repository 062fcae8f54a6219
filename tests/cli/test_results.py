"""`mlbench results`: what is printed, what is JSON, and which status it ends with."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlbench.cli.main import run_command
from mlbench.cli.moments import parse_since
from mlbench.errors import InputError
from mlbench.store.engine import open_database
from mlbench.store.repository import save_run_set
from mlbench.store.tables import Hyperparameter
from tests.support.run_sets import STARTED, make_run, make_run_set

# design.md, section 5.
RUN_KEYS = [
    "index", "attempt", "status", "converged", "time_to_train_s", "epochs", "final_accuracy", "seed", "samples_per_s",
    "samples_per_s_first_epoch",
]  # fmt: skip


@pytest.fixture
def filled() -> None:
    db = open_database()
    save_run_set(db, make_run_set("set-a", olympic_mean_s=2190.0, num_runs=2))
    runs = [make_run(0, status="crashed", converged=False), make_run(0, attempt=1), make_run(0, warmup=True)]
    raw = make_run_set("set-b", score_s=None, score_status="raw", score_reason="1 run of 5 asked", runs=runs)
    raw.started_at = STARTED + timedelta(days=1)
    save_run_set(db, raw)


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    assert run_command(["results", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("reason", "text"), [(None, "simplejpeg"), ("native: not built", "simplejpeg (native: not built)")]
)
def test_show_tells_the_input_pipeline_that_the_runs_had(
    reason: str | None, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"input_pipeline": "simplejpeg", "input_pipeline_reason": reason}
    kept = [Hyperparameter(key=key, value=json.dumps(value)) for key, value in rows.items() if value is not None]
    save_run_set(open_database(), make_run_set("set-a", runs=[make_run(0, hyperparameters=kept)]))
    assert run_command(["results", "show", "set-a"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["input", text] in lines


def test_list_without_database_is_empty_and_no_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _json(capsys, "list") == []
    assert run_command(["results", "list"]) == 0
    assert "no run sets yet" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


def test_list_named_database_that_is_absent_is_a_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["results", "list", "--db", str(tmp_path / "absent.sqlite")]) == 2
    assert "there is no database yet" in capsys.readouterr().err


@pytest.mark.usefixtures("filled")
def test_list_json_has_the_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "list")
    assert isinstance(found, list)
    assert [(row["run_set"], row["score_s"], row["score_status"]) for row in found] == [
        ("set-b", None, "raw"),
        ("set-a", 2190.0, "valid"),
    ]
    assert _json(capsys, "list", "--status", "valid", "--since", "2024-05-01") == found[1:]


@pytest.mark.usefixtures("filled")
def test_list_table_shows_a_score_only_when_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", "list"]) == 0
    out = capsys.readouterr().out
    assert "2190.000" in next(line for line in out.splitlines() if "set-a" in line)
    line = next(line for line in out.splitlines() if "set-b" in line)
    assert "raw (1)" in line
    assert "2190" not in line
    assert "(1) raw, not a score: 1 run of 5 asked" in out


@pytest.mark.usefixtures("filled")
def test_list_table_fits_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlbench.cli.console.PIPE_WIDTH", 80)
    name = "v1.0/Dell/DSS8440x8A100-PCIE-40GB/resnet"
    save_run_set(open_database(), make_run_set(name, system="DSS8440x8A100-PCIE-40GB"))
    assert run_command(["results", "list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.usefixtures("filled")
def test_list_says_when_there_are_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", "list", "--limit", "1"]) == 0
    assert "the newest 1 of 2 run sets" in capsys.readouterr().out


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--status", "good"], "expected one of valid, invalid, raw"),
        (["list", "--origin", "x"], "expected one of run, import"),
        (["list", "--since", "yesterday"], "expected a date as 2024-05-01"),
        (["list", "--limit", "0"], "--limit"),
        (["show", "nope"], "not in the database"),
        (["query", "DELETE FROM run"], "may only read"),
        (["export", "--format", "xls"], "expected one of csv, json, parquet"),
        (["export", "--rows", "run"], "did you mean 'runs'"),
        (["export", "set-a"], "goes with --bundle"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_command(["results", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("filled")
def test_show_json_has_the_keys_of_the_design(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "show", "set-b")
    assert isinstance(found, dict)
    listed = _json(capsys, "list")
    assert isinstance(listed, list)
    assert list(found) == [*listed[0], "olympic_mean_s", "scaling_factor", "rcp_factor", "runs"]
    assert [list(run) for run in found["runs"]] == [RUN_KEYS] * 2
    assert [(run["attempt"], run["status"]) for run in found["runs"]] == [(0, "crashed"), (1, "success")]


@pytest.mark.usefixtures("filled")
def test_show_full_adds_what_else_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "show", "set-b", "--full")
    assert isinstance(found, dict)
    assert len(found["warmups"]) == 1
    assert found["hosts"] == {"a": {"kernel": "5.3.0"}}
    assert found["allreduce"][0]["size_bytes"] == 2**33


@pytest.mark.usefixtures("filled")
def test_show_tells_formula_attempts_stages_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", "show", "set-a"]) == 0
    out = capsys.readouterr().out
    assert "Score 2190.000 s (36.500 min): olympic mean, 2 of 2 runs converged." in out
    assert "peak bus bandwidth 1.750 GB/s at 8589934592 bytes, 0 wrong values" in out
    assert "Storage, sequential reads, fio, direct, all hosts: 1.000 GB/s" in out
    assert "note: result_0.txt:3: an oddity" in out


@pytest.mark.usefixtures("filled")
def test_show_escapes_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    save_run_set(
        open_database(), make_run_set("evil", system=evil, score_status="raw", score_reason=evil, score_s=None)
    )
    for verb in (["list"], ["show", "evil"], ["query", "SELECT system FROM run_set"]):
        assert run_command(["results", *verb]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b" in out


@pytest.mark.usefixtures("filled")
def test_query_json_names_repeated_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "query", "SELECT 1 AS x, 2 AS x, 9e999 AS y, x'00ff' AS z") == [
        {"x": 1, "x_2": 2, "y": None, "z": "00ff"}
    ]


@pytest.mark.usefixtures("filled")
def test_query_truncated_says_so_beside_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", "query", "SELECT run_set FROM run_set", "--limit", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 1
    assert "the first 1 row;" in captured.err


@pytest.mark.usefixtures("filled")
def test_export_writes_a_whole_file_or_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    assert run_command(["results", "export", "--rows", "runs", "--out", str(out)]) == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    assert [row["run_set"] for row in rows].count("set-b") == 3
    assert run_command(["results", "export", "--out", str(tmp_path / "no" / "x.csv")]) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["x.csv"]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("option", ["--out", "--bundle"])
def test_export_to_a_pipe_or_device_is_refused_and_leaves_it(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run_command(["results", "export", option, str(pipe)]) == 2
    assert "device or pipe, expected the name of a file" in capsys.readouterr().err
    assert pipe.is_fifo()


@pytest.mark.usefixtures("filled")
def test_export_to_a_link_writes_where_it_leads(tmp_path: Path) -> None:
    link = tmp_path / "newest.csv"
    link.symlink_to(tmp_path / "a.csv")
    assert run_command(["results", "export", "--out", str(link)]) == 0
    assert link.is_symlink()
    assert (tmp_path / "a.csv").read_text().startswith("run_set,")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--limit", "99999999999999999999"),
        ("query", "select 1", "--limit", "9223372036854775807"),
        ("export", "--limit", "99999999999999999999"),
        ("show", "latest~99999999999999999999"),
    ],
)
def test_number_that_no_database_can_count_is_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["results", *arguments]) == 2
    assert capsys.readouterr().err.startswith("mlbench: ")


NOW = datetime(2024, 5, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024-05-01T09:30", datetime(2024, 5, 1, 9, 30, tzinfo=UTC)),
        ("2024-05-01T09:30+02:00", datetime(2024, 5, 1, 7, 30, tzinfo=UTC)),
        ("12h", datetime(2024, 5, 8, tzinfo=UTC)),
        ("7d", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("1w", datetime(2024, 5, 1, 12, tzinfo=UTC)),
    ],
)
def test_since_takes_dates_and_spans(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "7", "d", "999999w", "2024-13-01", "-1d"])
def test_since_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--since"):
        parse_since(text, NOW)
