"""The rulesets of MLPerf Training that there are, and what each says that a rule of ours needs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mlperf_logging import benchmark_meta

from mlbench.choices import Division, SubmissionStatus
from mlbench.errors import ConfigError, near_miss
from mlbench.plan.rules import RULESETS as RESNET_RULESETS

DEFAULT_RULESET = RESNET_RULESETS[-1]
"""The last ruleset that knows ResNet-50."""

RULESETS = (*RESNET_RULESETS, "4.1.0", "5.0.0", "5.1.0", "6.0.0", "6.1.0")
"""What mlperf_logging 4.1.68 can check; 0.6.0 has another log layout and no package checker worth the name."""

DIVISIONS = tuple(division.value for division in Division)
LOGGED_STATUSES = tuple(status.value for status in SubmissionStatus)
DESCRIPTION_STATUSES = (
    "Available on-premise",
    "Available cloud",
    "Research, Development, or Internal (RDI)",
    "Preview",
)
"""`status` of a system description, checked from ruleset 4.0.0 on (system_desc_checker.py)."""


def parse_ruleset(text: str) -> str:
    """A known ruleset as it stands. Raises ConfigError listing the known ones and the nearest."""
    if text in RULESETS:
        return text
    plain = text.strip().removeprefix("v")
    begun = [ruleset for ruleset in RULESETS if plain and ruleset.startswith(plain)]
    raise ConfigError(
        f"ruleset {text!r} is not known; known are {', '.join(RULESETS)}{near_miss(plain, begun or RULESETS)}"
    )


def parse_division(text: str) -> str:
    """A known division as it stands. Raises ConfigError listing the known ones and the nearest."""
    if text in DIVISIONS:
        return text
    raise ConfigError(f"division {text!r} is not known; known are {', '.join(DIVISIONS)}{near_miss(text, DIVISIONS)}")


def version(ruleset: str) -> tuple[int, ...]:
    return tuple(int(part) for part in ruleset.split("."))


def at_least(ruleset: str, other: str) -> bool:
    return version(ruleset) >= version(other)


def round_ruleset(folder: Path) -> str | None:
    """The ruleset of the round that a path names: a part `v1.0` or `training_results_v1.0` is ruleset 1.0.0."""
    for part in reversed(folder.parts):
        number = part.removeprefix("training_results_").removeprefix("v")
        if part != number and f"{number}.0" in RULESETS:
            return f"{number}.0"
    return None


def knows(ruleset: str, benchmark: str) -> bool:
    return benchmark in benchmark_meta.get_allowed_benchmarks("training", ruleset)


def last_that_knows(benchmark: str) -> str | None:
    known = [ruleset for ruleset in RULESETS if knows(ruleset, benchmark)]
    return known[-1] if known else None


@cache
def _counts() -> dict[str, int]:
    return dict(benchmark_meta.get_result_file_counts("training"))


def num_runs_asked(benchmark: str) -> int | None:
    return _counts().get(benchmark)


def max_lost_runs(benchmark: str) -> int:
    """Runs that may be lost without the set being invalid (package_checker.py; training rules, scoring)."""
    return 4 if benchmark == "unet3d" else 1


def init_limit_min(ruleset: str, division: str | None) -> float:
    """Minutes that initialisation may take (`training_<ruleset>/common.yaml`, key init_stop)."""
    if not at_least(ruleset, "1.0.0"):
        return 20.0
    if not at_least(ruleset, "2.0.0"):
        return 30.0
    return 240.0 if division == "open" else 30.0


def checks_seeds(ruleset: str, division: str | None) -> bool:
    """package_checker runs the seed checker and the RCP test only for these."""
    return at_least(ruleset, "1.0.0") and division == "closed"
