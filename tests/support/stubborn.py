"""A rank as bad as they come: ignores TERM, and so does a grandchild in a session of its own, forked twice.

stubborn.py FOLDER      writes FOLDER/alive_<rank> when all of it runs
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    names = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    rank = next((os.environ[name] for name in names if name in os.environ), "0")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        while True:
            time.sleep(60)
    Path(sys.argv[1], f"alive_{rank}").touch()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
