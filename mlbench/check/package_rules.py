"""Rules over a submission tree: names, sizes, links and what belongs where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlbench.check.finding import Severity
from mlbench.check.judgement import judge
from mlbench.check.packaging import logs_agree
from mlbench.check.rule import Outcome, Problem, Rule, Unknown, listed
from mlbench.check.rulesets import at_least
from mlbench.check.subject import MAX_JSON_BYTES, Entry, Tree
from mlbench.collect.mllog import shown
from mlbench.collect.mllog_scan import finite
from mlbench.wording import count_of

MAX_FILE_BYTES = 50 * 1024 * 1024
"""repo_checker.py: files over 50 MB are refused."""
_RESULT = re.compile(r"^result_(\d+)\.txt$")
SCALING_FILE = "scaling.json"
_BESIDE_RESULTS = {SCALING_FILE, "package_checker_params", "power"}


def bad_name(name: str) -> str | None:
    """Why MLCommons' repository refuses a file or folder of this name; None when it does not."""
    if name.startswith("."):
        return "starts with a dot"
    if " " in name:
        return "has a space"
    if any(not letter.isprintable() for letter in name):
        return "has a control character"
    return None


def laid_out(tree: Tree) -> Iterable[Outcome]:
    """PKG-01: results/<system>/<benchmark>/result_<n>.txt with a systems/<system>.json for each."""
    if not tree.sets:
        yield Unknown(reason="no results/<system>/<benchmark>/result_<n>.txt in the tree")
    if tree.truncated:
        yield Unknown(reason=f"more than {count_of(len(tree.entries), 'name')} in the tree; the rest was not looked at")
    known = {item.system for item in tree.sets}
    for entry in tree.entries:
        if entry.path.parent == tree.root / "systems" and entry.path.suffix == ".json":
            system = entry.path.name.removesuffix(".json")
            if system not in known and not (tree.root / "results" / system).is_dir():
                yield Problem(
                    found="a system description without results",
                    expected=f"results/{system}/",
                    file=entry.name,
                    severity=Severity.warning,
                )


def names_accepted(tree: Tree) -> Iterable[Outcome]:
    """PKG-02: names without spaces or leading dots."""
    severity = None if at_least(tree.ruleset, "2.0.0") else Severity.warning
    for entry in tree.entries:
        reason = bad_name(entry.path.name)
        if reason is not None:
            yield Problem(
                found=f"the name {shown(entry.path.name)} {reason}",
                expected="names without spaces and leading dots",
                file=entry.name,
                severity=severity,
            )


def files_small(tree: Tree) -> Iterable[Outcome]:
    """PKG-03: no file over 50 MiB."""
    for entry in tree.entries:
        if not entry.is_dir and not entry.is_link and entry.size_bytes > MAX_FILE_BYTES:
            yield Problem(
                found=f"{entry.size_bytes / 2**20:.1f} MiB", expected="at most 50 MiB", file=entry.name
            )  # fmt: skip


def links_whole(tree: Tree) -> Iterable[Outcome]:
    """PKG-04: no link that leads nowhere or out of the tree."""
    for entry in tree.entries:
        if entry.link_problem is not None:
            yield Problem(
                found=f"a link that {entry.link_problem}", expected="a file of the tree itself", file=entry.name
            )  # fmt: skip


def no_leftovers(tree: Tree) -> Iterable[Outcome]:
    """PKG-05: no empty folders, which git does not keep, and no compiled Python."""
    for entry in tree.entries:
        problem = leftover(entry)
        if problem is not None:
            yield Problem(found=problem, expected="files that belong to the submission", file=entry.name)


def leftover(entry: Entry) -> str | None:
    """Why an entry has no place in a repository, apart from its name, size or link; None when it has."""
    if entry.is_dir and entry.num_children == 0:
        return "an empty folder"
    if entry.is_dir and entry.path.name == "__pycache__":
        return "compiled Python"
    if not entry.is_dir and entry.path.suffix in (".pyc", ".pyo"):
        return "compiled Python"
    return None


def code_there(tree: Tree) -> Iterable[Outcome]:
    """PKG-06: the code of each benchmark is in benchmarks/<benchmark>."""
    if not tree.sets:
        yield Unknown(reason="no results, so no benchmark to look for", severity=Severity.warning)
    for benchmark in sorted({item.benchmark_folder or "" for item in tree.sets}):
        folder = tree.root / "benchmarks" / benchmark
        inside = [entry for entry in tree.entries if entry.path.is_relative_to(folder) and not entry.is_dir]
        if not inside:
            where = f"benchmarks/{benchmark}"
            yield Problem(found=f"no code in {where}", expected="the code that was run, with a README", file=where)


def results_alone(tree: Tree) -> Iterable[Outcome]:
    """PKG-07: only result files, and what the checker knows, beside the results."""
    for item in tree.sets:
        strange = [name for name in item.other_names if name not in _BESIDE_RESULTS]
        if strange:
            yield Problem(
                found=f"unknown files: {listed([shown(name) for name in strange])}",
                expected="result_<n>.txt, scaling.json, package_checker_params, power",
                file=item.name,
            )


def numbered(tree: Tree) -> Iterable[Outcome]:
    """PKG-08: results are numbered from 0 without gaps."""
    for item in tree.sets:
        numbers = [int(found[1]) for file in item.logs if (found := _RESULT.match(Path(file.name).name))]
        if sorted(numbers) != list(range(len(item.logs))):
            yield Problem(
                found=f"numbered {listed([str(number) for number in numbers])}",
                expected=f"result_0.txt to result_{len(item.logs) - 1}.txt",
                file=item.name,
            )


def options_known(tree: Tree) -> Iterable[Outcome]:
    """PKG-09: package_checker_params holds known words; what is in force is said."""
    for item in tree.sets:
        for file, line, word in item.unknown_options:
            yield Problem(
                found=f"unknown word {shown(word)}", expected="rcp-bypass or seed-checker-bypass", file=file, line=line
            )
        if item.options:
            yield Problem(
                found=f"in force: {listed(list(item.options))}",
                expected="results that need no bypass",
                file=item.name,
                severity=Severity.note,
                remedy="be ready to have this reviewed by the submission committee",
            )


def scaling_agrees(tree: Tree) -> Iterable[Outcome]:
    """PKG-11: scaling.json holds the factor of the reference test, or 1."""
    for item in tree.sets:
        if SCALING_FILE not in item.other_names:
            continue
        name = f"{item.name}/{SCALING_FILE}"
        factor = read_scaling(item.folder / SCALING_FILE)
        result = judge(item).rcp
        expected = max(result.factor or 1.0, 1.0) if result is not None else 1.0
        if factor is None:
            yield Problem(found="no scaling_factor", expected='{"scaling_factor": <number>}', file=name)
        elif abs(factor - expected) > 1e-6 * expected:
            yield Problem(found=f"scaling_factor {factor:g}", expected=f"{expected:.10g}", file=name)


def read_scaling(path: Path) -> float | None:
    """The factor in a scaling.json; None when it is not one."""
    if path.is_symlink() or path.stat().st_size > MAX_JSON_BYTES:
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    factor = finite(data.get("scaling_factor")) if isinstance(data, dict) else None
    return factor if factor is not None and factor > 0 else None


def offenders(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """(name, reason) of everything that MLCommons' repository rules refuse, or that git would lose."""
    found: list[tuple[str, str]] = []
    for entry in entries:
        if reason := bad_name(entry.path.name):
            found.append((entry.name, reason))
        if entry.link_problem is not None:
            found.append((entry.name, f"is a link that {entry.link_problem}"))
        if not entry.is_dir and not entry.is_link and entry.size_bytes > MAX_FILE_BYTES:
            found.append((entry.name, f"has {entry.size_bytes / 2**20:.1f} MiB, at most 50 are allowed"))
        if problem := leftover(entry):
            found.append((entry.name, f"is {problem}"))
    return found


PACKAGE_RULES: tuple[Rule[Tree], ...] = (
    Rule(id="PKG-01", title="The layout of a submission", severity=Severity.error,
         source="MLPerf submission rules; mlperf_logging package_checker", remedy="build the tree with mlbench package",
         check=laid_out),
    Rule(id="PKG-02", title="Names that the repository takes", severity=Severity.error,
         source="mlperf_logging repo_checker (2.0.0 on; a warning before)", remedy="rename or remove it",
         check=names_accepted),
    Rule(id="PKG-03", title="No file over 50 MiB", severity=Severity.error, source="mlperf_logging repo_checker",
         remedy="remove or shorten it", check=files_small),
    Rule(id="PKG-04", title="Links stay inside the tree", severity=Severity.error,
         source="mlperf_logging repo_checker", remedy="replace the link by the file", check=links_whole),
    Rule(id="PKG-05", title="No empty folders, no compiled Python", severity=Severity.warning, source="mlbench",
         remedy="remove it", check=no_leftovers),
    Rule(id="PKG-06", title="The code is there", severity=Severity.warning, source="MLPerf submission rules",
         remedy="add benchmarks/<benchmark>/implementations/... with a README", check=code_there),
    Rule(id="PKG-07", title="Nothing else beside the results", severity=Severity.warning,
         source="mlperf_logging package_checker", remedy="move or rename it", check=results_alone),
    Rule(id="PKG-08", title="Results are numbered from 0", severity=Severity.warning,
         source="MLPerf submission rules", remedy="rename the files", check=numbered),
    Rule(id="PKG-09", title="Known options only", severity=Severity.error, source="mlperf_logging package_checker",
         remedy="correct or remove the word", check=options_known),
    Rule(id="PKG-10", title="Packaged logs are the originals", severity=Severity.error, source="mlbench",
         remedy="build the package again from its run sets", check=logs_agree),
    Rule(id="PKG-11", title="scaling.json agrees with the reference test", severity=Severity.warning,
         source="mlperf_logging rcp_checker", remedy="remove it, or let mlperf_logging's package_checker write it",
         check=scaling_agrees),
)  # fmt: skip
