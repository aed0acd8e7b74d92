"""The columns of a board's table in a real browser: definitions, the menu, the link, files, and a phone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from emobench.leaderboard.entry import Entry

Opened = Callable[..., Page]
Row = Callable[..., Entry]

KEEP_PICTURE = """() => {
  const { decode } = HTMLImageElement.prototype;
  HTMLImageElement.prototype.decode = function () {
    window.pictured = decodeURIComponent(this.src);
    return decode.call(this);
  };
}"""
HEADS = "table.grid thead th:visible .dt-column-title"


def heads(page: Page) -> list[str]:
    return [text.split("\n")[0] for text in page.locator(HEADS).all_inner_texts()]


def place(page: Page) -> str:
    """Return what of a page's address its file has not."""
    return page.url.partition("html")[2]


@pytest.fixture(scope="module")
def site(page_of: Callable[..., Path], row: Row, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a board whose task has an accuracy, a perplexity, and a secondary metric."""
    entries = []
    for name, accuracy, ppl in (
        ("mle", [0.60, 0.61, 0.59], [30.0, 30.3, 29.7]),
        ("emo", [0.70, 0.71, 0.69], [25.0, 25.3, 24.7]),
        ("=sum", [0.65, 0.66, 0.64], [27.0, 27.3, 26.7]),
    ):
        entry = row(name, {"toy/accuracy": accuracy, "toy/ppl": ppl, "toy/diversity": [0.9, 0.9, 0.8]})
        secondary = replace(entry.metrics["toy/diversity"], flags=("secondary",))
        entries.append(replace(entry, metrics={**entry.metrics, "toy/diversity": secondary}))
    folder = tmp_path_factory.mktemp("columns")
    return page_of(folder / "out", entries, folder)


@pytest.fixture
def scored(opened: Opened, site: Path) -> Callable[..., Page]:
    return lambda place="", **more: opened(site, place, **more)


def test_a_metric_says_what_it_is_on_hover_and_on_focus(scored: Callable[..., Page]) -> None:
    page = scored()
    head = page.locator("table.grid thead th", has_text="Perplexity")
    head.scroll_into_view_if_needed()
    page.evaluate("new Promise((done) => setTimeout(done, 100))")  # scrolling hides a tip
    head.hover()
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("The exponential of the model's mean negative log-likelihood")
    expect(tip).to_contain_text("Lower is better.")
    expect(tip).to_contain_text("toy/ppl")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    head.locator("[tabindex='0']").focus()
    expect(tip).to_be_visible()
    assert page.locator("[aria-describedby=tip]").count() == 1


def test_columns_can_be_hidden_and_secondary_ones_shown_and_the_link_shows_the_same(
    scored: Callable[..., Page],
) -> None:
    page = scored()
    assert heads(page) == ["Compare", "Objective", "Accuracy", "Perplexity", "n", "Seeds", "Recorded"]
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Accuracy (%) ↑", exact=True).uncheck()
    page.get_by_label("Diversity (%) ↑", exact=True).check()
    page.get_by_label("Recorded", exact=True).uncheck()
    assert heads(page) == ["Compare", "Objective", "Perplexity", "Diversity", "n", "Seeds"]
    header = page.locator("table.grid thead th", has_text="Perplexity")
    header.click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    names = page.locator("table.grid .name a").all_inner_texts()
    assert names == ["emo", "=sum", "mle"]
    again = scored(place(page))
    assert heads(again) == ["Compare", "Objective", "Perplexity", "Diversity", "n", "Seeds"]
    assert again.locator("table.grid .name a").all_inner_texts() == names
    again.locator("summary", has_text="Columns").click()
    again.get_by_role("button", name="Reset").click()
    assert heads(again) == ["Compare", "Objective", "Accuracy", "Perplexity", "n", "Seeds", "Recorded"]
    assert "hide=" not in again.url


def test_the_better_a_value_in_its_column_the_deeper_its_shade(scored: Callable[..., Page]) -> None:
    page = scored()
    shares = {
        name: line.locator("td.heat").evaluate_all("nodes => nodes.map((n) => n.style.getPropertyValue('--share'))")
        for name, line in ((name, page.locator("table.grid tr", has_text=name)) for name in ("mle", "emo", "=sum"))
    }
    # By hand: (65 - 60) / (70 - 60) of an accuracy, (log 30 - log 27) / (log 30 - log 25) of a perplexity.
    assert shares == {"mle": ["0%", "0%"], "emo": ["100%", "100%"], "=sum": ["50%", "58%"]}


def test_a_value_of_too_few_examples_has_no_shade(
    opened: Opened, page_of: Callable[..., Path], row: Row, tmp_path: Path
) -> None:
    entries = []
    for number, name in enumerate(("mle", "emo", "tailr")):
        entry = row(name, {"toy/accuracy": [0.1 * number, 0.2], "toy/mauve": [0.9, 0.9 - 0.1 * number]})
        few = replace(entry.metrics["toy/mauve"], flags=("small_n",))
        entries.append(replace(entry, metrics={**entry.metrics, "toy/mauve": few}))
    page = opened(page_of(tmp_path / "out", entries, tmp_path))
    expect(page.locator("table.grid td", has_text="±")).to_have_count(6)
    expect(page.locator("table.grid td.heat")).to_have_count(3)


def test_the_table_is_saved_as_csv_and_as_a_picture(scored: Callable[..., Page], tmp_path: Path) -> None:
    page = scored()
    page.get_by_label("Search", exact=True).fill("m")  # emo, =sum and mle
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the table as CSV").click()
    assert saved.value.suggested_filename == "measured-leaderboard-toy-v1.csv"
    saved.value.save_as(tmp_path / "table.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text(encoding="utf-8"))))
    assert {line["objective"] for line in lines} == {"mle", "emo", "'=sum"}  # no formula of a spreadsheet
    (emo,) = (line for line in lines if line["objective"] == "emo")
    assert float(emo["toy/accuracy (%)"]) == pytest.approx(70)
    assert float(emo["toy/accuracy sd"]) == pytest.approx(1.0)
    assert "toy/diversity (%)" not in emo
    page.evaluate(KEEP_PICTURE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the table as PNG").click()
    saved.value.save_as(tmp_path / "table.png")
    with Image.open(tmp_path / "table.png") as picture:
        assert picture.width > 1000
        # Words and shades: a picture of nothing has one colour.
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50
    words = re.findall(r">([^<]+)</text>", page.evaluate("pictured"))
    assert {"Accuracy", "small", "emo", "mle"} <= set(words)
    assert not {"Conditions", "protocol", "100M"} & set(words)  # they are folded


def test_differences_and_charts_are_saved_as_pictures(
    opened: Opened, toy: Path, drawn: Callable[[Page], None], tmp_path: Path
) -> None:
    page = opened(toy)
    drawn(page)
    gain, emo = (0x7F, 0xB8, 0xDE), (0xD5, 0x5E, 0x00)  # the cell of the largest gain, and a point of the trade-off
    for name, colour in (("Differences from the baseline", gain), ("Trade-off", emo)):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Download {name} as PNG").click()
        saved.value.save_as(tmp_path / "picture.png")
        with Image.open(tmp_path / "picture.png") as picture:
            found = {colour for count, colour in picture.convert("RGB").getcolors(1 << 24) or [] if count > 100}
        assert colour in found


def test_two_metrics_can_be_read_on_a_phone(scored: Callable[..., Page]) -> None:
    page = scored(width=390)
    cells = page.locator("table.grid tbody tr:not(.dtrg-group)").first.locator("td.heat")
    boxes = [cell.bounding_box() for cell in cells.all()]
    assert len(boxes) == 2
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 376 for box in boxes)
    told = page.get_by_role("region", name="Differences from the baseline, table")
    words = [cell.bounding_box() for cell in told.locator("tr:not(.base, .title)").nth(1).locator("td small").all()]
    assert len(words) == 2
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 376 for box in words)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_one_metric_is_drawn_against_any_other_with_intervals(
    opened: Opened, toy: Path, drawn: Callable[[Page], None]
) -> None:
    page = opened(toy)
    page.get_by_label("x axis", exact=True).select_option("wikitext2/ppl")
    page.get_by_label("y axis", exact=True).select_option("sst2/accuracy")
    drawn(page)
    plane = page.get_by_role("group", name="Trade-off")
    texts = plane.locator("svg text").all_text_contents()
    # mle and tailr lie on one another: their names stand together.
    assert {"wikitext2 Perplexity ↓", "sst2 Accuracy (%) ↑", "emo", "mle, tailr"} <= set(texts)
    assert "undefined" not in texts
    assert plane.locator("g.mark-symbol.role-mark path").count() == 3
    assert plane.locator("g.mark-rule.role-mark line").count() == 6  # across and up, of each of three
    expect(page.get_by_role("region", name="Trade-off")).to_contain_text("The better side is the top left.")
    again = opened(toy, place(page))
    assert again.get_by_label("x axis", exact=True).input_value() == "wikitext2/ppl"
