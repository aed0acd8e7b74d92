"""The front page of a site, in a real browser: what each board says, and the way to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

Opened = Callable[..., Page]

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_index_says_what_a_suite_found_and_leads_to_its_board(
    opened: Opened, toy: Path, width: int, dark: bool
) -> None:
    page = opened(toy, width=width, dark=dark)
    page.goto(toy.with_name("index.html").as_uri())
    table = page.get_by_role("region", name="toy v1, table")
    base, *rows = table.locator("tbody").first.get_by_role("row").all()
    expect(base.get_by_role("rowheader")).to_contain_text("mle, the baseline")
    expect(base.get_by_role("cell").first).to_have_text("60.0")
    emo = next(row for row in rows if row.get_by_role("link", name="emo").count())
    # By hand: the mean of .700, .711 and .691, minus that of .600, .610 and .590, in points; less is better of ppl.
    expect(emo.locator("td.better")).to_contain_text(["+10.07better", "better"])
    expect(emo.get_by_role("rowheader")).to_contain_text("2 better")
    untrained = next(row for row in rows if row.get_by_role("link", name="pretrained").count())
    expect(untrained.get_by_role("rowheader").locator("small")).to_contain_text("seed")  # why nothing is determined
    # A narrow screen scrolls the table, and never the page.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(CONTRAST) == []
    page.get_by_role("link", name="toy v1").click()
    page.wait_for_selector("html[data-ready]")
    expect(page).to_have_url(toy.as_uri() + "#/?suite=toy%20v1")
    expect(page.locator("table.grid")).to_contain_text("tailr")
    page.goto(toy.with_name("index.html").as_uri())
    page.get_by_role("link", name="emo").first.click()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#view-compare h1")).to_have_text("emo against mle")
