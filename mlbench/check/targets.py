"""The quality each benchmark must reach, read from the rule files of the installed mlperf_logging.

The rules are Python text in YAML. They are never evaluated: only the plain form "the value is at least (or at most)
this number" is understood, and everything else is "not known".
"""

from __future__ import annotations

import re
from functools import lru_cache

from mlbench.analyse.score import Target
from mlbench.check.rcp import mlperf_logging_folder, ruleset_version
from mlbench.plan.rules import CLOSED_TARGET

_MAX_BYTES = 1_000_000
_CHECK = re.compile(r"""^\s*ATLEAST_ONE_CHECK:\s*(["'])(?P<rule>.*)\1\s*$""", re.MULTILINE)
_NUMBER = r"\d+(?:\.\d+)?"
_VALUE = r"v\['value'\]"
_RULE = re.compile(
    rf"\(?{_VALUE} (?P<relation>>=|<=) (?P<number>{_NUMBER})\)?(?: and \(?{_VALUE} (?:<=?|>=?) {_NUMBER}\)?)?"
)


@lru_cache(maxsize=256)
def ruleset_target(benchmark: str, ruleset: str) -> Target | None:
    """What a ruleset asks of a benchmark in the closed division; None when it does not say so in a plain number."""
    if benchmark == "resnet":
        return Target(CLOSED_TARGET)
    version = ruleset_version(ruleset)
    if version is None or not benchmark.replace("_", "").isalnum():
        return None
    folder = mlperf_logging_folder() / "compliance_checker" / f"training_{'.'.join(map(str, version))}"
    path = folder / f"closed_{benchmark}.yaml"
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return None
    rules = [found["rule"].strip() for found in _CHECK.finditer(path.read_text(encoding="utf-8"))]
    found = _RULE.fullmatch(rules[0]) if len(rules) == 1 else None
    return Target(float(found["number"]), found["relation"] == ">=") if found else None


def target_of(benchmark: str | None, ruleset: str | None, logged: float | None) -> Target | None:
    """The target of a run: the logged one, else the ruleset's; None when neither is known.

    Which direction is good comes from the ruleset; for a benchmark it does not know, an accuracy is good when high.
    """
    rule = ruleset_target(benchmark, ruleset) if benchmark and ruleset else None
    if rule is None and benchmark == "resnet":
        rule = Target(CLOSED_TARGET)
    if logged is None:
        return rule
    return Target(logged, rule.higher_is_better if rule else True)
