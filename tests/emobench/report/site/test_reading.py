"""What a reader must not miss: columns out of sight, verdicts on a phone, lines under lines, charts on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from emobench.leaderboard.entry import Entry

Opened = Callable[..., Page]
Row = Callable[..., Entry]

GROUND = "node => getComputedStyle(node).backgroundColor"


def x_of(node: Locator) -> float:
    box = node.bounding_box()
    assert box is not None
    return box["x"]


def test_a_wide_table_fades_where_it_goes_on_and_its_objectives_stay(board: Opened, row: Row) -> None:
    metrics = {f"a_long_task_{n}/accuracy": [0.5, 0.6, 0.7] for n in range(20)}
    page = board([row("mle", metrics), row("emo", metrics)], dark=True)
    grounds = [page.locator(part).evaluate(GROUND) for part in (".dt-container", ".table:has(.dt-container)")]
    assert grounds[0] == grounds[1]  # what the table fades to
    scroller = page.locator(".scroller:has(.grid)")
    mask = "node => getComputedStyle(node).maskImage"
    expect(scroller).to_have_class("dt-layout-cell dt-layout-full scroller more-right")
    assert "56px" in scroller.evaluate(mask)
    scroller.evaluate("node => node.scrollTo(300, 0)")
    expect(scroller).to_have_class("dt-layout-cell dt-layout-full scroller more-right more-left")
    objective = page.locator("table.grid tbody td.text:nth-child(2)").first
    assert x_of(objective) == pytest.approx(x_of(scroller), abs=1)
    assert "gradient" in objective.evaluate("node => getComputedStyle(node, '::after').backgroundImage")
    scroller.evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    expect(scroller).to_have_class("dt-layout-cell dt-layout-full scroller more-left")
    assert "56px" not in scroller.evaluate(mask)


def test_a_phone_shows_difference_and_verdict_below_the_metric(opened: Opened, toy: Path) -> None:
    page = opened(toy, width=375)
    base, candidate = (
        page.get_by_label(f"Compare {name} of small").get_attribute("data-entry") for name in ("mle", "emo")
    )
    page.evaluate(f"location.hash = '#/compare/{base}/{candidate}'")
    table = page.get_by_role("region", name="Verdicts, table")
    expect(table.locator(".difference").first).to_have_text("+10.07")
    assert table.evaluate("node => node.scrollWidth - node.clientWidth") == 0
    line = table.locator("tbody tr").first
    tops = line.locator("th, td").evaluate_all(
        """cells => Object.fromEntries(cells.map(
            (cell) => [cell.tagName === "TH" ? "metric" : cell.dataset.head || cell.className,
                       cell.getBoundingClientRect().top]))"""
    )
    first = sorted(tops, key=tops.__getitem__)[:3]
    assert first[0] == "metric"
    assert set(first[1:]) == {"number difference", "verdict"}
    heads = line.locator("td[data-head]").evaluate_all("cells => cells.map(cell => cell.dataset.head)")
    assert heads == ["mle", "emo", "95 % interval", "p", "Within", "Detectable", "Test"]


def test_charts_out_of_sight_are_drawn_for_full_page_pictures_and_paper(opened: Opened, toy: Path) -> None:
    expect(opened(toy).locator(".chart svg.marks")).to_have_count(6)
