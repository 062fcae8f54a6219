"""Build the decoder: `python -m mlbench.worker.native.build`, or from another directory `python build.py --out DIR`.

Needs a C compiler and the header and library of libjpeg-turbo (Debian: libjpeg62-turbo-dev). One shared library
serves every Python, for it is loaded with ctypes. Standard library only, Python 3.8. When it cannot be built one
sentence says why; the status is 0 all the same, for mlbench works without it (slower), and 1 with --required.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import List, Optional

SOURCES = ("pool.c", "decode.c", "resample.c", "place.c", "record.c", "walk.c", "scan.c", "codes.c", "entropy.c")
HEADERS = ("image.h", "scan.h")
LIBRARY_NAME = "libmlbench_native.so"
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]
LIBRARIES = ["-ljpeg", "-lpthread", "-lm"]
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_TIMEOUT_S = 120


class BuildError(Exception):
    """Why the decoder cannot be built here, in one sentence."""


def library_path() -> str:
    """Where the built library stands: beside its source."""
    return os.path.join(_FOLDER, LIBRARY_NAME)


def compiler() -> Optional[List[str]]:
    """The C compiler's command: $CC, Python's own, cc, gcc or clang; None when there is none."""
    for words in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        argv = shlex.split(words) if words else []
        if argv and shutil.which(argv[0]):
            return argv
    return None


def argv(command: List[str], out: str) -> List[str]:
    """The compiler's command line."""
    return command + FLAGS + ["-o", out] + [os.path.join(_FOLDER, name) for name in SOURCES] + LIBRARIES


def is_current(path: str) -> bool:
    """Whether the library is there and not older than its source."""
    try:
        built = os.path.getmtime(path)
    except OSError:
        return False
    return all(os.path.getmtime(os.path.join(_FOLDER, name)) <= built for name in SOURCES + HEADERS)


def build(folder: str = _FOLDER) -> str:
    """Compile into `folder` and return the library's path. The library appears whole or not at all.

    Raises BuildError: no compiler, no libjpeg-turbo, a compiler error, a folder that cannot be written."""
    command = compiler()
    if command is None:
        raise BuildError("no C compiler (cc, gcc or clang) found; install one, or set CC")
    target = os.path.join(folder, LIBRARY_NAME)
    try:
        handle, temporary = tempfile.mkstemp(suffix=".so", prefix=".native-", dir=folder)
        os.close(handle)
    except OSError as error:
        raise BuildError("%s cannot be written: %s" % (folder, error.strerror))
    try:
        done = subprocess.run(
            argv(command, temporary), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=_TIMEOUT_S
        )
        if done.returncode != 0:
            raise BuildError(_reason(done.stderr.decode("utf-8", "replace")))
        os.chmod(temporary, 0o755)
        os.replace(temporary, target)
    except subprocess.TimeoutExpired:
        raise BuildError("%s took more than %d s" % (command[0], _TIMEOUT_S))
    except OSError as error:
        raise BuildError("%s cannot be started: %s" % (command[0], error.strerror))
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return target


def _reason(output: str) -> str:
    if "jpeglib.h" in output or "-ljpeg" in output or "libjpeg-turbo is needed" in output:
        return "libjpeg-turbo's header and library are not found; install libjpeg62-turbo-dev (or libjpeg-turbo-devel)"
    errors = [line for line in output.splitlines() if "error" in line]
    return "the compiler failed: %s" % (errors or output.splitlines() or ["no message"])[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build mlbench's JPEG decoder.")
    parser.add_argument("--out", default=_FOLDER, help="folder of the library (default: beside the source)")
    parser.add_argument("--if-needed", action="store_true", help="do nothing when the library is newer than its source")
    parser.add_argument("--required", action="store_true", help="end with status 1 when it cannot be built")
    options = parser.parse_args()
    if options.if_needed and is_current(os.path.join(options.out, LIBRARY_NAME)):
        return 0
    try:
        print("decoder built: %s" % build(options.out))
    except BuildError as error:
        print("decoder not built: %s; images are read with simplejpeg or MXNet, slower" % error, file=sys.stderr)
        return 1 if options.required else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
