"""`launcher=local`: the ranks on this host, through horovodrun and Gloo. (With MPI it is mpirun on this host.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlbench.launch import environment
from mlbench.launch.base import Launch

LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLauncher:
    """`horovodrun` is a path; `own` is what is passed on of mlbench's environment."""

    horovodrun: str
    own: Mapping[str, str]
    extra_args: tuple[str, ...] = ()
    name: str = "local"

    def argv(self, launch: Launch) -> list[str]:
        return [
            self.horovodrun,
            "--gloo",
            "-np",
            str(launch.num_ranks),
            "-H",
            f"{LOCALHOST}:{launch.num_ranks}",
            # Its cache is one file in HOME that starts in the same second would write together.
            "--disable-cache",
            *self.extra_args,
            *launch.command,
        ]

    def environment(self, launch: Launch) -> dict[str, str]:
        return environment.for_launch(launch, self.own)

    def afterwards(self, launch: Launch) -> list[list[str]]:
        """Nothing: every rank is on this host, below the supervisor."""
        return []
