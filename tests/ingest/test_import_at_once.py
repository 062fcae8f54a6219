"""cases.md, D7: many processes import into one new database while another reads it.

The full size, twelve times fifty, is tests/store/test_many_processes.py; here are the verbs themselves.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.run_logs import run_lines, write_log

NUM_PROCESSES = 6
NUM_SETS = 15
LIMIT_S = 120


def mlbench(*arguments: str, url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mlbench.cli.main", *arguments, "--db", url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_imports_at_once_store_every_set_while_others_list_them(tmp_path: Path) -> None:
    path = tmp_path / "db" / "results.sqlite"
    url = f"sqlite:///{path}"
    for process in range(NUM_PROCESSES):
        for number in range(NUM_SETS):
            folder = (
                tmp_path / "trees" / str(process) / "v2.1" / f"Lab{process}" / "results" / f"sys{number}" / "resnet"
            )
            write_log(folder / "result_0.txt", run_lines(epochs=2, seed=process * NUM_SETS + number))
    imports = [mlbench("import", str(tmp_path / "trees" / str(number)), url=url) for number in range(NUM_PROCESSES)]
    deadline = time.monotonic() + LIMIT_S
    try:
        while any(item.poll() is None for item in imports):
            assert time.monotonic() < deadline, "the imports hang"
            reader = mlbench("results", "list", "--json", url=url)
            out, err = reader.communicate(timeout=60)
            # Until the first import has made it there is no database to read, or one without tables yet.
            assert reader.returncode == 0 or "no database" in err.lower() or "is empty" in err, (out, err)
            time.sleep(0.2)
    finally:
        for item in imports:
            if item.poll() is None:
                item.kill()
    for item in imports:
        out, err = item.communicate()
        assert item.returncode == 0, err
        assert f"{NUM_SETS} run sets with {NUM_SETS} runs: {NUM_SETS} inserted." in out
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from run_set").fetchone() == (NUM_PROCESSES * NUM_SETS,)
        assert database.execute("select count(*) from run").fetchone() == (NUM_PROCESSES * NUM_SETS,)
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()


def test_import_into_a_folder_that_cannot_be_made_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mlbench.cli.main import run_command

    log = write_log(tmp_path / "result_0.txt", run_lines(epochs=2))
    before = log.read_bytes()
    # a file where a folder is needed stops root as well, whom missing rights do not
    (tmp_path / "taken").write_text("", encoding="utf-8")
    url = f"sqlite:///{tmp_path / 'taken' / 'results.sqlite'}"
    assert run_command(["import", os.fspath(log), "--db", url]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "taken") in said
    assert log.read_bytes() == before
