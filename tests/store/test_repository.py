"""Saving, finding, listing and loading run sets, on both databases."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import Engine, func, select

from mlbench.errors import InputError
from mlbench.store.canonical import canonical_rows, differences
from mlbench.store.engine import reading
from mlbench.store.repository import (
    RunSetFilter,
    SaveOutcome,
    all_run_sets,
    baselines,
    count_run_sets,
    delete_run_set,
    find_run_set,
    list_run_sets,
    load_run_set,
    load_run_sets,
    pin_baseline,
    save_run_set,
    unpin_baseline,
)
from mlbench.store.summary import RunSetSummary
from mlbench.store.tables import Base, Epoch, RunSet, System
from tests.support.run_sets import STARTED, make_run, make_run_set

# design.md, section 5, in its order.
LIST_KEYS = [
    "run_set", "origin", "round", "org", "system", "division", "benchmark", "framework", "num_nodes",
    "num_accelerators", "num_ranks", "num_runs", "num_converged", "score_s", "score_status", "score_reason", "mean_s",
    "min_s", "max_s", "cv", "samples_per_s", "samples_per_s_first_epoch", "global_batch_size", "started_at",
]  # fmt: skip


def _count(db: Engine, table: type[Base]) -> int:
    with reading(db) as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _rows(db: Engine) -> dict[str, int]:
    return {mapper.class_.__tablename__: _count(db, mapper.class_) for mapper in Base.registry.mappers}


def test_save_then_load_gives_the_same_rows(db: Engine) -> None:
    assert save_run_set(db, make_run_set()) is SaveOutcome.inserted
    loaded = load_run_set(db, "set-a", telemetry=True)
    assert canonical_rows(loaded) == canonical_rows(make_run_set())
    assert list(differences(loaded, make_run_set())) == []
    assert loaded.allreduce[0].size_bytes == 2**33
    assert loaded.started_at == STARTED
    assert loaded.runs[0].telemetry[0].points == [0.25, None, 0.75]


def test_save_same_files_twice_changes_nothing(db: Engine) -> None:
    save_run_set(db, make_run_set())
    before = _rows(db)
    assert save_run_set(db, make_run_set()) is SaveOutcome.unchanged
    assert _rows(db) == before


def test_save_changed_files_replaces_all_rows_and_keeps_baseline(db: Engine) -> None:
    save_run_set(db, make_run_set(num_runs=5))
    pin_baseline(db, "good", "set-a")
    changed = make_run_set(
        num_runs=1, content_hash="other", description=System(origin="run", name="new", description={})
    )
    assert save_run_set(db, changed) is SaveOutcome.replaced
    loaded = load_run_set(db, "set-a")
    assert (len(loaded.runs), loaded.content_hash) == (1, "other")
    assert loaded.description is not None
    assert loaded.description.name == "new"
    assert baselines(db)["good"][0] == "set-a"
    counts = _rows(db)
    assert (counts["run"], counts["epoch"], counts["telemetry"], counts["system"]) == (1, 1, 1, 1)


def test_save_with_force_writes_same_hash_again(db: Engine) -> None:
    save_run_set(db, make_run_set(score_s=1.0))
    assert save_run_set(db, make_run_set(score_s=2.0), force=True) is SaveOutcome.replaced
    assert load_run_set(db, "set-a").score_s == 2.0


def test_save_two_sets_of_one_system_store_it_once(db: Engine) -> None:
    save_run_set(db, make_run_set("set-a"))
    save_run_set(db, make_run_set("set-b"))
    assert _count(db, System) == 1


def test_save_values_no_database_holds_become_unknown_with_a_note(db: Engine) -> None:
    run_set = make_run_set(samples_per_s=float("nan"), org="nul\x00 and \ud800", config={"x": float("inf"), "y": 2**80})
    run_set.runs[0].seed = 2**64
    run_set.runs[0].epoch_rows = [Epoch(kind="epoch", num_epochs=1.0, start_s=0.0, duration_s=float("nan"))]
    save_run_set(db, run_set)
    loaded = load_run_set(db, "set-a")
    assert (loaded.samples_per_s, loaded.runs[0].seed, loaded.config) == (None, None, {"x": None, "y": None})
    assert loaded.org == "nul\ufffd and \ufffd\ufffd\ufffd"
    assert loaded.runs[0].epoch_rows == []
    told = " ".join(note.text for note in loaded.notes)
    assert "18446744073709551616 does not fit into 64 bits" in told
    assert "the row is left out" in told


def test_save_without_required_column_is_a_fault_of_the_program(db: Engine) -> None:
    with pytest.raises(ValueError, match="score_status must be filled"):
        save_run_set(db, make_run_set(score_status=None))


def test_delete_removes_everything_below(db: Engine) -> None:
    save_run_set(db, make_run_set())
    pin_baseline(db, "good", "set-a")
    assert delete_run_set(db, "set-a")
    assert set(_rows(db).values()) == {0}
    assert not delete_run_set(db, "set-a")


def test_moments_of_other_zones_are_the_same_moment(db: Engine) -> None:
    tokyo = STARTED.astimezone(timezone(timedelta(hours=9)))
    save_run_set(db, make_run_set(started_at=tokyo))
    loaded = load_run_set(db, "set-a")
    assert loaded.started_at == STARTED
    assert list_run_sets(db)[0].as_json()["started_at"] == "2024-05-01T09:30:00.000Z"


def test_list_keys_are_those_of_the_design(db: Engine) -> None:
    save_run_set(db, make_run_set())
    row = list_run_sets(db)[0].as_json()
    assert list(row) == LIST_KEYS
    assert list(RunSetSummary.__dataclass_fields__) == LIST_KEYS
    json.dumps(row, allow_nan=False)


def _fill(db: Engine) -> None:
    rows = [
        ("a1", "DGX A100", "resnet", "run", None, "LabX", "valid", 0),
        ("a2", "DSS8440", "resnet", "run", None, "LabX", "raw", 1),
        ("v0.7/DellEMC/DSS8440/resnet", "DSS8440", "resnet", "import", "v0.7", "DellEMC", "valid", -1500),
        ("b_1", "DGX A100", "resnet50_throughput", "run", None, "LabY", "raw", 2),
        ("c1", None, None, "run", None, None, "invalid", None),
    ]
    for name, system, benchmark, origin, round_, org, status, day in rows:
        started = None if day is None else STARTED + timedelta(days=day)
        save_run_set(
            db,
            make_run_set(
                name, system=system, benchmark=benchmark, origin=origin, round=round_, org=org, score_status=status,
                started_at=started, org_logged="NVIDIA" if origin == "import" else org,
            ),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["b_1", "a2", "a1", "v0.7/DellEMC/DSS8440/resnet", "c1"]),
        ({"system": "dss"}, ["a2", "v0.7/DellEMC/DSS8440/resnet"]),
        ({"system": "%"}, []),
        ({"benchmark": "RESNET"}, ["a2", "a1", "v0.7/DellEMC/DSS8440/resnet"]),
        ({"org": "dellemc"}, ["v0.7/DellEMC/DSS8440/resnet"]),
        ({"org": "nvidia"}, ["v0.7/DellEMC/DSS8440/resnet"]),
        ({"round": "v0.7"}, ["v0.7/DellEMC/DSS8440/resnet"]),
        ({"origin": "run", "status": "raw"}, ["b_1", "a2"]),
        ({"since": STARTED + timedelta(days=1)}, ["b_1", "a2"]),
        ({"system": "DGX", "benchmark": "resnet"}, ["a1"]),
        ({"org": "nobody"}, []),
    ],
)
def test_list_filters_newest_first(db: Engine, filters: dict[str, object], expected: list[str]) -> None:
    _fill(db)
    found = list_run_sets(db, RunSetFilter(**filters))  # type: ignore[arg-type]
    assert [item.run_set for item in found] == expected
    assert count_run_sets(db, RunSetFilter(**filters)) == len(expected)  # type: ignore[arg-type]


def test_list_limit_takes_the_newest(db: Engine) -> None:
    _fill(db)
    assert [item.run_set for item in list_run_sets(db, limit=2)] == ["b_1", "a2"]


def test_list_two_systems_of_one_benchmark_stay_two_rows(db: Engine) -> None:
    """P40: five runs of a DGX A100 and five of a DSS 8440 are never ten of one."""
    save_run_set(db, make_run_set("a", system="DGX A100", num_runs=5))
    save_run_set(db, make_run_set("b", system="DSS8440", num_runs=5))
    found = list_run_sets(db, limit=5)
    assert [(item.system, item.num_runs) for item in found] == [("DSS8440", 5), ("DGX A100", 5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a1", "a1"),
        ("v0.7", "v0.7/DellEMC/DSS8440/resnet"),
        ("v0.7/DellEMC/DSS8440/resnet", "v0.7/DellEMC/DSS8440/resnet"),
        ("latest", "b_1"),
        ("latest~0", "b_1"),
        ("latest~2", "a1"),
        ("latest~4", "c1"),
        ("runs/a2", "a2"),
        ("./runs/a2/", "a2"),
        ("b_", "b_1"),
    ],
)
def test_find_by_id_beginning_place_and_folder(db: Engine, text: str, expected: str) -> None:
    _fill(db)
    assert find_run_set(db, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", r"several begin so \(a1, a2\); write more of it"),
        ("a3", "not in the database; did you mean 'a"),
        ("zzz", "`mlbench results list` shows those"),
        ("latest~5", "the database holds 5 run sets"),
        ("%", "not in the database"),
    ],
)
def test_find_what_is_not_there_names_the_nearest(db: Engine, text: str, message: str) -> None:
    _fill(db)
    with pytest.raises(InputError, match=message):
        find_run_set(db, text)


def test_find_exact_id_wins_over_longer_ones(db: Engine) -> None:
    save_run_set(db, make_run_set("run-1"))
    save_run_set(db, make_run_set("run-10"))
    assert find_run_set(db, "run-1") == "run-1"


def test_load_keeps_attempts_in_order(db: Engine) -> None:
    runs = [
        make_run(1, attempt=1),
        make_run(0, warmup=True),
        make_run(1, attempt=0, status="crashed", converged=False),
        make_run(0),
    ]
    save_run_set(db, make_run_set(runs=runs))
    loaded = load_run_set(db, "set-a")
    assert [(run.index, run.attempt) for run in loaded.runs if not run.warmup] == [(0, 0), (1, 0), (1, 1)]


def test_load_several_in_the_order_asked(db: Engine) -> None:
    _fill(db)
    assert [item.run_set for item in load_run_sets(db, ["a2", "b_1", "a1"])] == ["a2", "b_1", "a1"]
    with pytest.raises(InputError, match="'nope'"):
        load_run_sets(db, ["a1", "nope"])


def test_baseline_moves_and_goes(db: Engine) -> None:
    _fill(db)
    pin_baseline(db, "good", "a1")
    pin_baseline(db, "good", "latest")
    assert {name: item[0] for name, item in baselines(db).items()} == {"good": "b_1"}
    assert baselines(db)["good"][1] <= datetime.now(UTC)
    assert unpin_baseline(db, "good")
    assert not unpin_baseline(db, "good")


def test_all_run_sets_tell_where_their_logs_are(db: Engine) -> None:
    run_set = make_run_set(path="/somewhere/set-a")
    run_set.runs[0].log_path = "runs/run_0/attempt_0/result.txt"
    save_run_set(db, run_set)
    stored = all_run_sets(db)[0]
    assert (stored.path, stored.log_paths) == ("/somewhere/set-a", ("runs/run_0/attempt_0/result.txt",))


def test_differences_name_table_and_column(db: Engine) -> None:
    save_run_set(db, make_run_set())
    other = make_run_set(mean_s=7.0)
    other.runs[1].seed = 99
    other.notes = []
    found = list(differences(load_run_set(db, "set-a", telemetry=True), other))
    assert found == ["note: 1 rows, expected 0", "run: seed 12, expected 99", "run_set: mean_s null, expected 7.0"]


def test_record_has_every_table_below_a_run_set() -> None:
    """If a table is added, the records of the tests must fill it too, or nothing above tests it."""
    filled = set(canonical_rows(make_run_set()))
    assert filled == {mapper.class_.__tablename__ for mapper in Base.registry.mappers} - {"baseline"}
    assert RunSet.__tablename__ in filled
