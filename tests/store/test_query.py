"""A user's SQL: it reads, and the database itself refuses everything else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine

from mlbench.errors import InputError
from mlbench.store.engine import open_database
from mlbench.store.query import run_query
from mlbench.store.repository import list_run_sets, save_run_set
from tests.support.run_sets import make_run_set


@pytest.fixture
def filled(db_url: str) -> Engine:
    save_run_set(open_database(db_url), make_run_set())
    return open_database(db_url, readonly=True)


def test_query_gives_columns_and_rows(filled: Engine) -> None:
    found = run_query(filled, "SELECT run_set, score_s AS score FROM run_set;")
    assert (found.columns, found.rows, found.truncated) == (("run_set", "score"), [("set-a", 2190.0)], False)


def test_query_with_leading_comment_and_with_clause_reads(filled: Engine) -> None:
    found = run_query(filled, "-- why\nWITH x AS (SELECT count(*) AS n FROM run) SELECT n FROM x")
    assert found.rows == [(2,)]


def test_query_more_rows_than_the_limit_is_truncated(filled: Engine) -> None:
    found = run_query(filled, 'SELECT "index" FROM run ORDER BY 1', max_rows=1)
    assert (found.rows, found.truncated) == ([(0,)], True)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run",
        "UPDATE run_set SET score_s = 1",
        "INSERT INTO baseline VALUES ('x', 1, '2024-01-01')",
        "DROP TABLE run",
        "CREATE TABLE x (y int)",
        "ALTER TABLE run ADD COLUMN x int",
        "WITH x AS (SELECT 1) DELETE FROM run",
        "SELECT 1; DROP TABLE run",
        "SELECT 1; COMMIT; DROP TABLE run",
        "COMMIT",
        "BEGIN",
    ],
)
def test_query_that_writes_is_refused_and_changes_nothing(filled: Engine, db_url: str, sql: str) -> None:
    with pytest.raises(InputError, match=r"^results query: "):
        run_query(filled, sql)
    assert [item.score_s for item in list_run_sets(open_database(db_url))] == [2190.0]
    assert run_query(filled, "SELECT count(*) FROM run").rows == [(2,)]


@pytest.mark.parametrize("sql", ["", "  ;", "SELEC 1", "SELECT nope FROM run", "SELECT * FROM nowhere", "SELECT ?"])
def test_query_that_is_none_is_one_sentence(filled: Engine, sql: str) -> None:
    with pytest.raises(InputError) as raised:
        run_query(filled, sql)
    assert "\n" not in str(raised.value)


def test_query_that_takes_too_long_is_ended(filled: Engine) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"took longer than 0\.3 s"):
        run_query(filled, endless, time_limit_s=0.3)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    "sql",
    [
        "VACUUM INTO '{out}'",
        "ATTACH '{out}' AS x",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA writable_schema=ON",
        "SELECT load_extension('x')",
        "UPDATE sqlite_master SET sql = ''",
        "SELECT zeroblob(1000000000)",
    ],
)
def test_query_on_sqlite_leaves_no_way_around(tmp_path: Path, sql: str) -> None:
    save_run_set(open_database(str(tmp_path / "x.sqlite")), make_run_set())
    out = tmp_path / "out"
    with pytest.raises(InputError):
        run_query(open_database(str(tmp_path / "x.sqlite"), readonly=True), sql.format(out=out))
    assert not out.exists()


def test_query_opens_time_lines_in_sqlite(tmp_path: Path) -> None:
    save_run_set(open_database(str(tmp_path / "x.sqlite")), make_run_set(num_runs=1))
    db = open_database(str(tmp_path / "x.sqlite"), readonly=True)
    sql = (
        "SELECT metric, t.value, p.value FROM telemetry, json_each(times_s) t JOIN json_each(points) p ON p.key = t.key"
    )
    assert run_query(db, sql).rows == [("cpu_share", 0.0, 0.25), ("cpu_share", 1.0, None), ("cpu_share", 2.0, 0.75)]
    assert run_query(db, "SELECT name FROM pragma_table_info('baseline')").rows[0] == ("name",)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nextval('run_id_seq')",
        "SELECT set_config('transaction_read_only', 'off', false); DELETE FROM run",
        "WITH x AS (DELETE FROM run RETURNING 1) SELECT * FROM x",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT * FROM run FOR UPDATE",
        "SELECT setval('run_id_seq', 1)",
        "SELECT * INTO other FROM run",
        "COPY run TO STDOUT",
        "WITH x AS (INSERT INTO baseline VALUES ('x', 1, now()) RETURNING 1) SELECT * FROM x",
        "CREATE TEMP TABLE other AS SELECT 1",
        "LOCK TABLE run",
        "DO $$ BEGIN DELETE FROM run; END $$",
        "CALL nothing()",
        # files of the server, with the rights of a superuser, who runs these tests
        "SELECT pg_read_file('/etc/hostname')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_import('/etc/hostname')",
        "SELECT lo_export(1, '/tmp/mlbench-test-export')",
        "SELECT query_to_xml('SELECT pg_read_file(''/etc/hostname'')', true, true, '')",
        "SELECT pg_reload_conf()",
    ],
)
def test_query_on_postgres_leaves_no_way_around(postgres_url: str, sql: str) -> None:
    save_run_set(open_database(postgres_url), make_run_set())
    db = open_database(postgres_url, readonly=True)
    with pytest.raises(InputError):
        run_query(db, sql)
    assert run_query(db, "SELECT count(*) FROM run").rows == [(2,)]


@pytest.mark.postgres
def test_query_opens_time_lines_in_postgres(postgres_url: str) -> None:
    save_run_set(open_database(postgres_url), make_run_set(num_runs=1))
    lines = "ROWS FROM (json_array_elements_text(times_s), json_array_elements_text(points)) AS x(t, p)"
    sql = f"SELECT t, p FROM telemetry, {lines}"
    db = open_database(postgres_url, readonly=True)
    assert run_query(db, sql).rows == [("0.0", "0.25"), ("1.0", None), ("2.0", "0.75")]


@pytest.mark.postgres
def test_query_with_an_effect_of_a_function_is_rolled_back(postgres_url: str) -> None:
    """PostgreSQL before 16 lets a read only transaction make a large object."""
    save_run_set(open_database(postgres_url), make_run_set())
    db = open_database(postgres_url, readonly=True)
    with contextlib.suppress(InputError):
        run_query(db, "SELECT lo_create(77)")
    assert run_query(db, "SELECT count(*) FROM pg_largeobject_metadata").rows == [(0,)]


@pytest.mark.slow
def test_query_interrupted_by_ctrl_c_is_not_called_too_slow(tmp_path: Path) -> None:
    db = tmp_path / "x.sqlite"
    open_database(str(db)).dispose()
    endless = "with recursive a(x) as (select 1 union all select x+1 from a) select count(*) from a"
    code = (
        "import signal, threading, _thread, sys\n"
        "from mlbench.cli.main import run_command\n"
        "threading.Timer(2.0, _thread.interrupt_main).start()\n"
        f"sys.exit(run_command(['results', 'query', {endless!r}, '--db', {str(db)!r}, '--time-limit', '50']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)

    assert (done.returncode, done.stderr) == (130, "mlbench: interrupted\n")


@pytest.mark.postgres
def test_query_on_postgres_changes_nothing_that_stays(postgres_url: str) -> None:
    """A large object may be made in a read only transaction; it goes with it."""
    save_run_set(open_database(postgres_url), make_run_set())
    db = open_database(postgres_url, readonly=True)
    run_query(db, "SELECT lo_create(0)")
    assert run_query(db, "SELECT count(*) FROM pg_largeobject_metadata").rows == [(0,)]


@pytest.mark.postgres
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT pg_sleep(30)",
        "SELECT set_config('statement_timeout', '0', true), pg_sleep(30)",
        "SELECT pg_sleep(0.2) FROM generate_series(1, 100)",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
    ],
)
def test_query_on_postgres_that_sleeps_or_counts_is_ended(postgres_url: str, sql: str) -> None:
    open_database(postgres_url)
    db = open_database(postgres_url, readonly=True)
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"took longer than 0\.5 s"):
        run_query(db, sql, time_limit_s=0.5)
    assert time.monotonic() - begun < 20


def test_query_with_an_answer_larger_than_memory_should_hold_is_refused(
    filled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlbench.store.query.MAX_RESULT_BYTES", 1_000_000)
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 500)"
    text = "replace(hex(zeroblob(5000)), '0', 'x')" if filled.dialect.name == "sqlite" else "repeat('x', 10000)"
    with pytest.raises(InputError, match="the answer is larger than 1 MB"):
        run_query(filled, f"{many} SELECT x, {text} FROM c")
    assert len(run_query(filled, f"{many} SELECT x, {text} FROM c", max_rows=50).rows) == 50


@pytest.mark.parametrize("num", [1, 2, 3, 7, 250])
def test_query_rows_fetched_in_steps_are_all_there_in_order(filled: Engine, num: int) -> None:
    counted = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 250) SELECT x FROM c"
    found = run_query(filled, counted, max_rows=num)
    assert found.rows == [(number,) for number in range(1, num + 1)]
    assert found.truncated == (num < 250)


@pytest.mark.slow
def test_query_stuck_in_one_function_is_ended_by_the_verb(tmp_path: Path) -> None:
    """SQLite looks at the clock between its steps; a search in a long value is one step of minutes."""
    save_run_set(open_database(str(tmp_path / "x.sqlite")), make_run_set())
    sql = "SELECT instr(zeroblob(20000000), zeroblob(10000000) || x'01')"
    done = subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", "results", "query", sql, "--time-limit", "0.5"],
        env={**os.environ, "MLBENCH_DB_URL": str(tmp_path / "x.sqlite")},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("mlbench: results query: took longer than 0.5 s")
    assert done.stdout == ""
