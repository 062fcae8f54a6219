"""What pyproject.toml cannot say: conf/ of the source tree is installed as mlbench/conf."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["mlbench*"]), "mlbench.conf"],
    package_dir={"mlbench": "mlbench", "mlbench.conf": "conf"},
)
