"""The documents say what is: links lead somewhere, verbs and options exist, and nothing that exists is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import mlbench
from mlbench.cli.main import VERBS, Verb

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]*))?\)")
COMMAND = re.compile(r"\bmlbench (?P<words>[^`|\n]*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_link_of_a_page_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / match["path"]).resolve() if match["path"] else page
        assert target.exists(), f"{match[0]} leads nowhere"
        assert target.is_relative_to(ROOT), f"{match[0]} leads out of the project"
        if match["heading"]:
            assert match["heading"] in headings(target), f"{match[0]}: no such heading"


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            target = (page.parent / match["path"]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                ahead.append(target)
    assert {name(page) for page in PAGES} - {name(page) for page in reached} == {"CHANGELOG.md"}


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for page in folder.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_verb_is_in_readme_and_documents(verb: Verb) -> None:
    spoken = re.compile(rf"\bmlbench {verb.name}\b")
    if verb.name != "run":  # the default verb is the bare `mlbench`
        assert spoken.search((ROOT / "README.md").read_text(encoding="utf-8")), "README.md"
    assert any(spoken.search(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").rglob("*.md"))


def command_of(verb: Verb) -> Any:
    from importlib import import_module

    return get_command(getattr(import_module(verb.module), verb.attribute))


def commands() -> dict[str, Any]:
    """`results list` -> its command; a verb without sub-verbs stands for itself."""
    found: dict[str, Any] = {}
    for verb in VERBS:
        command = command_of(verb)
        found[verb.name] = command
        for sub, below in getattr(command, "commands", {}).items():
            found[f"{verb.name} {sub}"] = below
    return found


def options_of(command: Any) -> set[str]:
    return {word for option in command.params for word in (*option.opts, *option.secondary_opts)} | {"--help"}


def spoken_commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every command line that a page writes: what follows `mlbench`, and its options.

    A line that ends in a backslash goes on in the next one."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for match in COMMAND.finditer(text):
        words = re.split(r" [#;&>] ?|  +#", match["words"])[0]
        yield words, OPTION.findall(words)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_option_of_a_command_line_is_one_that_its_verb_takes(page: Path) -> None:
    known = commands()
    for words, options in spoken_commands(page):
        first, _, rest = words.partition(" ")
        second = rest.split(" ")[0]
        verb = f"{first} {second}" if f"{first} {second}" in known else first if first in known else "run"
        unknown = set(options) - options_of(known[verb]) - {"--version"}
        assert not unknown, f"mlbench {words}: {verb} takes no {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.name in ("results", "data", "db", "baseline")])
def test_sub_verb_is_in_the_documents(verb: Verb) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for sub in getattr(command_of(verb), "commands", {}):
        assert re.search(rf"\b{verb.name} (\w+ / )*{sub}\b", text), f"{verb.name} {sub}"


@pytest.mark.parametrize(("line", "command"), sorted(commands().items()), ids=lambda item: str(item))
def test_every_option_of_a_verb_has_a_help_text(line: str, command: Any) -> None:
    for option in command.params:
        assert getattr(option, "help", None), f"mlbench {line}: {option.name}"


def test_change_log_begins_with_the_version_of_the_package() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == mlbench.__version__


def test_documents_name_no_module_or_test_that_is_not_there() -> None:
    named = re.compile(r"\b((?:mlbench|tests)/[\w/.*-]+\.(?:py|yaml|sh|c))\b")
    for page in PAGES:
        for path in named.findall(page.read_text(encoding="utf-8")):
            assert list(ROOT.glob(path)), f"{name(page)}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_is_finished(page: Path) -> None:
    assert not re.search(r"@@\w+@@|\b(TODO|FIXME|TBD)\b", page.read_text(encoding="utf-8"))
