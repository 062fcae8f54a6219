"""The data flow of the code: each stage imports only stages to its left, and importing does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mlbench"

# Left to right. Names on one level may not import each other, only themselves.
LEVELS: list[tuple[str, ...]] = [
    ("errors",),
    ("secret_names", "wording"),
    ("choices",),
    ("config",),
    ("overrides",),
    ("compose",),
    ("plan",),
    ("dataset",),
    ("preflight",),
    ("launch",),
    ("collect",),
    ("store",),
    ("analyse",),
    ("check",),
    ("ingest",),
    ("publish",),
    ("runner",),
    ("cli",),
]
ISLAND_SHARED = {
    "mlbench.worker.job",
    "mlbench.worker.model",  # the models' names; MXNet is imported in its functions alone
    "mlbench.worker.native",
    "mlbench.worker.pipelines.records",
    "mlbench.worker.processes",
    "mlbench.worker.recordio",
    "mlbench.worker.s3",  # boto3 is imported in its functions alone
}


def _level(module: str) -> int:
    part = module.split(".")[1] if "." in module else ""
    for number, names in enumerate(LEVELS):
        if part in names:
            return number
    raise AssertionError(f"{module} has no place in the data flow; add it to LEVELS or move it")


def _imports(path: Path) -> set[str]:
    """Modules of mlbench that `path` names in an import statement outside `if TYPE_CHECKING`, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.startswith("mlbench"))
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("mlbench"):
            if node.module in {"mlbench", "mlbench.worker"}:
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            else:
                found.add(str(node.module))
    return found


def _modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "worker" not in path.relative_to(PACKAGE).parts)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_stages_to_its_left(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts == ("__init__",) or parts == ("__main__",):
        return
    own = _level(".".join(("mlbench", *parts)))
    for module in _imports(path):
        if module in ISLAND_SHARED or module == "mlbench.__version__":
            continue
        assert not module.startswith("mlbench.worker"), f"{path} imports {module}: the worker is an island"
        assert _level(module) <= own, f"{path} imports {module}, which lies to its right"


def test_worker_imports_nothing_of_the_rest() -> None:
    for path in sorted((PACKAGE / "worker").rglob("*.py")):
        assert not _imports(path), f"{path} must use relative imports only"


def test_analyse_reads_no_file_and_no_database() -> None:
    forbidden = {"pathlib", "os", "io", "sqlalchemy", "subprocess", "socket"}
    for path in sorted((PACKAGE / "analyse").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & {name.split(".")[0] for name in names}, f"{path} does I/O"


def test_module_stays_under_five_hundred_lines() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")
    }
    long = {str(path): length for path, length in lengths.items() if length > 500}
    assert not long, f"does each hold one noun? {long}"


def test_only_cli_prints_or_exits() -> None:
    for path in _modules():
        if path.relative_to(PACKAGE).parts[0] == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"print", "sys.exit", "exit"}, f"{path}:{node.lineno} calls {name}"


@pytest.mark.slow
def test_importing_every_module_opens_no_file_for_writing_and_starts_nothing(tmp_path: Path) -> None:
    """Imports every module of the orchestrator under an audit hook that refuses effects."""
    names = [".".join(("mlbench", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in _modules()]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    names = [name for name in names if ".migrations" not in name]
    script = tmp_path / "import_all.py"
    script.write_text(
        "import importlib, sys\n"
        "import sqlalchemy, omegaconf, hydra, typer, rich  # their own imports are not ours to judge\n"
        "def refuse(event, args):\n"
        "    if event in ('subprocess.Popen', 'socket.connect', 'os.mkdir', 'os.remove'):\n"
        "        raise AssertionError(f'{event} {args} at import')\n"
        "    if event == 'open' and isinstance(args[1], str) and set(args[1]) & set('wax+'):\n"
        "        raise AssertionError(f'{event} {args} at import')\n"
        "sys.dont_write_bytecode = True\n"
        "sys.addaudithook(refuse)\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
