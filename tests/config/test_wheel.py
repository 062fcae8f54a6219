"""Case P43: profiles work after an installation from the wheel, far from the source tree."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with mlbench from its wheel; the other packages are those that run this test."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT)
    assert listed.returncode == 0, listed.stderr
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = run(*pip, "wheel", source, "--no-deps", "--no-build-isolation", "-q", "-w", base, cwd=base)
    assert built.returncode == 0, built.stderr
    environment = base / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (wheel,) = base.glob("*.whl")
    done = run(*pip, "--python", python, "install", "--no-deps", "--no-index", "-q", wheel, cwd=base)
    assert done.returncode == 0, done.stderr
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    outer = environment / "lib" / version / "site-packages" / "outer.pth"
    # After the wheel's own files, and without the editable install of the source tree.
    outer.write_text(f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r})\n", encoding="utf-8")
    return environment / "bin"


@pytest.mark.slow
def test_wheel_lists_and_uses_shipped_profiles_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "mlbench", "plan", "--profiles", "--json", cwd=tmp_path)
    planned = run(installed / "mlbench", "plan", "+hardware=[dgxa100,f800]", "gpus=32", "--json", cwd=tmp_path)

    assert listed.returncode == 0, listed.stderr
    rows = json.loads(listed.stdout)
    assert {"dgxa100", "dss8440", "f800", "ecs"} <= {row["name"] for row in rows if row["group"] == "hardware"}
    assert all(Path(row["file"]).is_relative_to(installed.parent) for row in rows)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["batch_per_rank"] == 102
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wheel_user_folder_adds_one_profile_and_overrides_another(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "hardware"
    folder.mkdir(parents=True)
    base = "# @package hardware.compute\nname: {0}\nsystem_name: {0} of the lab\ndevice: gpu\nnum_nodes: 2\n"
    rest = "gpus_per_node: 4\ndefault_gpus: 4\n"
    for name in ("ours", "dgxa100"):
        (folder / f"{name}.yaml").write_text(base.format(name) + rest, encoding="utf-8")

    systems = []
    for name in ("ours", "dgxa100", "dss8440"):
        done = run(installed / "mlbench", "plan", f"+hardware={name}", "data=imagenet", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        systems.append(json.loads(done.stdout)["system"])

    assert systems == ["ours of the lab", "dgxa100 of the lab", "DSS8440"]
