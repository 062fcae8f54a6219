"""Reads every result log below a folder: into SQLite as `mlbench import` does, or with mlperf_logging alone.

python import_logs.py FOLDER ours|official      prints one JSON object; amount is the number of logs
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def ours(tree: Path) -> int:
    """Parse, score and store. Returns the number of runs."""
    from mlbench.collect.tree import scan_tree
    from mlbench.ingest.published import import_folder
    from mlbench.store.engine import open_database
    from mlbench.store.repository import save_run_set

    num_logs = 0
    with tempfile.TemporaryDirectory(prefix="mlbench-bench-") as folder:
        engine = open_database(f"sqlite:///{folder}/results.sqlite")
        for result_folder in scan_tree(tree).folders:
            for run_set in import_folder(result_folder).run_sets:
                save_run_set(engine, run_set)
                num_logs += run_set.num_runs
    return num_logs


def official(tree: Path) -> int:
    """Parse with the parser of the compliance checker. Returns the number of logs."""
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    logging.disable(logging.CRITICAL)
    logs = sorted(tree.rglob("result_*.txt"))
    for log in logs:
        parse_file(str(log), "1.0.0")
    return len(logs)


def main() -> None:
    """Time one of both, imports of modules left out."""
    tree, how = Path(sys.argv[1]), sys.argv[2]
    work: Callable[[Path], int] = {"ours": ours, "official": official}[how]
    warm_up(how)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    amount = work(tree)
    value = {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu_begun, "amount": amount}
    print(json.dumps(value), flush=True)


def warm_up(how: str) -> None:
    """Import what the work imports: its time is start-up, which is measured elsewhere."""
    if how == "ours":
        import mlbench.ingest.published
        import mlbench.store.repository  # noqa: F401
    else:
        import mlperf_logging.compliance_checker.mlp_parser  # noqa: F401


if __name__ == "__main__":
    main()
