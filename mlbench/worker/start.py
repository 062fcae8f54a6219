"""Runs a module of this folder as a program, wherever the folder lies and whatever it is called there.

    python start.py __main__ job.json            the worker
    python -I -S start.py parent --log-dir D -- COMMAND...

The folder is made importable as the package `mlbench_worker`. Neither it nor its own parent is put on the path, so a
module here never hides one of the standard library, and another Python's site-packages stay out.
"""

from __future__ import annotations

import os
import runpy
import sys
import types

PACKAGE = "mlbench_worker"


def main() -> None:
    """Module name first, then its arguments."""
    if len(sys.argv) < 2:
        sys.exit("usage: start.py MODULE [ARGUMENT ...]")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [here]
    sys.modules[PACKAGE] = package
    name = sys.argv[1]
    sys.argv = [os.path.join(here, name + ".py")] + sys.argv[2:]
    runpy.run_module("%s.%s" % (PACKAGE, name), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
