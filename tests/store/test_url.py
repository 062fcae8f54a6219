"""Which database is meant, and that no password of it is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.collect.safety import mask_url
from mlbench.errors import ConfigError
from mlbench.store.url import resolve_url, sqlite_path, storable_url


def test_url_given_wins_over_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLBENCH_DB_URL", "postgresql://h/from_environment")
    assert sqlite_path(resolve_url(str(tmp_path / "a.sqlite"))) == tmp_path / "a.sqlite"
    assert resolve_url(None) == "postgresql+psycopg://h/from_environment"


def test_url_without_settings_lies_in_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLBENCH_HOME", str(tmp_path))
    assert sqlite_path(resolve_url(None)) == tmp_path / "db" / "mlbench.sqlite"
    monkeypatch.delenv("MLBENCH_HOME")
    monkeypatch.chdir(tmp_path)
    assert sqlite_path(resolve_url(None)) == tmp_path / "db" / "mlbench.sqlite"


@pytest.mark.parametrize("name", ["a b.sqlite", "50%.sqlite", "what?.sqlite", "a#b.sqlite", "ä.sqlite"])
def test_url_of_odd_file_name_round_trips(tmp_path: Path, name: str) -> None:
    assert sqlite_path(resolve_url(str(tmp_path / name))) == tmp_path / name


def test_url_relative_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path(resolve_url("sqlite:///x/y.sqlite")) == tmp_path / "x" / "y.sqlite"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h/db",
        "sqlite://host/x.db",
        "sqlite://u:secret@host/x.db",
        "sqlite:///x.db?mode=ro",
        "oracle://h",
        "postgresql:u:secret@h/x",
        "postgresql+psycopg:/u:secret@h/x",
        "host=h password=secret",
    ],
)
def test_url_of_another_kind_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_url(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p@ss:w0rd@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://h/db?user=u&password=secret", "postgresql://h/db?user=u&password=***"),
        ("postgresql://h/db?passwd=secret", "postgresql://h/db?passwd=***"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("failed for http://a:b@c and http://d:e@f", "failed for http://a:***@c and http://d:***@f"),
    ],
)
def test_mask_url_hides_every_password(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_storable_url_with_password_is_none() -> None:
    assert storable_url("postgresql://u:secret@h/db") is None
    assert storable_url("postgresql://u@h/db") == "postgresql://u@h/db"
