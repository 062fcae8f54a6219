"""What pyproject.toml cannot say: conf/ is installed as mlbench/conf, and the decoder is built where it can be.

The decoder is one shared library that every Python loads with ctypes, so a wheel that holds it is bound to the
platform and to no Python. Without a compiler or libjpeg-turbo the wheel is built all the same, without it."""

import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

NATIVE = Path("mlbench", "worker", "native")
LIBRARY = "libmlbench_native.so"
COMMANDS = {}


class BuildWithDecoder(build_py):
    """Copies the modules, then builds the decoder beside its source in the copy."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / NATIVE
        subprocess.run([sys.executable, str(NATIVE / "build.py"), "--out", str(target)], check=True)


COMMANDS["build_py"] = BuildWithDecoder

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1: the wheel is then marked as pure
    pass
else:

    class PlatformWheel(bdist_wheel):
        """`py3-none-PLATFORM` when the decoder is in the wheel, `py3-none-any` when it is not."""

        def get_tag(self) -> tuple[str, str, str]:
            if (Path(self.bdist_dir) / NATIVE / LIBRARY).exists() or _built_decoder(self.distribution):
                self.root_is_pure = False
                return ("py3", "none", super().get_tag()[2])
            return super().get_tag()

    COMMANDS["bdist_wheel"] = PlatformWheel


def _built_decoder(distribution: Distribution) -> bool:
    build = distribution.get_command_obj("build_py")
    return (Path(build.build_lib) / NATIVE / LIBRARY).exists()


setup(
    packages=[*find_packages(include=["mlbench*"]), "mlbench.conf"],
    package_dir={"mlbench": "mlbench", "mlbench.conf": "conf"},
    cmdclass=COMMANDS,
)
