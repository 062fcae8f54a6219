"""Composition: profiles, the user's own folder, the resolved configuration, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbench.choices import CacheMode, Device, Division, LauncherName, StorageKind
from mlbench.compose import GROUPS, compose, expand_sweep, from_resolved, options, search_path, shipped_conf, to_yaml
from mlbench.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No ./conf of the user's, no MLBENCH_HOME."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLBENCH_HOME", raising=False)
    return tmp_path


def write_profile(folder: Path, name: str, text: str) -> None:
    (folder / "hardware").mkdir(parents=True, exist_ok=True)
    (folder / "hardware" / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_compose_nothing_given_is_five_runs_of_this_machine() -> None:
    config = compose()

    assert (config.repeats, config.data.name, config.benchmark.name) == (5, "digits", "resnet50")
    assert config.hardware.compute is None
    assert config.submission.division is Division.open
    assert config.submission.ruleset == "4.0.0"


def test_compose_gpu_profile_brings_imagenet_and_its_recipe() -> None:
    config = compose(["+hardware=dgxa100"])

    assert config.hardware.compute is not None
    assert config.hardware.compute.device is Device.gpu
    assert config.data.num_train == 1281167  # white paper H18597
    assert config.training.base_learning_rate == 6  # training_results_v0.7, NVIDIA
    assert config.hardware.storage is None


def test_compose_two_profiles_fill_compute_and_storage() -> None:
    config = compose(["+hardware=[dgxa100,f800]"])

    assert config.hardware.compute is not None
    assert config.hardware.storage is not None
    assert config.hardware.storage.kind is StorageKind.nas
    assert config.hardware.storage.throughput_gb_per_s == 15  # white paper H18597, per chassis


def test_compose_object_store_moves_the_data_into_its_bucket() -> None:
    assert compose(["+hardware=[dss8440,ecs]"]).data.path == "s3://imagenet/train"


def test_compose_data_path_of_user_wins_over_profile() -> None:
    assert compose(["+hardware=[dss8440,ecs]", "data.path=/mnt/x"]).data.path == "/mnt/x"


def test_compose_data_choice_of_user_wins_over_profile() -> None:
    assert compose(["+hardware=dgxa100", "data=digits"]).data.name == "digits"


def test_compose_other_choices_in_any_order() -> None:
    config = compose(["cache=evict", "launcher=rehearsal", "+extra.rack=B7", "seed=3"])

    assert config.cache is CacheMode.evict
    assert config.launcher.name is LauncherName.rehearsal
    assert (config.extra, config.seed) == ({"rack": "B7"}, 3)


@pytest.mark.parametrize(
    "override",
    ["hosts=[a:5,b:4]", "hosts=a:5,b:4", "hosts='a:5 b:4'", "launcher.hosts=[a:5,b:4]", "launcher.hosts=a:5,b:4"],
)
def test_compose_hosts_in_any_spelling_fill_the_launcher(override: str) -> None:
    config = compose(["launcher=mpirun", override])

    assert config.launcher.hosts == ["a:5", "b:4"]
    assert config.hosts == []


def test_compose_hosts_in_two_places_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hosts and launcher\.hosts name different hosts"):
        compose(["hosts=[a:1]", "launcher.hosts=[b:1]"])


def test_compose_new_variable_of_a_profile_needs_no_plus() -> None:
    config = compose(["+hardware=dgxa100", "hardware.compute.environment.NCCL_DEBUG=INFO"])

    assert config.hardware.compute is not None
    assert config.hardware.compute.environment["NCCL_DEBUG"] == "INFO"
    assert config.hardware.compute.environment["NCCL_SOCKET_IFNAME"] == "ib0"


def test_compose_writes_nothing_into_the_current_folder(empty_folder: Path) -> None:
    compose(["+hardware=dgxa100"])

    assert list(empty_folder.iterdir()) == []


def test_compose_home_variable_moves_the_default_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLBENCH_HOME", "/srv/bench")

    assert compose().data.path == "/srv/bench/data/digits"
    assert compose(["data.path=./d"]).data.path == "./d"


def test_compose_own_conf_folder_is_found_by_itself(empty_folder: Path) -> None:
    write_profile(
        empty_folder / "conf",
        "lab",
        "# @package hardware.compute\nname: lab\nsystem_name: Lab box\ndevice: cpu\nnum_nodes: 1\n"
        "gpus_per_node: 4\ndefault_gpus: 4\n",
    )

    config = compose(["+hardware=lab"])

    assert config.hardware.compute is not None
    assert config.hardware.compute.system_name == "Lab box"


def test_compose_config_dir_adds_one_profile_and_overrides_another(empty_folder: Path) -> None:
    own = empty_folder / "profiles"
    shipped = (shipped_conf() / "hardware" / "dgxa100.yaml").read_text(encoding="utf-8")
    write_profile(own, "dgxa100", shipped.replace("driver: 450.51.06", "driver: 525.0"))
    write_profile(own, "f900", (shipped_conf() / "hardware" / "f800.yaml").read_text().replace("f800", "f900"))

    config = compose(["+hardware=[dgxa100,f900]"], own)

    assert config.hardware.compute is not None
    assert config.hardware.storage is not None
    assert config.hardware.compute.software["driver"] == "525.0"
    assert config.hardware.storage.name == "f900"


def test_compose_profile_on_top_of_a_shipped_one(empty_folder: Path) -> None:
    write_profile(
        empty_folder / "conf",
        "ours",
        "# @package _global_\ndefaults:\n  - dgxa100\n  - _self_\nhardware:\n  compute:\n    host_memory_gb: 2000\n",
    )

    config = compose(["+hardware=ours", "hardware.compute.gpus_per_node=8"])

    assert config.hardware.compute is not None
    assert config.hardware.compute.host_memory_gb == 2000
    assert config.hardware.compute.accelerator_model == "NVIDIA A100-SXM4-40GB"


def test_compose_profile_with_unknown_key_names_profile_and_near_miss(empty_folder: Path) -> None:
    write_profile(empty_folder / "conf", "bad", "# @package hardware.storage\nname: bad\nthroughput_gb_s: 3\n")

    with pytest.raises(ConfigError, match=r"'hardware\.storage\.throughput_gb_s'; did you mean .*throughput_gb_per_s"):
        compose(["+hardware=bad"])


def test_compose_profile_without_a_needed_value_names_the_key(empty_folder: Path) -> None:
    write_profile(empty_folder / "conf", "thin", "# @package hardware.storage\nname: thin\nsystem_name: Thin\n")

    with pytest.raises(ConfigError, match=r"hardware\.storage\.kind has no value; expected nas or s3"):
        compose(["+hardware=thin"])


def test_compose_profile_that_is_no_yaml_is_one_sentence(empty_folder: Path) -> None:
    write_profile(empty_folder / "conf", "torn", "name: [1, 2\n")

    with pytest.raises(ConfigError) as caught:
        compose(["+hardware=torn"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "compute:\n"])
def test_compose_profile_that_fills_no_system_is_refused_with_its_file(empty_folder: Path, text: str) -> None:
    write_profile(empty_folder / "conf", "hollow", text)

    with pytest.raises(ConfigError, match=r"hollow\.yaml: fills neither hardware\.compute nor hardware\.storage"):
        compose(["+hardware=hollow"])


@pytest.mark.parametrize("text", ["&a [*a]\n", "[" * 5000])
@pytest.mark.parametrize("group", ["hardware", "launcher"])
def test_compose_profile_without_end_is_one_sentence(empty_folder: Path, group: str, text: str) -> None:
    file = empty_folder / "conf" / group / "deep.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        compose([f"{'+' if group == 'hardware' else ''}{group}=deep"])
    assert "\n" not in str(caught.value)


def test_search_path_unrelated_conf_folder_is_left_alone(empty_folder: Path) -> None:
    (empty_folder / "conf").mkdir()
    (empty_folder / "conf" / "config.yaml").write_text("server: nginx\n")

    assert search_path() == [shipped_conf()]
    assert compose().repeats == 5


def test_search_path_own_config_yaml_is_refused(empty_folder: Path) -> None:
    write_profile(empty_folder / "conf", "x", "name: x\n")
    (empty_folder / "conf" / "config.yaml").write_text("repeats: 3\n")

    with pytest.raises(ConfigError, match="would replace every default"):
        compose()


def test_search_path_config_dir_that_is_not_there_is_refused(empty_folder: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        search_path(empty_folder / "none")


def test_options_parts_with_underscore_are_no_choices() -> None:
    assert "_stages" not in options("benchmark", [shipped_conf()])
    assert {group: bool(options(group, [shipped_conf()])) for group in GROUPS} == dict.fromkeys(GROUPS, True)


@pytest.mark.parametrize(
    "overrides", [[], ["+hardware=[dgxa100,f800]", "gpus=16"], ["hosts=[a:1,b:1]", "launcher=mpirun"]]
)
def test_resolved_text_composes_to_the_same_configuration(overrides: list[str]) -> None:
    config = compose(overrides)

    assert from_resolved(to_yaml(config)) == config


def test_resolved_text_never_holds_the_database_url() -> None:
    config = compose(["db.url=postgresql://me:secret@db/mlbench"])

    assert "secret" not in to_yaml(config)
    assert config.db.url == "postgresql://me:secret@db/mlbench"


def test_resolved_text_with_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="the stored configuration: unknown key 'repeat'; did you mean 'repeats'"):
        from_resolved(to_yaml(compose()) + "repeat: 3\n")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1,\n", "repeats: three\n", "", "[" * 5000])
def test_resolved_text_that_is_none_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_resolved(text)
    assert "\n" not in str(caught.value)


def test_expand_sweep_gives_one_point_for_each_value() -> None:
    assert expand_sweep(["+hardware=dgxa100", "gpus=8,16,32"]) == [
        ["+hardware=dgxa100", "gpus=8"],
        ["+hardware=dgxa100", "gpus=16"],
        ["+hardware=dgxa100", "gpus=32"],
    ]


def test_expand_sweep_two_keys_give_every_combination() -> None:
    assert expand_sweep(["gpus=1,2", "seed=range(1,3)"]) == [
        ["gpus=1", "seed=1"],
        ["gpus=1", "seed=2"],
        ["gpus=2", "seed=1"],
        ["gpus=2", "seed=2"],
    ]


def test_expand_sweep_key_given_twice_makes_points_of_its_last_values_only() -> None:
    assert expand_sweep(["gpus=1,2", "gpus=4"]) == [["gpus=2", "gpus=4"]]
    assert expand_sweep(["gpus=4", "gpus=1,2"]) == [["gpus=4", "gpus=1"], ["gpus=4", "gpus=2"]]


def test_expand_sweep_host_list_is_one_value() -> None:
    assert expand_sweep(["hosts=a:8,b:8"]) == [["hosts=[a:8,b:8]"]]
