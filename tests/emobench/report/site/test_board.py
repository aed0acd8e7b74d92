"""The page of a board in a real browser: table, filters, charts, themes, widths, keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from emobench.leaderboard.entry import Entry

Opened = Callable[..., Page]
Row = Callable[..., Entry]

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")

FOCUSED = """
() => {
  const at = document.activeElement;
  return at === document.body ? "" : at.getAttribute("aria-label") || at.textContent;
}
"""


def names(page: Page) -> list[str]:
    """Return the objectives in the order of the table."""
    return page.locator("table.grid .name a").all_inner_texts()


def cells(page: Page, column: str) -> list[str]:
    heads = [head.split("\n")[0] for head in page.locator("table.grid thead th").all_inner_texts()]
    rows = page.locator("table.grid tbody tr:not(.dtrg-group)").all()
    return [row.locator("td").nth(heads.index(column)).inner_text() for row in rows]


def test_the_table_shows_each_group_with_its_numbers(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    for fold in page.locator("tr.dtrg-group summary").all():
        fold.click()
    groups = page.locator("tr.dtrg-group").all_inner_texts()
    assert [text.split("\n")[0] for text in groups] == ["small", "large"]
    assert "100M parameters" in groups[0]
    assert "7B parameters" in groups[1]
    assert "protocol paper@3fa9c1" in groups[0]
    # By hand: the mean of .600, .610 and .590, and their standard deviation over n - 1.
    first = dict(zip(names(page)[:4], cells(page, "sst2")[:4], strict=True))
    assert first["mle"] == "60.0 ± 1.0"
    assert first["pretrained"] == "50.0"
    # The one value of `pretrained` decides nothing, so that only the other group has a best row.
    stars = [text.replace("best beyond noise: ", "") for text in page.locator(".best").all_text_contents()]
    assert stars == ["★90.1 ± 1.0", "★25.0 ± 0.3"]
    reason = page.locator("tr", has_text="pretrained").first.locator(".absent")
    assert reason.get_attribute("title") == "the corpus was not available"


def test_a_click_sorts_within_the_groups(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    header = page.locator("table.grid thead th", has_text="wikitext2")
    header.click()
    # Less is better, so the smallest comes first, and what is absent comes last.
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert names(page) == ["emo", "tailr", "mle", "pretrained", "emo", "tailr", "mle"]
    header.click()
    expect(header).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["mle", "tailr", "emo", "pretrained", "mle", "tailr", "emo"]


def test_filters_apply_to_table_and_charts_and_are_in_the_address(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    page.get_by_label("Model", exact=True).select_option("large")
    assert len(names(page)) == 3
    page.get_by_label("Search", exact=True).fill("tail 0.1")
    expect(page.locator("table.grid .name a")).to_have_text(["tailr"])
    again = opened(toy, page.url.partition("html")[2])
    assert names(again) == ["tailr"]
    assert again.get_by_label("Search", exact=True).input_value() == "tail 0.1"
    again.get_by_label("Search", exact=True).fill("nothing has this name")
    expect(again.locator("table.grid")).to_contain_text("No entry matches")
    assert again.locator(".chart").count() == 0


def differences(page: Page) -> dict[str, list[str]]:
    """Return the cells of each row of the first group, by its name; the baseline's are values, with their spread."""
    body = page.get_by_role("region", name="Differences from the baseline, table").locator("tbody").first
    lines = [row.locator("th, td").all_inner_texts() for row in body.locator("tr").all()]
    return {head.split("\n")[0]: [cell.replace("\n", " ") for cell in cells] for head, *cells in lines}


def test_the_differences_are_those_of_compare_with_their_verdicts(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    # By hand: the mean of .700, .711 and .691 minus that of .600, .610 and .590, in points.
    assert differences(page)["mle"][0] == "60.0 ± 1.0"
    assert differences(page)["emo"][0] == "+10.07 better"
    assert differences(page)["tailr"][0] == "+0.1 tied"
    row = page.locator("table.told tr", has=page.get_by_role("link", name="emo", exact=True)).first
    expect(row.get_by_role("rowheader")).to_contain_text("2 better")
    row.locator("td").first.hover()
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("95 % interval [+")
    expect(tip).to_contain_text("p ")
    page.get_by_label("Baseline", exact=True).select_option("emo")
    assert differences(page)["mle"][0] == "-10.07 worse"
    again = opened(toy, page.url.partition("html")[2])
    assert differences(again) == differences(page)
    again.get_by_role("link", name="mle", exact=True).first.click()
    expect(again.locator("#view-compare h1")).to_have_text("mle against emo")


def test_rows_of_which_nothing_is_decided_wait_until_they_are_asked_for(board: Opened, row: Row) -> None:
    entries = [
        *(row(name, {"toy/accuracy": [value]}, model="large") for name, value in (("mle", 0.6), ("emo", 0.9))),
        row("mle", {"toy/accuracy": [0.60, 0.61, 0.59]}),
        row("emo", {"toy/accuracy": [0.70, 0.711, 0.691]}),
    ]
    page = board(entries)
    titles = page.locator("table.told strong")
    expect(titles).to_have_text(["small"])
    expect(page.locator("#differences")).to_contain_text("Rows without a verdict: 1.")
    page.get_by_role("button", name="Show them").click()
    expect(titles).to_have_text(["small", "large"])
    body = page.locator("table.told tbody").last
    expect(body.get_by_role("rowheader").last).to_contain_text("seed")  # why
    expect(body).to_contain_text("30.0")
    assert body.locator(".better, .worse").count() == 0  # only what is beyond noise has a colour


def test_corpora_share_the_columns_of_their_metrics(board: Opened, row: Row) -> None:
    values = {"mle": (0.60, 0.61, 0.59), "emo": (0.70, 0.71, 0.69)}
    entries = [row(name, {f"{task}/mauve": of}) for task in ("news", "web") for name, of in values.items()]
    page = board(entries)
    heads = [text.split("\n")[0] for text in page.locator("table.grid thead th:visible").all_inner_texts()]
    assert heads == ["Compare", "Objective", "MAUVE", "n", "Seeds", "Recorded"]
    titles = page.locator("table.told strong")
    expect(titles).to_have_count(2)  # of equal differences, in the order of their ids
    assert sorted(titles.all_inner_texts()) == ["small · news", "small · web"]
    assert cells(page, "MAUVE")[0].endswith("± 1.0")
    expect(page.locator("table.grid .absent")).to_have_count(0)


def test_every_chart_is_drawn(opened: Opened, toy: Path, drawn: Callable[[Page], None]) -> None:
    page = opened(toy)
    drawn(page)
    assert page.locator(".chart svg.marks").count() == 6
    # Differences of two objectives on one metric of one group, below the heading of its task.
    forest = page.get_by_role("group", name="Differences in percentage points").locator("svg")
    assert forest.locator("g.mark-symbol.role-mark path").count() == 2
    assert forest.locator("g.mark-text text").all_text_contents()[-1] == "sst2"
    expect(page.locator("#finding")).to_contain_text("Against mle, ")
    curves = page.get_by_role("group", name="Training curves").locator("svg")
    # One line for each of three seeds and their mean, for three objectives, each with dashes of its own.
    lines = curves.locator("g.mark-line path")
    dashes = lines.evaluate_all("lines => lines.map(line => line.getAttribute('stroke-dasharray'))")
    assert (len(dashes), len(set(dashes))) == (12, 3)
    # Either control chooses the group of both sections.
    page.get_by_label("Group", exact=True).last.select_option("large")
    expect(page.get_by_role("region", name="Metrics by task")).to_contain_text("large: every metric")
    expect(page.get_by_role("region", name="Training curves").first).to_contain_text("large: logged")
    drawn(page)
    scaling = page.get_by_role("group", name="Scaling").locator("svg")
    assert scaling.locator("g.mark-symbol.role-mark path").count() == 6
    page.get_by_label("Against", exact=True).select_option("tokens")
    expect(page.get_by_role("group", name="Scaling")).to_contain_text("A curve needs two rows")


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (390, False), (390, True)])
def test_text_can_be_read_and_a_phone_needs_no_sideways_scrolling(
    opened: Opened, toy: Path, drawn: Callable[[Page], None], width: int, dark: bool
) -> None:
    page = opened(toy, width=width, dark=dark)
    ids = [box.get_attribute("data-entry") or "" for box in page.locator("[data-entry]").all()[:3]]
    for place in ("", f"entry/{ids[0]}", f"compare/{'/'.join(ids)}"):
        page.evaluate(f"location.hash = '#/{place}'")
        page.locator(f"#view-{place.split('/')[0] or 'board'} h1").wait_for()
        drawn(page)
        for chart in page.locator(".chart:visible").all():
            chart.scroll_into_view_if_needed()
            assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    if dark:  # paper is white whatever the theme
        page.evaluate("location.hash = '#/'")
        page.emulate_media(media="print")
        for chart in page.locator(".chart:visible").all():
            chart.scroll_into_view_if_needed()
            assert page.evaluate(CONTRAST) == []
        assert page.locator("#filters, .pick").first.is_hidden()


def test_the_keyboard_reaches_everything(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = []
    while page.evaluate("document.activeElement !== document.body"):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid" or not reached[-1]
    for name in ("Model", "Search", "Compare mle of small", "mle", "Compare emo of large", "Baseline"):
        assert name in reached
    page.locator("table.grid thead th", has_text="wikitext2").locator("[tabindex='0']").press("Enter")
    expect(page.locator("table.grid .name a").first).to_have_text("emo")


def test_nothing_can_be_loaded_from_elsewhere(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content") or ""
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    links = page.eval_on_selector_all(
        "[src], [href]", "nodes => nodes.map(n => n.getAttribute('src') || n.getAttribute('href'))"
    )
    assert {link for link in links if not link.startswith("#")} == {"measured.html"}
