"""The front page of a site, in a real browser: what each board says, and the way to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

Opened = Callable[..., Page]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_index_says_what_a_suite_found_and_leads_to_its_board(
    opened: Opened, toy: Path, width: int, dark: bool
) -> None:
    page = opened(toy, width=width, dark=dark)
    page.goto(toy.with_name("index.html").as_uri())
    table = page.get_by_role("region", name="toy v1, table")
    row = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="small", exact=True))
    expect(row.get_by_role("cell").nth(0)).to_have_text("60.0baseline")
    expect(row.locator("td.better")).to_contain_text(["70.1+10.07 better"])
    # A narrow screen scrolls the table, and never the page.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="toy v1").click()
    page.wait_for_selector("html[data-ready]")
    expect(page).to_have_url(toy.as_uri() + "#/?suite=toy%20v1")
    expect(page.locator("table.grid")).to_contain_text("tailr")
