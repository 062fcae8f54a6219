from __future__ import annotations

import pytest

from mlbench.analyse.score import Target
from mlbench.check.targets import ruleset_target, target_of


@pytest.mark.parametrize(
    ("benchmark", "ruleset", "expected"),
    [
        # ATLEAST_ONE_CHECK of compliance_checker/training_<ruleset>/closed_<benchmark>.yaml, mlperf_logging 4.1.68
        ("resnet", "0.7.0", Target(0.759)),
        ("resnet", "4.0.0", Target(0.759)),
        ("bert", "4.0.0", Target(0.72)),
        ("dlrm", "1.0.0", Target(0.8025)),
        ("unet3d", "2.0.0", Target(0.908)),
        ("gpt3", "3.1.0", Target(2.69, higher_is_better=False)),
        ("rnnt", "2.1.0", Target(0.058, higher_is_better=False)),
        ("ssd", "1.0.0", Target(0.23)),
        ("ssd", "2.0.0", Target(0.34)),
        ("bert", "0.7.0", None),  # depends on the batch size
        ("maskrcnn", "1.0.0", None),  # two numbers at once
        ("dlrmv4", "6.1.0", None),  # depends on another record
        ("nobody", "4.0.0", None),
        ("bert", "9.9.9", None),
        ("../../x", "4.0.0", None),
    ],
)
def test_target_of_a_ruleset_is_its_plain_number_or_unknown(
    benchmark: str, ruleset: str, expected: Target | None
) -> None:
    assert ruleset_target(benchmark, ruleset) == expected


def test_logged_target_wins_and_keeps_the_direction_of_the_rule() -> None:
    assert target_of("resnet", "4.0.0", 0.9) == Target(0.9)
    assert target_of("gpt3", "3.1.0", 2.7) == Target(2.7, higher_is_better=False)


def test_target_without_a_round_is_known_for_resnet_only() -> None:
    assert target_of("resnet", None, None) == Target(0.759)
    assert target_of("bert", None, None) is None
    assert target_of(None, None, None) is None
