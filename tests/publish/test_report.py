"""The report as data, as page, as Markdown and as a folder."""

from __future__ import annotations

import csv
import html
import io
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mlbench.errors import ConfigError
from mlbench.publish.charts import PlotFormat
from mlbench.publish.report import (
    Built,
    Material,
    RunTelemetry,
    build_report,
    candidates,
    mean_sample_bytes,
    not_checked,
    refuse_foreign,
    write_folder,
)
from mlbench.publish.report.blocks import Report, TableBlock, Text
from mlbench.publish.report.build import describe
from mlbench.publish.report.csv_files import csv_files
from mlbench.publish.report.page import markdown_text, readable
from mlbench.publish.report.telemetry import consistency_of
from mlbench.publish.report.words import badges, verdict_of
from mlbench.store.tables import Hyperparameter, NoteRow, RunSet
from tests.support.report_sets import full_run_set

MADE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = "</script><img src=x onerror=alert(1)> | [a](javascript:b) `c`"


def material(run_set: RunSet, *, telemetry: bool = True) -> Material:
    runs = candidates(run_set)
    shown = RunTelemetry(run=runs[0], series=runs[0].telemetry) if telemetry and runs else None
    return Material(
        run_set=run_set,
        compliance=not_checked("a test"),
        telemetry=shown,
        telemetry_reason="no run of this set recorded telemetry",
        sizing=None,
        sizing_reason="no storage profile is known",
    )


def described(*run_sets: RunSet) -> Report:
    return describe([material(run_set) for run_set in run_sets], made_at=MADE, command="mlbench report x --out y")


def small(name: str = "small", **changes: Any) -> RunSet:
    return full_run_set(name, num_points=40, **changes)


@pytest.fixture(scope="module")
def bare() -> Built:
    """The quickest report there is: an imported set with hostile words and nothing to draw."""
    run_set = small(
        "v0/Org/bare/resnet", origin="import", round="v0", allreduce=[], storage=[], runs=[], system=f"S {HOSTILE}",
        score_status="raw", score_s=None, score_reason=HOSTILE, path=f"/tmp/{HOSTILE}",
    )  # fmt: skip
    run_set.notes = [NoteRow(severity="warning", rule="R", file=HOSTILE, line=3, text=f"{HOSTILE}\x1b[31m\u202e")]
    return build_report([material(run_set)], formats=(), made_at=MADE, command=f"mlbench report '{HOSTILE}'")


def tables(report: Report) -> dict[str, TableBlock]:
    return {block.title: block for item in report.sections for block in item.blocks if isinstance(block, TableBlock)}


def texts(report: Report) -> list[str]:
    return [block.text for item in report.sections for block in item.blocks if isinstance(block, Text)]


def test_summary_and_verdict_come_first_and_sections_keep_their_order() -> None:
    report = described(small())
    assert [section.key for section in report.sections] == [
        "summary", "throughput", "runs", "accuracy", "allreduce", "storage", "telemetry", "consistency",
        "findings", "materials", "software", "provenance", "repeat",
    ]  # fmt: skip
    assert report.missing == [("Storage demand and supply", "no storage profile is known")]
    assert [figure.key for figure in report.figures][:3] == ["throughput", "epochs", "spread"]


def test_input_pipeline_is_a_fact_with_its_reason_and_no_setting() -> None:
    run_set = small()
    for run in run_set.runs:
        run.hyperparameters += [
            Hyperparameter(key="input_pipeline", value='"simplejpeg"'),
            Hyperparameter(key="input_pipeline_reason", value='"native: not built"'),
        ]
    found = tables(described(run_set))
    rows = [row for table in found.values() for row in table.rows if "simplejpeg" in str(row)]
    assert rows == [["input pipeline", "simplejpeg (native: not built)"]]


def test_score_is_told_with_its_formula_and_n_of_n() -> None:
    # cases.md section 1: Dell v1.0, olympic mean 36.37003 min.
    run_set = small(score_s=2182.202, olympic_mean_s=2182.202, mean_s=2182.6, min_s=2180.3, max_s=2186.2, cv=0.00101)
    verdict = verdict_of(run_set, None)
    assert verdict.headline == "score 36.370 min"
    assert verdict.details[:2] == [
        "Score = olympic mean 2182.202 s (mean of 3 of 5 runs, fastest and slowest dropped).",
        "5 good of 5 asked.",
    ]
    run_set.scaling_factor = 1.00112
    run_set.score_s = 2182.202 * 1.00112
    assert verdict_of(run_set, "A").headline == "A: score 36.411 min"
    assert "× 1.00112 (scaling.json of the round's reviewers) = 2184.646 s." in verdict_of(run_set, None).details[0]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ["measured here", "score", "cold cache", "5 good of 5 asked"]),
        ({"cache": "warm", "score_status": "raw"}, ["RAW, not a score", "WARM CACHE"]),
        ({"cache": None}, ["cache state not known"]),
        ({"rehearsal": True, "score_status": "raw"}, ["REHEARSAL", "RAW, not a score"]),
        ({"score_status": "invalid", "num_converged": 3}, ["INVALID, no score", "3 good of 5 asked"]),
        ({"origin": "import", "round": "v1.0", "repeats_asked": None}, ["imported, v1.0", "5 good of 5 asked"]),
    ],
)
def test_badges_tell_at_a_glance(changes: dict[str, Any], wanted: list[str]) -> None:
    found = [badge.text for badge in badges(small(**changes))]
    assert set(wanted) <= set(found)


def test_set_without_a_score_says_why_and_shows_the_mean_as_information() -> None:
    verdict = verdict_of(small(score_status="raw", score_s=None, score_reason="warm cache", olympic_mean_s=700.0), None)
    assert verdict.headline == "raw, not a score"
    assert verdict.details[0] == "Why: warm cache."
    assert "Olympic mean, for information: 11.667 min." in verdict.details


def test_stage_alone_is_a_measurement_and_no_failed_benchmark() -> None:
    report = described(small(runs=[], allreduce=[], benchmark="storage", score_status="raw", score_s=None, num_runs=0))
    assert report.verdicts[0].headline == "storage measured"
    assert [badge.text for badge in report.badges] == ["measured here", "a measurement, no training"]
    assert "Runs" not in tables(report)
    assert ("Run-to-run spread", "no run came to its end, so there is no time to train") in report.missing


def test_rehearsal_has_a_banner_and_no_plot_beside_real_runs() -> None:
    rehearsal = small("try", rehearsal=True, score_status="raw", system="DSS8440")
    assert described(rehearsal).banner == "REHEARSAL: nothing was trained; no number of it is a result"
    report = described(small(), rehearsal)
    assert report.banner is not None
    assert "DSS8440" in report.banner
    assert any(title == "DSS8440 beside the others" for title, _ in report.missing)
    throughput = next(figure for figure in report.figures if figure.key == "throughput")
    assert "DSS8440" not in throughput.alt
    assert any("not compared; one is a rehearsal" in text for text in texts(report))


def test_run_table_tells_warm_from_cold_and_what_enters_the_mean() -> None:
    run_set = small()
    run_set.runs[2].cache_clear = False
    run_set.runs[3].cache_clear = None
    table = tables(described(run_set))["Runs"]
    column = list(table.columns).index("cache")
    assert [row[column] for row in table.rows] == ["cold", "cold", "WARM", None, "cold"]
    assert sorted(row[-1] or "" for row in table.rows) == ["dropped", "dropped", "yes", "yes", "yes"]


def test_earlier_attempts_and_warm_ups_stand_in_the_table_and_not_in_the_mean() -> None:
    run_set = small()
    again = small("again").runs
    again[0].attempt, again[1].warmup = 1, True
    run_set.runs = [run_set.runs[0], again[0], *run_set.runs[1:], again[1]]
    said = {row[0]: row[-1] for row in tables(described(run_set))["Runs"].rows}
    assert said["0"] == "no, an earlier attempt"
    assert said["0, attempt 1"] in ("yes", "dropped")
    assert said["warm-up 1"] == "no, warm-up"


def test_consistency_uses_the_first_epoch_of_the_run_that_is_shown() -> None:
    run_set = small()
    run = candidates(run_set)[0]
    run.samples_per_s_first_epoch = 2940.0  # Ready Solutions guide, ResNet-50
    run_set.config["data"]["mean_image_bytes"] = 113_000
    found, reason = consistency_of(run_set, RunTelemetry(run=run, series=[]))
    assert reason == ""
    assert found is not None
    assert found.expected_bytes_per_s == pytest.approx(2658e6 / 8, rel=1e-3)
    assert found.measured_bytes_per_s is None
    assert found.ceiling_bytes_per_s == pytest.approx(4 * 2.7e9)
    run.samples_per_s_first_epoch = None
    assert consistency_of(run_set, RunTelemetry(run=run, series=[]))[0] is None


def test_mean_sample_size_is_taken_from_settings_files_or_the_known_set(tmp_path: Path) -> None:
    run_set = small()
    assert mean_sample_bytes(run_set) == (115_000.0, "of the configuration")
    (tmp_path / "train.rec").write_bytes(b"x" * 6400)
    run_set.config = {"data": {"path": str(tmp_path), "train_rec": ["train.rec"], "num_train": 64}}
    assert mean_sample_bytes(run_set) == (100.0, "from the record files")
    run_set.config = {}
    assert mean_sample_bytes(run_set) == (115_000.0, "of ILSVRC2012 in RecordIO (white paper H18597)")
    for run in run_set.runs:
        run.train_samples = 640
    assert mean_sample_bytes(run_set) is None


def test_median_run_stands_for_the_set() -> None:
    run_set = small()
    for run, time_s in zip(run_set.runs, (50.0, 10.0, 30.0, 20.0, 40.0), strict=True):
        run.time_to_train_s = time_s
    run_set.runs[2].converged = False
    # Good: 10, 20, 40, 50; the middle two first, the lost one last.
    assert [run.time_to_train_s for run in candidates(run_set)][:2] == [20.0, 40.0]
    assert candidates(run_set)[-1].time_to_train_s == 30.0


def test_several_sets_are_compared_and_scaled_against_the_first() -> None:
    one, two = small("one", num_hosts=1), small("two", num_hosts=2)
    for run in one.runs:
        run.samples_per_s = 39_000.0
    report = described(one, two)
    assert report.sections[1].key == "comparison"
    scaling = tables(report)["Scaling"]
    assert [row[0] for row in scaling.rows] == ["8", "16"]
    assert scaling.rows[0][3] == "1.000"
    assert any(title.startswith("What differs") for title in tables(report))
    assert {"telemetry_cpu_1", "telemetry_cpu_2"} <= {figure.key for figure in report.figures}


def test_words_of_others_are_escaped_in_page_and_markdown(bare: Built) -> None:
    page = bare.files["report.html"].decode()
    assert "<img" not in page
    assert html.escape("<img src=x onerror=alert(1)>", quote=False) in page
    assert "\x1b" not in page
    assert r"\x1b[31m\u202e" in page
    text = bare.files["report.md"].decode()
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<img" not in prose.replace("\\<img", "")
    assert "](javascript" not in prose.replace("\\](", "")
    assert "\x1b" not in text


def test_page_names_nothing_that_must_be_fetched(bare: Built) -> None:
    page = bare.files["report.html"].decode()
    policy = page.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    for word in ('src="', "@import", "url(http", '<link rel="stylesheet'):
        assert word not in page


def test_missing_plots_are_listed_with_reasons_in_page_and_markdown(bare: Built) -> None:
    for name in ("report.html", "report.md"):
        text = bare.files[name].decode()
        assert "Not shown, and why" in text
        assert "all-reduce was not measured" in text
    assert bare.report.figures == []
    assert not any(name.startswith("plots/") for name in bare.files)


def test_markdown_shows_every_table_with_as_many_cells_as_columns(bare: Built) -> None:
    rows = [line for line in bare.files["report.md"].decode().splitlines() if line.startswith("|")]
    assert len(rows) > 10
    widths = []
    for line in rows:
        widths.append(line.replace(r"\|", "").count("|"))
    heads = [index for index, line in enumerate(rows) if set(line) <= set("|-: ")]
    assert heads
    for head in heads:
        assert widths[head - 1] == widths[head]


def test_csv_holds_si_units_and_an_empty_cell_for_what_is_not_known() -> None:
    run_set = small()
    run_set.runs[0].time_to_train_s = None
    run_set.notes[0].text = "=cmd()"
    shown = material(run_set).telemetry
    assert shown is not None
    made = csv_files([run_set], {run_set.run_set: shown})
    runs = list(csv.DictReader(io.StringIO(made["csv/runs.csv"].decode(), newline="")))
    assert len(runs) == 5
    assert runs[0]["time_to_train_s"] == ""
    assert float(runs[1]["time_to_train_s"]) == run_set.runs[1].time_to_train_s
    storage = list(csv.DictReader(io.StringIO(made["csv/storage.csv"].decode(), newline="")))
    assert float(storage[0]["bandwidth_bytes_per_s"]) == 3.1e9
    findings = list(csv.DictReader(io.StringIO(made["csv/findings.csv"].decode(), newline="")))
    assert findings[0]["text"] == "'=cmd()"
    assert {"csv/run_sets.csv", "csv/epochs.csv", "csv/evaluations.csv", "csv/telemetry.csv", "csv/hosts.csv"} <= set(
        made
    )


@pytest.mark.slow
def test_plots_are_files_too_and_markdown_shows_them() -> None:
    run_set = small(allreduce=[], storage=[])
    one = Material(
        run_set=run_set, compliance=not_checked("a test"), telemetry=None, telemetry_reason="none", sizing=None,
        sizing_reason="none",
    )  # fmt: skip
    formats = (PlotFormat.pdf, PlotFormat.svg)
    made = build_report([one], formats=formats, made_at=MADE, command="x")
    keys = [figure.key for figure in made.report.figures]
    assert keys == ["throughput", "epochs", "spread", "accuracy"]
    assert {f"plots/{key}.{form}" for key in keys for form in ("svg", "pdf")} <= set(made.files)
    text = made.files["report.md"].decode()
    assert "](plots/throughput.svg)" in text
    assert "[plots/throughput.pdf](plots/throughput.pdf)" in text
    page = made.files["report.html"].decode()
    assert page.count('role="img"') == 2 * len(keys)
    for figure in made.report.figures:
        assert html.escape(figure.alt, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page


def test_host_facts_that_differ_name_their_hosts() -> None:
    rows = tables(described(small()))["Hosts, as they said themselves"].rows
    assert ["kernel", "5.3.0-59", "all"] in [list(row) for row in rows]
    assert ["hostname", "dgx-02", "dgx-02"] in [list(row) for row in rows]


def test_readable_cells_and_markdown() -> None:
    assert readable(None) == "–"
    assert readable("a\x1b[0m\tb") == "a\\x1b[0m b"
    assert readable("x" * 3000).endswith("… (3000 characters)")
    assert markdown_text("a|b\n*c*") == r"a\|b \*c\*"


def test_folder_is_written_whole_and_replaced_only_when_it_is_ours(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report"
    write_folder(target, {"report.html": b"1", "plots/a.svg": b"2"}, {"run_sets": ["a"]})
    mark = json.loads((target / "report.json").read_text())
    assert mark == {"format": "mlbench report", "run_sets": ["a"], "files": ["plots/a.svg", "report.html"]}
    write_folder(target, {"report.html": b"3"}, {"run_sets": ["b"]})
    assert (target / "report.html").read_bytes() == b"3"
    assert not (target / "plots").exists()
    assert [path.name for path in target.parent.iterdir()] == ["report"]


def test_folder_with_other_files_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 1 file that is no report of mlbench"):
        write_folder(tmp_path, {"report.html": b"1"}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    report = tmp_path / "report"
    write_folder(report, {"report.html": b"1"}, {})
    (report / "notes.md").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.md in it is not of the report and would be lost"):
        write_folder(report, {"report.html": b"2"}, {})
    assert (report / "report.html").read_bytes() == b"1"


@pytest.mark.parametrize("mark", ["{", "[]", '{"format": "other", "files": []}', '{"format": "mlbench report"}'])
def test_folder_with_a_mark_that_is_not_ours_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / "report.json").write_text(mark)
    with pytest.raises(ConfigError, match="no report of mlbench"):
        refuse_foreign(tmp_path)


def test_file_or_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(ConfigError, match="expected a folder, found a file or a link"):
            refuse_foreign(tmp_path / name)
    (tmp_path / "empty").mkdir()
    refuse_foreign(tmp_path / "empty")
    refuse_foreign(tmp_path / "new")


@pytest.mark.slow
def test_report_of_32_gpus_and_an_hour_stays_small_and_quick() -> None:
    run_set = full_run_set()
    begin = time.process_time()
    formats = (PlotFormat.svg, PlotFormat.png, PlotFormat.pdf)
    made = build_report([material(run_set)], formats=formats, made_at=MADE, command="x")
    assert time.process_time() - begin < 10.0  # issue 7: under 10 s
    assert len(made.files["report.html"]) < 5_000_000  # and 5 MB
    assert len(made.report.figures) == 13
