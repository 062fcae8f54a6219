"""The harness of `make bench`: turns, ratios, verdicts and the table. No times are asserted here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.performance.__main__ import main, select
from tests.performance.command import PeerError, json_of, run_command, sample_of
from tests.performance.harness import (
    Experiment,
    Goal,
    Metrics,
    Quantity,
    Ratio,
    Report,
    Sample,
    ratio_of,
    run,
)
from tests.performance.machine import machine_facts
from tests.performance.table import WIDTH, closing_lines, heading, json_value, machine_lines, report_lines


def contestant(walls_s: list[float], turns: list[str], name: str, cpu_s: float | None = None) -> Callable[[], Metrics]:
    left = iter(walls_s)

    def measure() -> Metrics:
        turns.append(name)
        return {"work": Sample(wall_s=next(left), cpu_s=cpu_s, amount=10)}

    return measure


def experiment(turns: list[str], goal: Goal | None, quantity: Quantity = Quantity.rate) -> Experiment:
    return Experiment(
        name="example",
        about="numbers chosen for the test",
        contestants={
            "ours": contestant([1.0, 2.0, 4.0], turns, "ours", cpu_s=2.0),
            "peer": contestant([2.0, 3.0, 8.0], turns, "peer", cpu_s=6.0),
        },
        ratios=[
            Ratio(
                name="ours / peer",
                unit="images/s",
                quantity=quantity,
                ours=("ours", "work"),
                peer=("peer", "work"),
                goal=goal,
            )
        ],
    )


def test_run_contestants_take_turns_and_ratio_is_of_the_medians() -> None:
    turns: list[str] = []
    (outcome,) = run(experiment(turns, Goal(bound=1.5, at_least=True)), 3).outcomes
    assert turns == ["ours", "peer"] * 3
    assert (outcome.ours.median, outcome.ours.low, outcome.ours.high) == (5.0, 2.5, 10.0)
    assert outcome.wall_ratio is not None
    # medians: 10 images in 2 s against 10 in 3 s; single rounds: 2/1, 3/2, 8/4
    assert outcome.wall_ratio.median == pytest.approx(1.5)
    assert (outcome.wall_ratio.low, outcome.wall_ratio.high) == (1.5, 2.0)
    assert outcome.cpu_ratio is not None
    assert outcome.cpu_ratio.median == pytest.approx(3.0)
    assert outcome.met is True


@pytest.mark.parametrize(
    ("goal", "quantity", "met"),
    [
        (Goal(bound=1.51, at_least=True), Quantity.rate, False),
        (Goal(bound=0.7, at_least=False), Quantity.time, True),
        (Goal(bound=0.6, at_least=False), Quantity.time, False),
        (Goal(bound=0.19, at_least=False, of_ratio=False), Quantity.time, False),
        (Goal(bound=0.2, at_least=False, of_ratio=False, of_cpu=True), Quantity.time, True),
        (None, Quantity.rate, None),
    ],
)
def test_outcome_goal_is_judged_by_what_it_is_about(goal: Goal | None, quantity: Quantity, met: bool | None) -> None:
    (outcome,) = run(experiment([], goal, quantity), 3).outcomes
    assert outcome.met is met


def test_run_contestant_that_fails_is_named_and_the_others_go_on() -> None:
    turns: list[str] = []
    given = experiment(turns, Goal(bound=1, at_least=True))

    def broken() -> Metrics:
        raise PeerError("torch cannot be imported")

    given.contestants["peer"] = broken
    report = run(given, 3)
    assert turns == ["ours"] * 3
    assert report.failures == {"peer": "torch cannot be imported"}
    assert report.outcomes == []
    assert "  failed: peer: torch cannot be imported" in report_lines(report)


def test_goal_missed_by_wall_time_alone_on_a_busy_machine_is_told_apart() -> None:
    given = experiment([], Goal(bound=2.5, at_least=True))
    report = run(given, 3)
    for others_cores, shown, closing in (
        (0.1, "MISSED", "  missed: ours / peer: 1.50, goal >=2.5 (40% below)"),
        (1.5, "(busy)", "  not met: ours / peer: 1.50, goal >=2.5 (busy); by CPU time 3.00 meets it"),
    ):
        seen = replace(report, others_cores=others_cores)
        assert report_lines(seen)[1].endswith(shown)
        assert closing_lines([seen]) == ["0 of 1 goals met", closing]


def test_ratio_without_numbers_of_one_side_is_none() -> None:
    assert ratio_of([], [1.0]) is None
    assert ratio_of([1.0], []) is None


def whole_report() -> Report:
    given = experiment([], Goal(bound=1.6, at_least=True))
    given.missing.append("PostgreSQL: " + "a long reason " * 12)
    given.ratios.append(
        Ratio(
            name="a name that is far too long for the first column of a table",
            unit="GB/s read and written",
            quantity=Quantity.rate,
            ours=("ours", "work"),
        )
    )
    return run(given, 3)


def test_table_fits_80_columns_and_says_what_is_missed() -> None:
    report = replace(whole_report(), others_cores=0.1)
    lines = [*machine_lines(machine_facts()), *heading(), *report_lines(report), *closing_lines([report])]
    assert max(map(len, lines)) <= WIDTH == 80
    text = "\n".join(lines)
    assert "  ours / peer, images/s           5.00    3.33  1.50  1.50 to 2.00  >=1.6 MISSED" in lines
    assert "    the same of CPU time          5.00    1.67  3.00  3.00 to 3.00" in lines
    assert "0 of 1 goals met" in text
    assert "  missed: ours / peer: 1.50, goal >=1.6 (6% below)" in lines


def test_json_holds_every_round() -> None:
    report = whole_report()
    value = json.loads(json.dumps(json_value(machine_facts(), [report])))
    (found,) = value["experiments"]
    assert [sample["work"]["wall_s"] for sample in found["rounds"]["peer"]] == [2.0, 3.0, 8.0]
    assert found["ratios"][0]["met"] is False
    assert found["ratios"][0]["goal"] == {"bound": 1.6, "at_least": True, "of_ratio": True, "of_cpu": False}
    assert value["machine"]["num_cpus"] >= 1


def test_command_too_slow_or_failing_is_one_sentence() -> None:
    with pytest.raises(PeerError, match=r"not done within 0\.2 s"):
        run_command([sys.executable, "-c", "import time; time.sleep(30)"], limit_s=0.2)
    with pytest.raises(PeerError, match=r"status 1: ValueError: no"):
        run_command([sys.executable, "-c", "raise ValueError('no')"])
    with pytest.raises(PeerError, match="cannot be started"):
        run_command(["/no/such/program"])


def test_command_processor_time_of_a_child_is_counted() -> None:
    code = "import os, time; begun = time.process_time()\nwhile time.process_time() - begun < 0.2: pass"
    done = run_command(["/bin/sh", "-c", f'"{sys.executable}" -c "{code}"; true'])
    assert done.cpu_s >= 0.2


def test_peer_output_behind_a_launchers_prefix_is_read() -> None:
    text = 'warning\n[0]<stdout>:{"wall_s": 2.5, "cpu_s": null, "amount": 3}\nbye\n'
    assert sample_of(text) == Sample(wall_s=2.5, cpu_s=None, amount=3.0)
    with pytest.raises(PeerError, match="no JSON object"):
        json_of("nothing here")


def test_select_takes_beginnings_of_names() -> None:
    first, second = (experiment([], None) for _ in range(2))
    first.name, second.name = "training.32", "check"
    assert select([first, second], None) == [first, second]
    assert select([first, second], "train, other") == [first]
    assert select([first, second], "nothing") == []


@pytest.mark.slow
def test_bench_quick_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way through with real contestants: the start of the verbs, the smallest comparison."""
    assert main(["--only", "startup", "--quick", "--rounds", "1", "--json", str(tmp_path / "bench.json")]) == 0
    output = capsys.readouterr().out
    assert "STARTUP" in output
    assert max(map(len, output.splitlines())) <= WIDTH
    value = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert {ratio["name"] for ratio in value["experiments"][0]["ratios"]} >= {"--help", "results list", "plan"}


def test_bench_unknown_name_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing"]) == 2
    assert "no such comparison" in capsys.readouterr().err
