"""Facts of one run set as sentences and badges."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mlbench.analyse.score import RUNS_ASKED
from mlbench.publish.charts.labels import minutes_or_seconds, size_label
from mlbench.publish.comparison import counted
from mlbench.publish.report.blocks import Badge, Tone, Verdict
from mlbench.store.tables import Run, RunSet
from mlbench.wording import count_of

CACHE_WORDS = {
    "cold": Badge("cold cache", Tone.good),
    "warm": Badge("WARM CACHE", Tone.warn),
}


def moment(value: datetime | None) -> str | None:
    return None if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def number(value: float | None, form: str = ",.4g") -> str | None:
    return None if value is None else format(value, form)


def asked(run_set: RunSet) -> int:
    """How many runs were asked for; for imports what the rules ask."""
    return run_set.repeats_asked or RUNS_ASKED.get(run_set.benchmark or "", 0) or len(counted(run_set))


def good_of_asked(run_set: RunSet) -> str:
    """`5 good of 5 asked`."""
    return f"{run_set.num_converged} good of {asked(run_set)} asked"


def is_measurement(run_set: RunSet) -> bool:
    """A run set of the fabric or the storage alone: it has no runs to be good or bad."""
    return not run_set.runs and bool(run_set.allreduce or run_set.storage) and not run_set.rehearsal


def badges(run_set: RunSet) -> list[Badge]:
    """What must be told at a glance: rehearsal or real, score or raw, warm or cold, own or imported."""
    found = []
    if is_measurement(run_set):
        return [Badge("measured here"), Badge("a measurement, no training")]
    if run_set.rehearsal:
        found.append(Badge("REHEARSAL", Tone.bad))
    elif run_set.origin == "import":
        found.append(Badge(f"imported, {run_set.round}" if run_set.round else "imported"))
    else:
        found.append(Badge("measured here"))
    status = {
        "valid": Badge("score", Tone.good),
        "invalid": Badge("INVALID, no score", Tone.bad),
        "raw": Badge("RAW, not a score", Tone.warn),
    }
    found.append(status.get(run_set.score_status, Badge(run_set.score_status, Tone.warn)))
    found.append(CACHE_WORDS.get(run_set.cache or "", Badge("cache state not known", Tone.warn)))
    found.append(Badge(good_of_asked(run_set), Tone.good if run_set.num_converged >= asked(run_set) else Tone.warn))
    if run_set.division:
        found.append(Badge(f"{run_set.division} division"))
    return found


def verdict_of(run_set: RunSet, label: str | None) -> Verdict:
    """Score with its formula, or why there is none."""
    name = f"{label}: " if label else ""
    if is_measurement(run_set):
        what = [text for text, rows in (("all-reduce", run_set.allreduce), ("storage", run_set.storage)) if rows]
        told = [f"Nothing was trained: {run_set.score_reason}." if run_set.score_reason else "Nothing was trained."]
        return Verdict(headline=f"{name}{' and '.join(what)} measured", tone=Tone.plain, details=told)
    others = "" if run_set.num_runs == asked(run_set) else f"; {count_of(run_set.num_runs, 'was', 'were')} run"
    details = [f"{good_of_asked(run_set)}{others}."]
    if run_set.score_status == "valid" and run_set.score_s is not None:
        headline = f"{name}score {minutes_or_seconds(run_set.score_s)}"
        details.insert(0, formula(run_set))
        if run_set.score_reason:
            details.append(f"{run_set.score_reason[0].upper()}{run_set.score_reason[1:]}.")
        tone = Tone.good
    else:
        word = "invalid, no score" if run_set.score_status == "invalid" else "raw, not a score"
        headline = f"{name}{word}"
        details.insert(0, f"Why: {run_set.score_reason or 'no reason is known'}.")
        if run_set.olympic_mean_s is not None:
            details.append(f"Olympic mean, for information: {minutes_or_seconds(run_set.olympic_mean_s)}.")
        tone = Tone.bad if run_set.score_status == "invalid" or run_set.rehearsal else Tone.warn
    if run_set.mean_s is not None and run_set.min_s is not None and run_set.max_s is not None:
        cv = "" if run_set.cv is None else f", coefficient of variation {run_set.cv * 100:.2f} %"
        details.append(
            f"Converged runs: mean {minutes_or_seconds(run_set.mean_s)}, fastest {minutes_or_seconds(run_set.min_s)}, "
            f"slowest {minutes_or_seconds(run_set.max_s)}{cv}."
        )
    return Verdict(headline=headline, tone=tone, details=details)


def formula(run_set: RunSet) -> str:
    """How the score came about, with its numbers."""
    if run_set.olympic_mean_s is None or run_set.score_s is None:
        return "The formula is not known."
    runs = len(counted(run_set))
    text = (
        f"Score = olympic mean {run_set.olympic_mean_s:.3f} s (mean of {max(0, runs - 2)} of {count_of(runs, 'run')}, "
        "fastest and slowest dropped)"
    )
    if run_set.scaling_factor is not None:
        text += f" × {run_set.scaling_factor:.6g} (scaling.json of the round's reviewers)"
    elif run_set.rcp_factor is not None and run_set.rcp_factor > 1 and run_set.origin == "run":
        text += f" × {run_set.rcp_factor:.6g} (reference convergence)"
    else:
        return f"{text}."
    return f"{text} = {run_set.score_s:.3f} s."


def subtitle(run_set: RunSet) -> str:
    size = size_label(run_set)
    nodes = count_of(run_set.num_nodes, "node") if run_set.num_nodes else None
    batch = f"global batch {run_set.global_batch_size:,}" if run_set.global_batch_size else None
    ruleset = f"ruleset {run_set.ruleset}" if run_set.ruleset else None
    return ", ".join(
        part for part in (run_set.benchmark, size, nodes, batch, ruleset, moment(run_set.started_at)) if part
    )


def run_name(run: Run) -> str:
    name = f"warm-up {run.index}" if run.warmup else str(run.index)
    return f"{name}, attempt {run.attempt}" if run.attempt else name


def run_status(run: Run) -> str:
    if run.warmup:
        return "warm-up, never averaged"
    if run.converged:
        return "converged"
    if run.status == "success":
        return "ended" if run.quality_target is None else "not converged"
    return run.status


def cache_word(run: Run) -> str | None:
    return {True: "cold", False: "WARM", None: None}[run.cache_clear]


def plain(value: Any) -> str | None:
    """Any JSON value as a cell; None and an empty field say nothing."""
    if value is None or value in ("", [], {}):
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        told = {key: text for key, item in value.items() if (text := plain(item)) is not None}
        return ", ".join(f"{key}={text}" for key, text in told.items()) or None
    if isinstance(value, list):
        return ", ".join(str(plain(item)) for item in value)
    return str(value)


def joined(parts: Iterable[str | None]) -> str:
    return ", ".join(part for part in parts if part)
