"""Host lists as people write them (case P47)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.errors import ConfigError
from mlbench.plan.hosts import hosts_of, parse_hosts, read_hostfile


@pytest.mark.parametrize("words", [["a:5,b:4"], ["a:5", "b:4"], ["a:5 b:4"], ["a:5,", " b:4 "]], ids=str)
def test_parse_hosts_commas_blanks_and_lists_mean_the_same(words: list[str]) -> None:
    assert parse_hosts(words) == [("a", 5), ("b", 4)]


def test_parse_hosts_without_slots_leaves_them_open() -> None:
    assert parse_hosts(["a", "dl-worker-01.lab:2"]) == [("a", None), ("dl-worker-01.lab", 2)]


def test_parse_hosts_user_and_ipv6() -> None:
    assert parse_hosts(["me@a:2", "[fe80::1]:3", "[fe80::2]"]) == [("me@a", 2), ("[fe80::1]", 3), ("[fe80::2]", None)]


@pytest.mark.parametrize("word", ["a:", "a:x", "a:0", "a:-1", "a:4097", "-a:2", "a;b", "a:2:3", "$(x)", "a:99999999"])
def test_parse_hosts_wrong_entry_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match="hosts: found"):
        parse_hosts([word])


def test_parse_hosts_duplicate_is_refused_whatever_its_case() -> None:
    with pytest.raises(ConfigError, match="host A is named twice"):
        parse_hosts(["a:1", "A:1"])


def test_read_hostfile_comments_blanks_crlf_and_open_mpi_form(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"\xef\xbb\xbf# the lab\r\n\r\na slots=8 max_slots=8 # rack 1\r\nb:4\r\n c \r\n")

    assert read_hostfile(file) == [("a", 8), ("b", 4), ("c", None)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "names no host"),
        (b"# none\n", "names no host"),
        (b"a slots=x\n", "found 'a slots=x'"),
        (b"a:2\nb rack 7\n", ":2: found 'b rack 7', expected one host a line"),
        (b"\xff\xfe", "UTF-8"),
    ],
    ids=["empty", "comments", "slots", "unknown words", "binary"],
)
def test_read_hostfile_unusable_is_refused_with_its_name(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        read_hostfile(file)
    assert sentence in str(caught.value)
    assert str(file) in str(caught.value)


def test_read_hostfile_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hostfile(tmp_path / "none")


def test_hosts_of_list_and_file_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="give only one"):
        hosts_of(["a:1"], "hosts.txt")
