"""The page of a report in a real browser: no error, no request, every plot drawn, on desktop and phone, light and dark,
and printed; and what others put into a database stays text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mlbench.publish.report import Material, RunTelemetry, build_report, candidates, not_checked
from mlbench.store.tables import NoteRow, RunSet
from tests.support.chromium import Chromium, Page
from tests.support.report_sets import full_run_set

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
DESKTOP, PHONE = (1280, 900), (390, 844)

PLOTS = """
[...document.querySelectorAll("figure")].map((figure) => {
  const shown = [...figure.querySelectorAll(".plot")].filter((plot) => getComputedStyle(plot).display !== "none");
  const svg = shown.length === 1 ? shown[0].querySelector("svg") : null;
  const box = svg === null ? null : svg.getBoundingClientRect();
  const lines = svg === null ? [] : [...svg.querySelectorAll(".mark-line path")].map((path) => path.getTotalLength());
  const marks = svg === null ? 0 : svg.querySelectorAll(".role-mark path, .role-mark line").length;
  return {
    id: figure.id, shown: shown.length, width: box && box.width, height: box && box.height, marks: marks, lines: lines,
    label: shown.length === 1 ? shown[0].getAttribute("aria-label") : null,
  };
})
"""
CONTRAST = """
(() => {
  const channels = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  const light = (text) => { const [r, g, b] = channels(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (text) => { const l = light(text); return (Math.max(l, paper) + 0.05) / (Math.min(l, paper) + 0.05); };
  const found = {};
  for (const node of document.querySelectorAll("figure .plot svg text")) {
    if (node.textContent) found[node.textContent] = ratio(getComputedStyle(node).fill);
  }
  for (const node of document.querySelectorAll("figure .plot svg .role-mark path")) {
    const style = getComputedStyle(node);
    const label = node.closest("figure").id + " " + style.fill + style.stroke;
    const colours = [style.fill, style.stroke].filter((colour) => colour !== "none" && colour !== "transparent");
    if (colours.length && !node.closest(".mark-area") && node.getAttribute("aria-roledescription") !== "rect mark") {
      found[label] = Math.max(...colours.map(ratio));
    }
  }
  return found;
})()
"""


def material(run_set: RunSet) -> Material:
    run = candidates(run_set)[0]
    return Material(
        run_set=run_set,
        compliance=not_checked("a test"),
        telemetry=RunTelemetry(run=run, series=run.telemetry),
        telemetry_reason="",
        sizing=None,
        sizing_reason="a test",
    )


def write_page(folder: Path, *run_sets: RunSet) -> Path:
    built = build_report(
        [material(run_set) for run_set in run_sets],
        formats=[],
        made_at=datetime(2026, 1, 2, tzinfo=UTC),
        command="mlbench report x --out y",
    )
    path = folder / "report.html"
    path.write_bytes(built.files["report.html"])
    return path


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_set = full_run_set(num_points=200)
    run_set.notes.append(NoteRow(severity="error", rule="X", file=HOSTILE, text=HOSTILE))
    run_set.system = f"DGX {HOSTILE}"
    return write_page(tmp_path_factory.mktemp("page"), run_set)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_page_draws_every_plot_without_error_or_request(
    browser: Chromium, page_path: Path, size: tuple[int, int], dark: bool
) -> None:
    page = browser.open(page_path, width=size[0], height=size[1], dark=dark)
    plots: list[dict[str, Any]] = page.evaluate(PLOTS)
    assert page.console == []
    assert page.requests == []
    assert len(plots) == 13
    for plot in plots:
        assert plot["shown"] == 1, plot
        assert plot["width"] > 250, plot
        assert plot["height"] > 40, plot
        assert plot["marks"] > 0, plot
        assert len(plot["label"]) > 30, plot
        # A line that is all gaps has a path, but no length.
        assert all(length > 0.2 * plot["width"] for length in plot["lines"]), plot
    # Nothing reaches beyond the page; wide tables scroll inside their own box.
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_plots_can_be_read_on_their_paper(browser: Chromium, page_path: Path, dark: bool) -> None:
    # WCAG 2.1: 4.5 to 1 for text, 3 to 1 for what a graph needs. Sky blue bars carry their numbers beside them.
    page = browser.open(page_path, width=DESKTOP[0], height=DESKTOP[1], dark=dark)
    found: dict[str, float] = page.evaluate(CONTRAST)
    assert len(found) > 50
    faint = {name: round(ratio, 2) for name, ratio in found.items() if ratio < 2.0}
    assert faint == {}
    texts = {name: ratio for name, ratio in found.items() if not name.startswith("plot-")}
    assert {name: round(ratio, 2) for name, ratio in texts.items() if ratio < 3.0} == {}


def test_text_of_others_stays_text(browser: Chromium, page_path: Path) -> None:
    page = browser.open(page_path, width=DESKTOP[0], height=DESKTOP[1])
    assert page.evaluate("document.title").startswith("LabX DGX </script>")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.getElementById('findings').textContent.includes('onerror')") is True


def test_policy_of_the_page_refuses_a_script_that_came_in_all_the_same(
    browser: Chromium, page_path: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "report.html"
    text = page_path.read_text(encoding="utf-8")
    broken.write_text(text.replace("</footer>", "</footer><script>document.title = 'taken'</script>"), encoding="utf-8")
    page = browser.open(broken, width=DESKTOP[0], height=DESKTOP[1])
    assert page.evaluate("document.title") != "taken"
    assert any("Content Security Policy" in line for line in page.console)


def test_pointing_at_a_mark_tells_its_value(browser: Chromium, page_path: Path) -> None:
    page = browser.open(page_path, width=DESKTOP[0], height=DESKTOP[1])
    said = page.evaluate(
        """(() => {
          const mark = document.querySelector("#plot-throughput .wide .role-mark path[aria-label]");
          const box = mark.getBoundingClientRect();
          const at = { bubbles: true, clientX: box.x + 5, clientY: box.y + 5 };
          mark.dispatchEvent(new PointerEvent("pointermove", at));
          const hint = document.getElementById("hint");
          return hint.hidden ? null : hint.textContent;
        })()"""
    )
    assert "overall: 78,4" in said  # white paper, figure 5: 78,454 over 32 GPUs
    assert said.endswith("samples/s, mean of 5")


def test_several_run_sets_are_drawn_side_by_side(browser: Chromium, tmp_path: Path) -> None:
    small = full_run_set("small", num_hosts=1, num_points=100)
    for run in small.runs:
        run.samples_per_s = 20_947.0  # white paper, figure 5, 8 GPUs (lower reading)
    path = write_page(tmp_path, small, full_run_set("large", num_points=100))
    page: Page = browser.open(path, width=PHONE[0], height=PHONE[1])
    plots = page.evaluate(PLOTS)
    assert page.console == []
    assert {"plot-throughput", "plot-comparison", "plot-telemetry_cpu_1", "plot-telemetry_cpu_2"} <= {
        plot["id"] for plot in plots
    }
    assert all(plot["marks"] > 0 and plot["shown"] == 1 for plot in plots)
    assert page.evaluate("document.querySelectorAll('[id]').length") == page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map((node) => node.id)).size"
    )


def test_printed_page_opens_the_folded_tables_and_closes_them_again(
    browser: Chromium, page_path: Path, tmp_path: Path
) -> None:
    page = browser.open(page_path, width=DESKTOP[0], height=DESKTOP[1], dark=True)
    closed = "document.querySelectorAll('details:not([open])').length"
    assert page.evaluate(closed) > 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(closed) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(closed) > 0
    page.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert page.console == []
