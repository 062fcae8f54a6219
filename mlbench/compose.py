"""Composition: conf/ and the user's own folder, with the overrides of a command line, into one typed `Config`.

Hydra composes; what it would say of a mistake is replaced by one sentence with the near miss named
(`mlbench.overrides` looks at the overrides before Hydra does). No working folder is changed, no `outputs/` and no
`.hydra/` is written.

Profiles are looked for in `--config-dir`, then in ./conf of the current folder, then in the shipped conf/.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from mlbench.config import Config
from mlbench.errors import ConfigError
from mlbench.overrides import Override, Schema, check_overrides, parse_overrides, value_error
from mlbench.secret_names import is_secret_name

GROUPS = ("hardware", "benchmark", "data", "launcher", "container", "submission")
_SCHEMA_NAME = "schema"
_FROM_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*['\"]?(\w+)")


def shipped_conf() -> Path:
    """The folder of the shipped profiles: mlbench/conf of a wheel, conf/ beside the package in an editable install.

    Raises ConfigError when neither is there (a broken installation).
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise ConfigError(f"{package}: no conf/config.yaml was installed with mlbench; install the package again")


def search_path(config_dir: Path | str | None = None) -> list[Path]:
    """Folders of profiles, the first wins: `config_dir`, ./conf of the current folder, the shipped one.

    Raises ConfigError when `config_dir` is not a folder, or a folder of the user's holds a config.yaml, which would
    replace every default.
    """
    shipped = shipped_conf()
    folders: list[Path] = []
    if config_dir is not None:
        given = Path(config_dir).expanduser().absolute()
        if not given.is_dir():
            raise ConfigError(f"--config-dir {given}: found no such folder; expected one with hardware/, data/, ...")
        folders.append(given)
    own = Path.cwd() / "conf"
    if any((own / group).is_dir() for group in GROUPS):
        folders.append(own)
    folders = [folder for folder in dict.fromkeys(folders) if not folder.samefile(shipped)]
    for folder in folders:
        if (folder / "config.yaml").exists():
            raise ConfigError(
                f"{folder / 'config.yaml'}: would replace every default of mlbench; put values into a file of a group, "
                f"such as {folder / 'submission' / 'ours.yaml'}, and choose it by submission=ours"
            )
    return [*folders, shipped]


def options(group: str, folders: Sequence[Path]) -> dict[str, Path]:
    """The files of a group: name -> file, the first folder wins; names with a leading underscore are parts."""
    found: dict[str, Path] = {}
    for folder in folders:
        for file in sorted((folder / group).glob("*.yaml")):
            if not file.name.startswith("_"):
                found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def describe(file: Path) -> str:
    """The first sentence of a profile's leading comment: what it is, in its author's words."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (words and not text):
            break
        if text and not text.startswith("@package"):
            words.append(text)
    return " ".join(words).partition(". ")[0].rstrip(".")


def compose(overrides: Sequence[str] = (), config_dir: Path | str | None = None) -> Config:
    """Compose the configuration of one run set.

    Args:
        overrides: as on the command line, `+hardware=dgxa100`, `gpus=32`, `data.path=./d`.
        config_dir: a folder of the user's own profiles, besides ./conf.
    Raises: ConfigError, one sentence, for every mistake in the overrides or in a profile.
    """
    folders = search_path(config_dir)
    groups = {group: options(group, folders) for group in GROUPS}
    parsed = check_overrides(parse_overrides(overrides), Schema(Config), groups)
    config = _compose(parsed, folders)
    return normalise(config)


def normalise(config: Config) -> Config:
    """Move the short spelling `hosts` to `launcher.hosts`. Raises ConfigError when both name hosts, but others."""
    if config.hosts:
        if config.launcher.hosts and config.launcher.hosts != config.hosts:
            raise ConfigError("hosts and launcher.hosts name different hosts; give only one of them")
        config.launcher.hosts = config.hosts
        config.hosts = []
    return config


def expand_sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The points of `--multirun`: one list of overrides for each combination of the values given with commas.

    `["gpus=8,16", "seed=1"]` gives `[["gpus=8", "seed=1"], ["gpus=16", "seed=1"]]`, the last key varies fastest.
    Of a key that is given twice the last counts, so the values before it make no points of their own.
    Raises ConfigError for what cannot be parsed.
    """
    points: list[list[str]] = [[]]
    parsed = parse_overrides(overrides)
    last = {override.key: override for override in parsed}
    for override in parsed:
        texts = override.values()
        if override.key != "hardware" and override is not last[override.key]:
            texts = texts[-1:]
        points = [[*point, text] for point in points for text in texts]
    return points


def to_yaml(config: Config) -> str:
    """The resolved configuration as YAML: every key with its value, nothing to be looked up elsewhere.

    The database URL is left out: it can hold a password, and says nothing about the run.
    """
    from omegaconf import OmegaConf

    tree = OmegaConf.structured(config)
    tree.db.url = None
    return OmegaConf.to_yaml(tree, resolve=True)


def from_resolved(text: str) -> Config:
    """Read what `to_yaml` wrote. Keys that are unknown or missing are errors, as in composition.

    Raises: ConfigError.
    """
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        tree = OmegaConf.create(text)
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), tree))
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"the stored configuration is not YAML: {_one_line(error)}") from error
    except (OmegaConfBaseException, ValueError) as error:
        raise value_error(error, Schema(Config), "the stored configuration") from error
    if not isinstance(config, Config):
        raise ConfigError("the stored configuration is a list, expected keys and values")
    return normalise(config)


def _compose(parsed: Sequence[Override], folders: Sequence[Path]) -> Config:
    # Importing Hydra takes a tenth of a second, so verbs that need no configuration do not pay for it.
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    ConfigStore.instance().store(name=_SCHEMA_NAME, node=Config)
    *own, shipped = folders
    plugin = _own_folders_plugin()
    plugin.folders = own
    Plugins.instance().register(plugin)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(shipped)):
            tree = hydra_compose(config_name="config", overrides=[override.text for override in parsed])
        _refuse_secrets(OmegaConf.to_container(tree, resolve=False), "")
        config = OmegaConf.to_object(tree)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise value_error(error, Schema(Config), "") from error
    except (yaml.YAMLError, OSError, RecursionError) as error:
        raise ConfigError(f"a profile cannot be read: {_one_line(error)}") from error
    if not isinstance(config, Config):
        raise ConfigError("the configuration is not a mapping of the known keys; look at config.yaml of --config-dir")
    return config


def _refuse_secrets(node: Any, key: str) -> None:
    """The configuration is written to files and shown, so no value of it may come from a variable with a secret. The
    database URL alone is never written."""
    if isinstance(node, dict | list):
        for word, item in node.items() if isinstance(node, dict) else enumerate(node):
            _refuse_secrets(item, f"{key}.{word}" if key else str(word))
    elif isinstance(node, str) and key != "db.url" and not _masked(key):
        secret = next((name for name in _FROM_ENVIRONMENT.findall(node) if is_secret_name(name)), None)
        if secret is not None:
            raise ConfigError(
                f"{key}: takes its value from the variable {secret}, which is named like a secret, and the "
                "configuration is kept in files; leave the variable in the environment, where the ranks find it"
            )


def _masked(key: str) -> bool:
    """A rank's variable with the name of a secret: its value is given to the ranks and kept nowhere."""
    section, _, name = key.rpartition(".")
    return section.endswith(".environment") and is_secret_name(name)


@cache
def _own_folders_plugin() -> Any:
    """The Hydra plugin that puts the user's `folders` before the shipped one (Hydra's own setting puts them behind).

    Made once and on first use: Hydra keeps every class it was given, and is not imported before it is needed.
    """
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class OwnFolders(SearchPathPlugin):
        folders: ClassVar[Sequence[Path]] = ()

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in reversed(self.folders):
                search_path.prepend(provider="user", path=f"file://{folder}")

    return OwnFolders


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
