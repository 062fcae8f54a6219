"""Opening a database: made when it is new, refused with one sentence when it is not ours or cannot work."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mlbench.errors import StoreError
from mlbench.store import engine as store_engine
from mlbench.store import locks, schema
from mlbench.store.engine import NoDatabaseError, open_database, reading, retried
from mlbench.store.faults import display_name
from mlbench.store.repository import list_run_sets, save_run_set
from tests.support.run_sets import make_run_set


def test_open_new_file_makes_schema_in_wal_mode(tmp_path: Path) -> None:
    engine = open_database(str(tmp_path / "new" / "folder" / "x.sqlite"))
    with reading(engine) as connection:
        assert schema.read_version(connection, "x") == schema.HEAD
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_open_readonly_without_file_names_path_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoDatabaseError, match="there is no database yet"):
        open_database(str(tmp_path / "db" / "x.sqlite"), readonly=True)
    assert not (tmp_path / "db").exists()


def test_open_readonly_refuses_writes_by_the_database(tmp_path: Path) -> None:
    open_database(str(tmp_path / "x.sqlite"))
    engine = open_database(str(tmp_path / "x.sqlite"), readonly=True)
    with pytest.raises(StoreError, match="readonly"):
        save_run_set(engine, make_run_set())


def test_open_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "photos.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photo (id INTEGER)")
    with pytest.raises(StoreError, match="tables that mlbench did not make \\(photo\\)"):
        open_database(str(path))
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall() == [("photo",)]


def test_open_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_text("this is a text of more than one hundred bytes, so that it is no database at all " * 10)
    with pytest.raises(StoreError, match="no SQLite database"):
        open_database(str(path))


def test_open_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        open_database(str(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_open_in_folder_without_write_right_says_results_are_safe(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    code = (
        "from mlbench.store.engine import open_database\n"
        "from mlbench.errors import StoreError\n"
        f"try: open_database({str(folder / 'x.sqlite')!r})\n"
        "except StoreError as error: print(error)"
    )
    user = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    for parent in tmp_path.parents:
        if parent.owner() != "root" or parent == Path("/"):
            break
        parent.chmod(parent.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    command = [*user, sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert "may not write there; results stay as files in runs/" in done.stdout, done.stderr


def test_open_newer_schema_is_refused_with_both_versions(db_url: str) -> None:
    engine = open_database(db_url)
    retried(engine, lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'"))
    for readonly in (True, False):
        with pytest.raises(StoreError, match=f"has schema 0999, this mlbench knows up to {schema.HEAD}"):
            open_database(db_url, readonly=readonly)


def test_open_version_that_is_no_number_is_refused(db_url: str) -> None:
    engine = open_database(db_url)
    retried(engine, lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'abc'"))
    with pytest.raises(StoreError, match="schema version is abc"):
        open_database(db_url)


@pytest.mark.slow
def test_open_does_not_import_alembic(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from mlbench.store.engine import open_database\n"
        "from mlbench.store.repository import list_run_sets\n"
        f"list_run_sets(open_database({str(tmp_path / 'x.sqlite')!r}))\n"
        "assert not [name for name in sys.modules if name.startswith(('alembic', 'mako', 'pandas'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_open_database_in_memory_holds_rows() -> None:
    engine = open_database("sqlite://")
    save_run_set(engine, make_run_set())
    assert [item.run_set for item in list_run_sets(engine)] == ["set-a"]


def test_retried_while_another_holds_the_lock_waits_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.sqlite"
    open_database(str(path))
    monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_S", 0.01)
    engine = open_database(str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.execute("COMMIT")

    monkeypatch.setattr(store_engine.time, "sleep", sleep)
    save_run_set(engine, make_run_set())
    assert len(pauses) == 3


def test_retried_when_never_free_names_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sqlite"
    open_database(str(path))
    monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(store_engine, "RETRY_LIMIT_S", 0.05)
    engine = open_database(str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process has held the database"):
        save_run_set(engine, make_run_set())
    other.close()


def test_retried_error_of_the_program_is_not_called_a_store_error(tmp_path: Path) -> None:
    engine = open_database(str(tmp_path / "x.sqlite"))
    with pytest.raises(ZeroDivisionError):
        retried(engine, lambda _: 1 / 0)


@pytest.mark.postgres
def test_postgres_unreachable_is_one_sentence_without_password() -> None:
    with pytest.raises(StoreError) as raised:
        open_database("postgresql://user:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "check that the server runs" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hun@hunter2@127.0.0.1:1/x", "write it as %40"),
        ("postgresql://u:hunter2", "is no PostgreSQL URL"),
        ("postgresql://u:hunter2@127.0.0.1:port/x", "is no PostgreSQL URL"),
        ("postgresql://u:hunter2@[::1/x", "is no PostgreSQL URL"),
    ],
)
def test_postgres_url_that_cannot_be_taken_apart_is_a_sentence_without_password(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as raised:
        open_database(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("readonly", [True, False])
def test_open_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path, readonly: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is a device, pipe or socket, expected an SQLite file"):
        open_database(str(tmp_path / "pipe"), readonly=readonly)


@pytest.mark.postgres
def test_postgres_name_shown_has_no_password(postgres_url: str) -> None:
    assert ":***@" in display_name(open_database(postgres_url))


@pytest.mark.postgres
def test_postgres_with_other_tables_is_shared(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE of_somebody_else (id int)")
    assert list_run_sets(open_database(postgres_url)) == []


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>
static int refuse(int command) { return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK; }
static int answer(void) { HANG; errno = ENOLCK; return -1; }
int fcntl(int handle, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    if (refuse(command)) return answer();
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, "fcntl");
    return real(handle, command, argument);
}
int fcntl64(int handle, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    if (refuse(command)) return answer();
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, "fcntl64");
    return real(handle, command, argument);
}
"""


def _without_locks(tmp_path: Path, hang: str, code: str) -> str:
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM.replace("HANG", hang))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_OPEN = """
from pathlib import Path
from mlbench.errors import StoreError
from mlbench.store import engine, locks
locks.PROBE_LIMIT_S = 1.0
engine.BUSY_TIMEOUT_S = 0.2
engine.RETRY_LIMIT_S = 0.2
locks.is_network = lambda path: NETWORK
try: engine.open_database("db/x.sqlite")
except StoreError as error: print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the shim that breaks locks")
def test_open_where_locks_fail_names_the_path(tmp_path: Path) -> None:
    said = _without_locks(tmp_path, "", _OPEN.replace("NETWORK", "False"))
    assert "file locks do not work on this file system" in said
    assert str(tmp_path / "db" / "x.sqlite") in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the shim that breaks locks")
def test_open_on_network_mount_where_locks_hang_ends_soon(tmp_path: Path) -> None:
    said = _without_locks(tmp_path, "sleep(600)", _OPEN.replace("NETWORK", "True"))
    assert "did not answer within 1 s" in said


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 filer:/home rw
31 30 0:41 / /home/local\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /scratch rw - fuse.beegfs none rw
33 22 0:43 / /home rw - ext4 /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc", "ext4"),
        ("/home/a", "ext4"),
        ("/home/local disk/x", "xfs"),
        ("/scratch/x", "fuse.beegfs"),
        ("/homes", "ext4"),
    ],
)
def test_file_system_type_is_of_the_nearest_mount_on_top(tmp_path: Path, path: str, kind: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert locks.file_system_type(Path(path), table) == kind


def test_is_network_knows_network_from_local(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(MOUNTS.splitlines()[:4]) + "\n")
    assert locks.is_network(Path("/home/a"), table)
    assert locks.is_network(Path("/scratch"), table)
    assert not locks.is_network(Path("/etc"), table)
    assert not locks.is_network(Path("/etc"), tmp_path / "absent")


def test_lock_fault_where_locks_work_is_none(tmp_path: Path) -> None:
    assert locks.lock_fault(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
