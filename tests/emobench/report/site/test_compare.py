"""Several entries side by side in a real browser: verdicts against the first, texts with their differences marked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from emobench.core.settings import file_sha256
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import compare

Row = Callable[..., Entry]
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
    text = {"prompt_id": "0", "prefix_text": "It was", "reference_text": " a dark and stormy night"}
    path.write_text(json.dumps({**text, "continuation_text": f" a dark {name} night"}) + "\n")
    return {"seed": seed, "key": f"{name}-{seed}", "samples": [{"path": path.name, "sha256": file_sha256(path)}]}


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
    heads = verdicts.locator("thead th").all_inner_texts()
    assert heads == ["Metric", *NAMES[:6]]
    shown = dict(zip(heads, verdicts.locator("tbody tr").first.locator("th, td").all_inner_texts(), strict=True))
    (contrast,) = compare(made[0], [made[3]]).contrasts
    assert shown["mixce"].split("\n")[1:] == [f"+{100 * contrast.effect:.1f}", contrast.verdict]
    assert shown["mle"] == "60.0 ± 1.0"
    sample = page.get_by_role("region", name="Samples", exact=True).locator("li")
    assert sample.locator("b").all_inner_texts() == ["Prefix", "Reference text", *NAMES[:6]]
    texts = [text.strip() for text in sample.locator("span").all_inner_texts()]
    assert texts == ["It was", "a dark and stormy night", *(f"a dark {name} night" for name in NAMES[:6])]
    assert sample.locator("mark").all_inner_texts() == list(NAMES[:6])
    page.locator("#view-compare").get_by_label("Baseline", exact=True).select_option("emo")
    expect(page.locator("#view-compare h1")).to_have_text("6 entries against emo")
    page.evaluate(f"location.hash = '#/compare/{'/'.join(entry.id for entry in made)}'")
    expect(page.locator("#view-compare")).to_contain_text("Give two to 6 entries of this board")
