"""What every test shares: which real things are here, and the promise that nothing is left out unseen.

A test that needs a real thing carries its marker. Where the thing is absent the test is left out and the last lines
say so. With MLBENCH_REQUIRE_ALL=1 (as .ci/run sets it) whatever would be left out is a failure instead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("MLBENCH_REQUIRE_ALL") == "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a command in the background deaf to Ctrl-C, its children too; tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that others use too is slow now and then; no test asserts a time.
hypothesis.settings.register_profile("mlbench", deadline=None)
hypothesis.settings.load_profile("mlbench")


def published_folder() -> Path:
    """The folder of published MLPerf logs: MLBENCH_PUBLISHED, else ../shared/published beside the project."""
    return Path(os.environ.get("MLBENCH_PUBLISHED") or ROOT.parent / "shared" / "published").resolve()


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _no_published() -> str | None:
    if (published_folder() / "expected.json").is_file():
        return None
    return "published MLPerf logs (set MLBENCH_PUBLISHED to their folder)"


def _no_training() -> str | None:
    return None if _importable("mxnet") and _importable("horovod") else "MXNet and Horovod (make run builds them)"


def _no_program(program: str, what: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(program) else what


def _no_netns() -> str | None:
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("mpirun"):
        return None
    return "network namespaces (root, iproute2 and Open MPI)"


def _no_postgres() -> str | None:
    if os.environ.get("MLBENCH_TEST_POSTGRES_URL"):
        return None
    return "PostgreSQL (MLBENCH_TEST_POSTGRES_URL; tests/support/postgres.sh start prints one)"


def _no_slurm() -> str | None:
    if os.environ.get("MLBENCH_TEST_SLURM") == "1":
        return None
    return "Slurm (MLBENCH_TEST_SLURM=1 after tests/support/slurm_cluster.sh start)"


def _no_python38() -> str | None:
    from tests.support.python38 import find_python38

    return None if find_python38() is not None else "a Python 3.8 (MLBENCH_PYTHON38)"


ABSENT: dict[str, Callable[[], str | None]] = {
    "published": _no_published,
    "training": _no_training,
    "mpi": _no_program("mpirun", "Open MPI (apt-get install openmpi-bin libopenmpi-dev)"),
    "netns": _no_netns,
    "slurm": _no_slurm,
    "postgres": _no_postgres,
    "fio": _no_program("fio", "fio (apt-get install fio)"),
    "s3": lambda: None if _importable("moto") else "moto's S3 server (pip install 'moto[server]')",
    "browser": _no_program("chromium", "Chromium (apt-get install chromium)"),
    "python38": _no_python38,
}
_left_out: dict[str, int] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found: dict[str, str | None] = {}
    for item in items:
        for name, absent in ABSENT.items():
            if item.get_closest_marker(name) is None:
                continue
            if name not in found:
                found[name] = absent()
            reason = found[name]
            if reason is not None:
                _left_out[reason] = _left_out.get(reason, 0) + 1
                if not REQUIRE_ALL:
                    item.add_marker(pytest.mark.skip(reason=f"needs {reason}"))
                break


def pytest_sessionstart(session: pytest.Session) -> None:
    _left_out.clear()


def pytest_collection_finish(session: pytest.Session) -> None:
    if REQUIRE_ALL and _left_out and not session.config.option.collectonly:
        lines = "; ".join(f"{count} tests need {reason}" for reason, count in sorted(_left_out.items()))
        raise pytest.UsageError(f"MLBENCH_REQUIRE_ALL=1, but {lines}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With MLBENCH_REQUIRE_ALL a skip is a failure: nothing is left out unseen."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which MLBENCH_REQUIRE_ALL=1 forbids: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _left_out:
        return
    terminalreporter.section("left out on this machine")
    for reason, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"{count} tests need {reason}")


@pytest.fixture(scope="session")
def published() -> Path:
    """Folder of published MLPerf logs; tests that use it carry the marker `published`."""
    return published_folder()


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the user's runs or database, and none inherits the user's settings."""
    for name in ("MLBENCH_DB_URL", "MLBENCH_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of an empty database of its own; tests that use it carry the marker `postgres`."""
    import psycopg

    server = os.environ["MLBENCH_TEST_POSTGRES_URL"]
    name = f"mlbench_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a new database, once of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "db" / "mlbench.sqlite")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root to mount a small tmpfs")
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
