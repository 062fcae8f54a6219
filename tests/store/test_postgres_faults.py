"""PostgreSQL in trouble: what is told, with which status, what is stored, and that no password is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from sqlalchemy import Connection, Table, text

from mlbench.errors import StoreError
from mlbench.store import engine as store_engine
from mlbench.store import repository, schema
from mlbench.store.canonical import canonical_rows
from mlbench.store.engine import open_database, reading
from mlbench.store.repository import (
    all_run_sets,
    list_run_sets,
    load_run_set,
    load_run_sets,
    pin_baseline,
    save_run_set,
)
from tests.support.old_databases import make_old
from tests.support.postgres_faults import relay
from tests.support.run_logs import submission
from tests.support.run_sets import make_run_set

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SECRET = "hunter2-of-the-test"
LIMIT_S = 120


def mlbench(*arguments: str, url: str, home: Path, options: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlbench.cli.main", *arguments],
        env={**os.environ, "MLBENCH_HOME": str(home), "MLBENCH_DB_URL": url, "PGOPTIONS": options},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def said(done: subprocess.CompletedProcess[str], url: str, status: int = 2) -> str:
    """The one sentence of a verb that failed."""
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    password = urlsplit(url).password
    assert password is None or password not in done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def user(postgres_url: str) -> Iterator[str]:
    """URL of a user of the database who may do nothing yet."""
    name = f"mlbench_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'".encode())
    parts = urlsplit(postgres_url)
    yield parts._replace(netloc=f"{name}:{SECRET}@{parts.hostname}:{parts.port}").geturl()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {name}".encode())
        connection.execute(f"DROP ROLE {name}".encode())


def _wrong_password(url: str) -> tuple[str, str]:
    return url.replace(str(urlsplit(url).password), SECRET), "give the right one in MLBENCH_DB_URL or ~/.pgpass"


def _no_password(url: str) -> tuple[str, str]:
    return url.replace(f":{urlsplit(url).password}@", "@"), "give the right one in MLBENCH_DB_URL or ~/.pgpass"


def _no_database(url: str) -> tuple[str, str]:
    return url + "_not", f"make it there with `createdb {url.rpartition('/')[2]}_not`"


def _no_server(url: str) -> tuple[str, str]:
    return url.replace(f":{urlsplit(url).port}/", ":1/"), "refused; check that the server runs"


def _no_host(url: str) -> tuple[str, str]:
    return url.replace("127.0.0.1", "no-such-host.invalid"), "check that the server runs"


@pytest.mark.parametrize("fault", [_wrong_password, _no_password, _no_database, _no_server, _no_host])
@pytest.mark.parametrize("verb", [("results", "list"), ("db", "rebuild"), ("db", "upgrade")])
def test_verb_that_cannot_connect_says_what_to_do_and_shows_no_password(
    postgres_url: str, tmp_path: Path, verb: tuple[str, ...], fault: object
) -> None:
    url, expected = fault(postgres_url)  # type: ignore[operator]
    assert expected in said(mlbench(*verb, url=url, home=tmp_path), url)


def test_user_who_may_only_read_lists_and_asks_and_is_refused_to_write(
    postgres_url: str, user: str, tmp_path: Path
) -> None:
    save_run_set(open_database(postgres_url), make_run_set())
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {urlsplit(user).username}".encode())
    tree = submission(tmp_path / "training_results_v2.1")
    for verb in (("results", "list"), ("results", "show", "set-a"), ("results", "query", "SELECT 1")):
        assert mlbench(*verb, url=user, home=tmp_path).returncode == 0
    for arguments in (("import", str(tree)), ("baseline", "pin", "good", "set-a")):
        assert "ask for SELECT, INSERT, UPDATE and DELETE" in said(mlbench(*arguments, url=user, home=tmp_path), user)
    assert [item.run_set for item in all_run_sets(open_database(postgres_url))] == ["set-a"]


def test_user_without_rights_is_told_so(postgres_url: str, user: str, tmp_path: Path) -> None:
    open_database(postgres_url)
    told = said(mlbench("results", "list", url=user, home=tmp_path), user)
    assert "permission denied for table alembic_version" in told


def test_server_that_only_reads_is_named_and_not_written(postgres_url: str, tmp_path: Path) -> None:
    """As a standby answers."""
    open_database(postgres_url)
    tree = submission(tmp_path / "training_results_v2.1")
    options = "-c default_transaction_read_only=on"
    done = mlbench("import", str(tree), url=postgres_url, home=tmp_path, options=options)
    assert "name a database that may be written" in said(done, postgres_url)


def test_settings_in_the_url_stay_for_reading_and_writing(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA team")
    url = f"{postgres_url}?options=-csearch_path%3Dteam"
    save_run_set(open_database(url), make_run_set())
    assert [item.run_set for item in list_run_sets(open_database(url, readonly=True))] == ["set-a"]
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT run_set FROM team.run_set").fetchall() == [("set-a",)]


def test_connection_ended_in_the_middle_of_a_write_is_made_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after half of the rows: they are gone with it, and the second try stores all, once."""
    engine = open_database(postgres_url)
    copy, ended = repository.insert_rows, []

    def end_once(connection: Connection, table: Table, rows: list[dict[str, object]]) -> None:
        copy(connection, table, rows)
        if not ended:
            ended.append(table.name)
            number = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            with psycopg.connect(postgres_url) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (number,))

    monkeypatch.setattr(repository, "insert_rows", end_once)
    save_run_set(engine, make_run_set(num_runs=5))
    assert len(ended) == 1
    loaded = load_run_set(engine, "set-a", telemetry=True)
    assert canonical_rows(loaded) == canonical_rows(make_run_set(num_runs=5))


def test_writer_goes_on_when_the_server_is_started_anew(postgres_url: str) -> None:
    """Twice away for a second while 60 run sets are stored: each is there once, and whole."""
    with relay(postgres_url) as way:
        engine = open_database(way.url)
        faults: list[BaseException] = []

        def store() -> None:
            try:
                for number in range(60):
                    save_run_set(engine, make_run_set(f"set-{number:02d}", num_runs=5))
                    time.sleep(0.02)
            except BaseException as error:  # noqa: BLE001 - told by the test itself
                faults.append(error)

        writer = threading.Thread(target=store)
        writer.start()
        for _ in range(2):
            time.sleep(0.4)
            way.go_away()
            time.sleep(1.0)
            way.come_back()
        writer.join(LIMIT_S)
        assert faults == []
    db = open_database(postgres_url)
    assert [item.run_set for item in all_run_sets(db)] == [f"set-{number:02d}" for number in range(60)]
    for record in load_run_sets(db, ["set-00", "set-20", "set-59"], telemetry=True):
        assert canonical_rows(record) == canonical_rows(make_run_set(record.run_set, num_runs=5))


def test_server_that_stays_away_is_one_sentence_and_nothing_is_stored(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_engine, "RECONNECT_LIMIT_S", 0.5)
    with relay(postgres_url) as way:
        engine = open_database(way.url)
        save_run_set(engine, make_run_set("first"))
        way.go_away()
        with pytest.raises(StoreError) as raised:
            save_run_set(engine, make_run_set("second"))
    told = str(raised.value)
    assert "check that the server runs" in told
    assert str(urlsplit(postgres_url).password) not in told
    assert "\n" not in told
    assert [item.run_set for item in all_run_sets(open_database(postgres_url))] == ["first"]


def test_server_without_a_free_connection_is_asked_again(postgres_url: str, user: str) -> None:
    open_database(postgres_url)
    name = urlsplit(user).username
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}".encode())
        connection.execute(f"ALTER ROLE {name} CONNECTION LIMIT 1".encode())
    holder = psycopg.connect(user)
    timer = threading.Timer(1.0, holder.close)
    timer.start()
    assert list_run_sets(open_database(user, readonly=True)) == []
    timer.join()


def test_lock_held_for_ever_is_one_sentence(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save_run_set(open_database(postgres_url), make_run_set())
    monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(store_engine, "RETRY_LIMIT_S", 1.0)
    engine = open_database(postgres_url)
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT * FROM run_set FOR UPDATE")
        with pytest.raises(StoreError, match="another process has held what is needed"):
            save_run_set(engine, make_run_set(content_hash="other"))


def test_reader_sees_one_state_while_a_run_set_is_replaced(postgres_url: str) -> None:
    """Half of the old rows and half of the new ones would be a result that never was."""
    writer, reader = open_database(postgres_url), open_database(postgres_url, readonly=True)
    stop = threading.Event()

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            save_run_set(writer, make_run_set(num_runs=1 + number % 4, content_hash=str(number)))

    save_run_set(writer, make_run_set(num_runs=1, content_hash="0"))
    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(150):
            found = load_run_set(reader, "set-a", telemetry=True)
            assert len(found.runs) == found.num_runs
            assert all(len(run.epoch_rows) == 1 and len(run.telemetry) == 1 for run in found.runs)
    finally:
        stop.set()
        thread.join(LIMIT_S)


def test_old_schema_with_many_clients_is_refused_until_one_upgrades(postgres_url: str, tmp_path: Path) -> None:
    make_old(postgres_url, "0001")
    sentence = f"has schema 0001, this mlbench needs {schema.HEAD}; run `mlbench db upgrade`"
    command = [sys.executable, "-m", "mlbench.cli.main"]
    environment = {**os.environ, "MLBENCH_HOME": str(tmp_path), "MLBENCH_DB_URL": postgres_url}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    for child in [start("results", "list") for _ in range(6)]:
        _, errors = child.communicate(timeout=LIMIT_S)
        assert (child.returncode, errors.count("\n")) == (2, 1)
        assert sentence in errors
    outputs = []
    for child in [start("db", "upgrade") for _ in range(3)]:
        out, errors = child.communicate(timeout=LIMIT_S)
        assert child.returncode == 0, errors
        outputs.append(out)
    assert any(f"schema 0001 became {schema.HEAD}" in out for out in outputs)
    db = open_database(postgres_url)
    assert canonical_rows(load_run_set(db, "set-a", telemetry=True)) == canonical_rows(make_run_set("set-a"))
    pin_baseline(db, "other", "set-a")
    save_run_set(db, make_run_set("new"))
    with reading(db) as connection:
        assert connection.execute(text("SELECT count(*) FROM run_set")).scalar_one() == 3


def test_password_of_the_database_is_in_no_file_line_or_command_of_a_run(postgres_url: str, tmp_path: Path) -> None:
    password = str(urlsplit(postgres_url).password)
    argv = [
        *(sys.executable, "-m", "mlbench.cli.main", "launcher=rehearsal", "benchmark.stages=[train]", "repeats=2"),
        "launcher.rehearsal.seconds_per_run=0.3",
    ]
    child = subprocess.Popen(
        argv,
        cwd=tmp_path,
        env={**os.environ, "MLBENCH_HOME": str(tmp_path), "MLBENCH_DB_URL": postgres_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    commands = set()
    while child.poll() is None:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                commands.add(entry.read_bytes())
            except OSError:
                continue
        time.sleep(0.05)
    out, _ = child.communicate()
    assert child.returncode == 0, out
    assert any(b"mlbench" in command for command in commands)
    assert not [command for command in commands if password.encode() in command]
    assert password not in out
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if password.encode() in path.read_bytes()]
    stored = load_run_set(open_database(postgres_url), "latest")
    assert password not in str((stored.config, stored.provenance))
