"""Overrides of the command line, looked at before Hydra composes: one sentence for each mistake.

Hydra's own texts send a user who mistyped a key to `+key`, which creates a key that nothing reads; here a key is
looked up in the schema (`mlbench.config`), and the near miss is named.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlbench.errors import ConfigError, near_miss
from mlbench.secret_names import MASK, holds_secret, mask_override

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

SECTIONS_OF_PROFILES = {"hardware.compute": "+hardware=dgxa100", "hardware.storage": "+hardware=f800"}
"""Sections that are empty until a profile fills them, each with an example."""

HOST_KEYS = ("hosts", "launcher.hosts")
_ELEMENT = re.compile(r"\[\d+\]$")
"""OmegaConf names an element of a list by its place, `hosts[0]`."""


@dataclass(frozen=True, slots=True)
class Override:
    """One override: `text` is what Hydra is given; `key` without `+` or `~`; `prefix` is that sign."""

    text: str
    key: str
    prefix: str
    value: str
    is_sweep: bool
    hydra: HydraOverride

    @property
    def shown(self) -> str:
        """The text as a message may hold it."""
        return mask_override(self.text)

    @property
    def shown_value(self) -> str:
        return MASK if holds_secret(self.key, self.value) else self.value

    def values(self) -> list[str]:
        """The override once for each value it names."""
        if not self.is_sweep:
            return [self.text]
        return [f"{self.prefix}{self.key}={value}" for value in self.hydra.sweep_string_iterator()]


_EXAMPLES: Mapping[Any, str] = {str: "[a,b]", int: "[4,8]", float: "[0.5,1.0]"}


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the schema. A section has `children`; a free mapping (environment, extra) takes any key."""

    type: Any
    optional: bool
    children: Mapping[str, Any] | None = None
    free: bool = False

    @property
    def expected(self) -> str:
        """What may stand here, in words."""
        if self.children is not None:
            return "a section with keys of its own"
        if isinstance(self.type, type) and issubclass(self.type, Enum):
            return " or ".join(member.name for member in self.type) + self._or_null
        if typing.get_origin(self.type) is list:
            (item,) = typing.get_args(self.type)
            members = [member.name for member in item] if isinstance(item, type) and issubclass(item, Enum) else []
            return f"a list of {' or '.join(members)}, [{members[0]}]" if members else f"a list, {_EXAMPLES[item]}"
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        return words.get(self.type, "a mapping, {key: value}") + self._or_null

    @property
    def _or_null(self) -> str:
        return " or null" if self.optional else ""


class Schema:
    """The keys that a configuration class knows."""

    def __init__(self, root: type) -> None:
        self.root = Node(root, False, _children(root))

    def find(self, key: str) -> Node | None:
        """The node at a dotted key, None when there is none. A key inside a free mapping is found as text."""
        node = self.root
        for word in key.split("."):
            if node.free:
                return Node(str, True)
            if node.children is None or word not in node.children:
                return None
            node = _node(node.children[word])
        return node

    def every_key(self) -> Iterator[str]:
        """Every dotted key, sections too, in the order of the schema."""
        yield from _walk("", self.root)

    def unknown(self, key: str) -> str:
        """The sentence for a key that is not there, with the near miss."""
        head, _, last = key.rpartition(".")
        parent = self.find(head) if head else self.root
        if parent is not None and parent.children is None:
            return f"unknown key {key!r}; {head} is a value and has no keys"
        siblings = {word: f"{head}.{word}" if head else word for word in (parent.children or {})} if parent else {}
        everywhere: dict[str, str] = {}
        for known in self.every_key():
            everywhere.setdefault(known.rpartition(".")[2], known)
        meant = _closest(last, siblings, 0.75) or everywhere.get(last) or _closest(last, siblings, 0.6)
        meant = meant or _closest(last, everywhere, 0.75) or _same_first_word(last, everywhere)
        if meant:
            return f"unknown key {key!r}; did you mean {meant!r}?"
        if head:
            place = head if parent else head.partition(".")[0]
            return f"unknown key {key!r}" + (f"; {place} has {', '.join(siblings)}" if siblings else "")
        return f"unknown key {key!r}; the top level has {', '.join(siblings)}"


def _same_first_word(word: str, known: Mapping[str, str]) -> str | None:
    """`batch_size` may mean `batch_per_rank`."""
    first = word.partition("_")[0]
    return next((key for name, key in known.items() if name.partition("_")[0] == first), None)


def _closest(word: str, known: Mapping[str, str], cutoff: float) -> str | None:
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return known[matches[0]] if matches else None


@cache
def _children(cls: type) -> Mapping[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _node(hint: Any) -> Node:
    optional = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        optional = len(members) < len(typing.get_args(hint))
        hint = members[0]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Node(hint, optional, _children(hint))
    return Node(hint, optional, free=typing.get_origin(hint) is dict)


def _walk(prefix: str, node: Node) -> Iterator[str]:
    for word, hint in (node.children or {}).items():
        key = f"{prefix}{word}"
        yield key
        yield from _walk(f"{key}.", _node(hint))


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Split each override into key and value. Host lists may be given with commas or blanks, without brackets.

    Raises ConfigError for text that is not KEY=VALUE.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        text = _bracket_hosts(text)
        if "=" not in text and not text.startswith("~"):
            raise ConfigError(f"{mask_override(text)!r} is not an override; expected KEY=VALUE, for example gpus=2")
        try:
            hydra = parser.parse_override(text)
        except HydraException as error:
            key = text.partition("=")[0]
            raise ConfigError(
                f"override {mask_override(text)!r} cannot be read; put a value with special characters into quotes: "
                f"\"{key}='...'\" (shell quotes outside, single quotes inside)"
            ) from error
        if not hydra.key_or_group or hydra.package is not None:
            raise ConfigError(
                f"override {mask_override(text)!r} has no plain key; expected KEY=VALUE, for example gpus=2"
            )
        sign, rest = _sign(text)
        parsed.append(
            Override(text, hydra.key_or_group, sign, rest.partition("=")[2], hydra.is_sweep_override(), hydra)
        )
    return parsed


def repeats(overrides: Sequence[str]) -> list[str]:
    """A sentence for each key that is given more than once: Hydra takes the last value and says nothing.

    `+hardware` given twice is refused when the configuration is composed, and mappings are put together, `{A: 1}` and
    `{B: 2}`. Raises ConfigError as `parse_overrides`.
    """
    parsed = [item for item in parse_overrides(overrides) if item.key != "hardware" and not item.value.startswith("{")]
    last = {override.key: override for override in parsed}
    found = []
    for key, override in last.items():
        count = sum(other.key == key for other in parsed)
        if count > 1:
            times = "twice" if count == 2 else f"{count} times"
            found.append(f"{key} is given {times}; the last, {override.shown_value}, counts")
    return found


def _bracket_hosts(text: str) -> str:
    sign, rest = _sign(text)
    key, equals, value = rest.partition("=")
    if key not in HOST_KEYS or not equals or value.strip().startswith("[") or value.strip() in ("", "null"):
        return text
    words = value.strip().strip("'\"").replace(",", " ").split()
    return f"{sign}{key}=[{','.join(words)}]"


def _sign(text: str) -> tuple[str, str]:
    rest = text.lstrip("+~")
    return text[: len(text) - len(rest)], rest


def check_overrides(
    overrides: Sequence[Override], schema: Schema, groups: Mapping[str, Mapping[str, Path]]
) -> list[Override]:
    """Refuse what cannot be composed; return the overrides as Hydra shall see them.

    Args: groups: group -> its files by name.
    Raises: ConfigError, one sentence.
    """
    checked: list[Override] = []
    for override in overrides:
        if override.is_sweep:
            hidden = holds_secret(override.key, override.value)
            values = MASK if hidden else ", ".join(override.hydra.sweep_string_iterator())
            raise ConfigError(
                f"{override.key}: found several values ({values}) for one run set; give one, put a text that holds "
                f"commas into quotes, or add --multirun for one run set per value"
            )
        if override.key in groups:
            checked.append(_check_choice(override, groups[override.key]))
        else:
            checked.append(_check_key(override, schema))
    _check_profiles(checked, groups)
    _check_unfilled(checked, groups)
    return checked


def _check_choice(override: Override, known: Mapping[str, Path]) -> Override:
    group = override.key
    value = override.hydra.value()
    names: list[Any] = value if isinstance(value, list) else [value]
    appended = group == "hardware"
    if override.prefix == "~":
        raise ConfigError(f"{override.shown}: the group {group} cannot be taken away; choose one of {', '.join(known)}")
    if not appended and isinstance(value, list):
        raise ConfigError(f"{override.shown}: {group} takes one choice of {', '.join(known)}")
    for name in names:
        if not isinstance(name, str) or name not in known:
            kind = "profile" if appended else "choice"
            near = near_miss(str(name), known)
            found = MASK if holds_secret(group, str(name)) else str(name)
            raise ConfigError(f"unknown {group} {kind} {found!r}{near or ';'} known ones are {', '.join(known)}")
    sign = "+" if appended else ""
    if override.prefix != sign:
        why = "a hardware profile is added with a plus" if appended else f"{group} already has a choice to replace"
        raise ConfigError(f"{override.shown}: {why}; write {_shell(f'{sign}{group}={override.shown_value}')}")
    if len(set(names)) < len(names):
        raise ConfigError(f"{override.shown}: names a profile twice")
    return override


def _shell(text: str) -> str:
    return f"'{text}'" if "[" in text else text


def _check_key(override: Override, schema: Schema) -> Override:
    key = override.key
    if key.split("/")[0] == "hydra" or key.startswith("hydra."):
        raise ConfigError(f"{override.shown}: Hydra's own settings are fixed; mlbench writes to runs_dir")
    node = schema.find(key)
    if node is None:
        raise ConfigError(schema.unknown(key))
    if override.prefix == "~":
        raise ConfigError(f"{override.shown}: a key cannot be taken away; give it another value or null")
    if node.children is not None:
        example = SECTIONS_OF_PROFILES.get(key)
        ways = (
            f"choose a profile, {example}" if example else f"set one of its keys, {key}.{next(iter(node.children))}=..."
        )
        raise ConfigError(f"{key}: found {override.shown_value!r}, but {key} is a section; {ways}")
    if _in_free_mapping(key, schema):
        # Any key may be set here, new or not: what Hydra calls `++`.
        return dataclasses.replace(override, text=f"++{key}={override.value}", prefix="++")
    if override.prefix:
        raise ConfigError(
            f"{override.shown}: {key} exists already; write {key}={override.shown_value} without {override.prefix}"
        )
    return override


def _in_free_mapping(key: str, schema: Schema) -> bool:
    head = key.rpartition(".")[0]
    while head:
        node = schema.find(head)
        if node is not None and node.free:
            return True
        head = head.rpartition(".")[0]
    return False


def _profiles(overrides: Sequence[Override]) -> list[Any]:
    """The names given to `+hardware=`."""
    chosen: list[Any] = []
    for override in overrides:
        if override.key == "hardware":
            value = override.hydra.value()
            chosen += value if isinstance(value, list) else [value]
    return chosen


def _check_profiles(overrides: Sequence[Override], groups: Mapping[str, Mapping[str, Path]]) -> None:
    """Refuse two `+hardware=`, and two systems of one kind, of which Hydra would mix one: the second over the first."""
    chosen = _profiles(overrides)
    if sum(override.key == "hardware" for override in overrides) > 1:
        raise ConfigError(f"+hardware is given twice; write '+hardware=[{','.join(map(str, chosen))}]'")
    for name in chosen:
        if not any(_fills(groups["hardware"], name, section) for section in SECTIONS_OF_PROFILES):
            raise ConfigError(
                f"{groups['hardware'][name]}: fills neither {' nor '.join(SECTIONS_OF_PROFILES)}; give it one of these "
                "sections, as the shipped profiles do"
            )
    for section in SECTIONS_OF_PROFILES:
        # A profile that gives no name is a user's handful of values for another one.
        named = [name for name in chosen if _fills(groups["hardware"], name, f"{section}.name")]
        if len(named) > 1:
            kind = section.partition(".")[2]
            raise ConfigError(
                f"+hardware=[{','.join(chosen)}]: {' and '.join(named)} are each a {kind} system; choose one of them"
            )


def _check_unfilled(overrides: Sequence[Override], groups: Mapping[str, Mapping[str, Path]]) -> None:
    """Refuse `hardware.compute.x=` when no chosen profile fills `hardware.compute`."""
    chosen = _profiles(overrides)
    for section, example in SECTIONS_OF_PROFILES.items():
        wanting = [override for override in overrides if override.key.startswith(f"{section}.")]
        if wanting and not any(_fills(groups["hardware"], name, section) for name in chosen):
            kind = section.partition(".")[2]
            raise ConfigError(
                f"{wanting[0].shown}: no profile has filled {section}; choose a {kind} profile first, "
                f"for example {example}"
            )


def _fills(files: Mapping[str, Path], name: str, section: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a profile, or one that it builds upon, gives values to a section."""
    import yaml

    file = files.get(name)
    if file is None or name in seen:
        return False
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as a profile: {' '.join(str(error).split())}") from error
    package = _package(text)
    if package == section:
        return True
    node: Any = content
    relative = section if package == "_global_" else section.removeprefix(f"{package}.")
    for word in relative.split("."):
        node = node.get(word) if isinstance(node, dict) else None
    if node is not None:
        return True
    bases = content.get("defaults", []) if isinstance(content, dict) else []
    return any(isinstance(base, str) and _fills(files, base, section, seen | {name}) for base in bases)


def _package(text: str) -> str:
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if line.startswith("#") and words[:1] == ["@package"] and len(words) == 2:
            return words[1]
        if line and not line.startswith("#"):
            break
    return "hardware"


def value_error(error: Exception, schema: Schema, where: str) -> ConfigError:
    """One sentence for what Hydra or OmegaConf refused: where, found, expected, what to do."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    source = next((found for text in map(str, chain) if (found := _profile_of(text))), where)
    source = f"{source}: " if source else ""
    for cause in reversed(chain):
        lines = str(cause).splitlines()
        # Hydra repeats OmegaConf's text in its own when a profile is at fault; the key is then in the text alone.
        told = next((line.split()[1] for line in lines if line.strip().startswith("full_key: ")), None)
        key = getattr(cause, "full_key", None) or told
        if not key:
            continue
        key = _ELEMENT.sub("", key)
        node = schema.find(key)
        if node is None:
            return ConfigError(f"{source}{schema.unknown(key)}")
        if any("missing mandatory value" in line.lower() for line in lines):
            return ConfigError(f"{source}{key} has no value; expected {node.expected}")
        said = next((line for line in lines if "value '" in line.lower()), "")
        found = said.split("'")[1] if said.count("'") > 1 else None
        shown = found is not None and not holds_secret(key, found)
        what = f"found {found!r}" if shown else "found another kind of value"
        return ConfigError(f"{source}{key}: {what}, expected {node.expected}{_near_member(node, found)}")
    text = " ".join(str(error).split("Available options", maxsplit=1)[0].split())
    return ConfigError(f"{source}{text}")


def _profile_of(text: str) -> str | None:
    """Hydra says `In 'hardware/mine': ...` of a file."""
    if text.startswith("In '") and not text.startswith("In 'config'"):
        return f"profile {text.split(chr(39))[1]}"
    return None


def _near_member(node: Node, found: str | None) -> str:
    if found is None or not (isinstance(node.type, type) and issubclass(node.type, Enum)):
        return ""
    return near_miss(found, [member.name for member in node.type])
