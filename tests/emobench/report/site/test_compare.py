"""Several entries side by side in a real browser: verdicts against the first, texts with their differences marked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from emobench.core.settings import file_sha256
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import Recorded, write_examples
from emobench.leaderboard.stats.compare import compare

Row = Callable[..., Entry]
CLIPBOARD = """
const written = { writeText: async (text) => { window.copied = text; } };
Object.defineProperty(navigator, "clipboard", { value: written });
"""
NAMES = ("mle", "emo", "tailr", "mixce", "focal", "dft", "gem")


def entries(row: Row, runs: Path) -> list[Entry]:
    made = []
    for number, name in enumerate(NAMES):
        values = [0.60 + number / 20, 0.61 + number / 20, 0.59 + number / 20]
        made.append(row(name, {"toy/accuracy": values}, runs=[run(runs, name, seed) for seed in range(3)]))
    return made


def run(runs: Path, name: str, seed: int) -> dict[str, Any]:
    path = runs / f"{name}-{seed}.jsonl"
    path.parent.mkdir(exist_ok=True)
    text = {"prefix_text": "It was", "reference_text": " a dark and stormy night"}
    lines, scores = [], {}
    for prompt in range(4):
        written = {"prompt_id": f"p{prompt}", "continuation_text": f" a dark {name} night {prompt}"}
        lines.append(json.dumps({**text, **written}) + "\n")
        scores[f"p{prompt}"] = (NAMES.index(name) * (prompt - 1.5) / 20 + 0.5, 1.0)  # of mle: 50
    path.write_text("".join(lines))
    examples = runs / f"{name}-{seed}.examples.jsonl"
    digest = write_examples(examples, {"toy/rouge1": Recorded(scores)})
    files = {"samples": [{"path": path.name, "sha256": file_sha256(path)}]}
    return {"seed": seed, "key": f"{name}-{seed}", **files, "examples": {"path": examples.name, "sha256": digest}}


def test_six_entries_are_compared_with_the_first(board: Callable[..., Page], row: Row, tmp_path: Path) -> None:
    made = entries(row, tmp_path)
    page = board(made)
    for name in NAMES[:6]:
        page.get_by_label(f"Compare {name} of small").check()
    seventh = page.get_by_label("Compare gem of small")
    expect(seventh).to_be_disabled()
    assert seventh.get_attribute("title") == "Six at most: untick one first"
    page.get_by_role("link", name="Compare 6").click()
    verdicts = page.get_by_role("region", name="Verdicts", exact=True).first
    expect(verdicts.locator("thead th")).to_have_text(["Metric", *NAMES[:6]])
    heads = verdicts.locator("thead th").all_inner_texts()
    shown = dict(zip(heads, verdicts.locator("tbody tr").first.locator("th, td").all_inner_texts(), strict=True))
    (contrast,) = compare(made[0], [made[3]]).contrasts
    assert shown["mixce"].split("\n")[1:] == [f"+{100 * contrast.effect:.1f}", contrast.verdict]
    assert shown["mle"] == "60.0 ± 1.0"
    sample = page.locator(".detail")
    assert sample.locator("b").all_inner_texts() == ["Prefix", "Reference text", *NAMES[:6]]
    texts = [text.strip() for text in sample.locator("span").all_inner_texts()]
    assert texts[:2] == ["It was", "a dark and stormy night"]
    assert texts[2:] == [f"a dark {name} night 3" for name in NAMES[:6]]  # the largest gain of emo over mle
    page.locator("#view-compare").get_by_label("Baseline", exact=True).select_option("emo")
    expect(page.locator("#view-compare h1")).to_have_text("6 entries against emo")
    page.evaluate(f"location.hash = '#/compare/{'/'.join(entry.id for entry in made)}'")
    expect(page.locator("#view-compare")).to_contain_text("Give two to 6 entries of this board")


def test_samples_are_sorted_searched_walked_and_linked(board: Callable[..., Page], row: Row, tmp_path: Path) -> None:
    mle, emo = entries(row, tmp_path)[:2]
    page = board([mle, emo], f"#/compare/{mle.id}/{emo.id}")
    detail = page.locator(".detail")

    def order() -> list[str]:
        return [text.split()[-1] for text in page.locator(".browser li").all_inner_texts()]

    expect(page.locator(".browser li")).to_have_count(4)
    assert order() == ["3", "2", "1", "0"]
    assert page.locator(".browser li b").all_inner_texts() == ["+7.5", "+2.5", "-2.5", "-7.5"]
    page.get_by_label("Order", exact=True).select_option("largest loss in ROUGE-1")
    assert order() == ["0", "1", "2", "3"]
    page.keyboard.press("Escape")
    page.locator(".browser ul").focus()
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    expect(detail).to_contain_text("Prompt p1")
    page.get_by_label("Search the samples").fill("NIGHT 3")
    expect(page.locator(".browser li")).to_have_count(1)
    expect(detail).to_contain_text("ROUGE-1 57.5")
    link = page.get_by_role("link", name="Link to this sample").get_attribute("href") or ""
    again = board([mle, emo], link)
    expect(again.locator(".detail")).to_contain_text("Prompt p3")
    expect(again.locator(".browser")).to_be_in_viewport()
    assert again.get_by_label("Search the samples").input_value() == "NIGHT 3"


def test_tables_are_copied_as_latex_markdown_and_bibtex(opened: Callable[..., Page], toy: Path) -> None:
    page = opened(toy)
    page.evaluate(CLIPBOARD)

    def copied(name: str) -> str:
        button = page.get_by_role("button", name=f"Copy Differences from the baseline as {name}")
        button.click()
        expect(button).to_have_text("Copied")
        return page.evaluate("window.copied")

    assert "emo & +10.07 better & $-$" in copied("LaTeX")
    assert "| emo | +10.07 better | -" in copied("Markdown")
    assert "title = {measured leaderboard: Differences from the baseline}" in copied("BibTeX")
