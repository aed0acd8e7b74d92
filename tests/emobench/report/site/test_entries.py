"""The page of an entry and the comparison of two, in a real browser; and text that would rather be markup."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, expect
from scipy.stats import binom

from emobench.core.settings import file_sha256
from emobench.leaderboard.entry import Component, Entry
from emobench.leaderboard.stats.compare import compare
from emobench.report.notes import deciding_text

Opened = Callable[..., Page]
Row = Callable[..., Entry]
HOSTILE = (
    "javascript:alert(4) <img src=x onerror=alert(1)></script><script>alert(2)</script>\"'><svg/onload=alert(3)>"
    "{{ 7 * 7 }}${x} a\nb\u202etxt\x07\U0001f600"
)


def test_an_entry_shows_everything_in_it(opened: Opened, toy: Path, drawn: Callable[[Page], None]) -> None:
    page = opened(toy)
    page.locator("table.grid").get_by_role("link", name="tailr").first.click()
    expect(page.locator("#view-entry h1")).to_have_text("tailr on small")
    view = page.locator("#view-entry")
    metrics = view.get_by_role("region", name="Metrics", exact=True).first
    expect(metrics).to_contain_text("60.6  59.6  60.1")  # the seeds' own values, in percent
    expect(metrics).to_contain_text("seeds")
    unfold(page)
    for text in ("epochs", "paper@3fa9c1", "torch", "gamma", "0.1", "r-small", "emobench run --objective tailr"):
        expect(view.locator(".json")).to_contain_text(text)
    samples = view.get_by_role("region", name="Samples", exact=True)
    assert samples.locator(".browser li").count() == 8
    expect(samples.locator(".detail")).to_contain_text("Prompt 0")
    expect(samples.locator(".detail")).to_contain_text(" of tailr-small-0, 0")
    drawn(page)
    assert view.locator(".chart svg g.mark-line path").count() == 4  # three seeds and their mean
    page.get_by_role("link", name="← All entries").click()
    expect(page.locator("table.grid")).to_be_visible()


def test_an_entry_says_where_its_noise_comes_from(board: Opened, row: Row) -> None:
    made = row("mle", {"toy/accuracy": [0.6, 0.61, 0.62], "toy/ppl": [30.0, 30.5, 30.2]})
    draws = {"training seed": 3, "sampling": 5, "k-means": 2, "texts": 971}
    parts = {name: Component(sd=0.012, sd_of_mean=0.005, draws=of) for name, of in draws.items()}
    once = {"sampling": Component(sd=math.log(1.05), sd_of_mean=math.log(1.02), draws=5)}
    flags = ("small_n", "fewer_prompts", "made_of_moons")
    metrics = {
        "toy/accuracy": replace(made.metrics["toy/accuracy"], components=parts, flags=flags),
        "toy/ppl": replace(made.metrics["toy/ppl"], components=once),
    }
    entry = replace(made, metrics=metrics)
    page = board([entry], f"#/entry/{entry.id}")
    noise = page.get_by_role("region", name="Where the noise comes from", exact=True).first
    assert [line.split("\t") for line in noise.locator("tbody tr").all_inner_texts()] == [
        ["Accuracy (%) ↑", "1.2", "1.2", "1.2", "1.2", "3 x 5 x 2", "1"],
        ["Perplexity ↓", "–", "5", "–", "–", "5", "2"],
    ]
    metrics = page.get_by_role("region", name="Metrics", exact=True).first
    expect(metrics).to_contain_text("shown, not ranked; only ")
    expect(metrics).to_contain_text("; made of moons")


def test_two_entries_are_compared_and_the_link_shows_the_same(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    expect(page.get_by_role("region", name="Entries chosen for comparison", exact=True)).to_be_hidden()
    page.get_by_label("Compare mle of small").check()
    expect(page.get_by_text("Choose one more, or up to five.")).to_be_visible()
    page.get_by_label("Compare emo of small").check()
    chosen = page.get_by_role("region", name="Entries chosen for comparison", exact=True)
    expect(chosen).to_contain_text("Baseline: mle · small against emo · small")
    page.get_by_role("link", name="Compare 2").click()
    page.locator("#view-compare h1").wait_for()
    link = page.url
    verdicts = page.get_by_role("region", name="Verdicts", exact=True).locator("tbody tr").all_inner_texts()
    again = opened(Path(link.removeprefix("file://").partition("#")[0]), "#" + link.partition("#")[2])
    assert again.get_by_role("region", name="Verdicts", exact=True).locator("tbody tr").all_inner_texts() == verdicts
    again.get_by_role("link", name="Swap").click()
    expect(again.locator("#view-compare h1")).to_have_text("mle against emo")
    row = again.get_by_role("region", name="Verdicts", exact=True).locator("tbody tr", has_text="Accuracy")
    expect(row).to_contain_text("-10.07")
    expect(row).to_contain_text("worse")
    shared = again.get_by_role("region", name="Samples", exact=True).locator(".detail span")
    assert shared.all_inner_texts() == ["Prompt 0", " of emo-small-0, 0", " of mle-small-0, 0"]


def test_the_verdicts_are_those_of_compare(board: Opened, row: Row) -> None:
    """What the page says beside a difference is what `emobench compare` computes."""
    base = row("mle", {"sst2/accuracy": [0.60, 0.61, 0.59], "wikitext2/ppl": [30.0, 30.3, 29.7]})
    other = row("emo", {"sst2/accuracy": [0.62, 0.60, 0.61], "wikitext2/ppl": [25.0, 25.3, 24.8]})
    page = board([base, other], f"#/compare/{base.id}/{other.id}")
    found = {contrast.metric: contrast for contrast in compare(base, [other]).contrasts}
    rows = page.get_by_role("region", name="Verdicts", exact=True).locator("tbody tr").all()
    shown = [[cell.inner_text() for cell in line.locator("th, td").all()] for line in rows]
    accuracy, ppl = found["sst2/accuracy"], found["wikitext2/ppl"]
    assert accuracy.p_holm is not None
    assert accuracy.ci95 is not None
    low, high = (f"{100 * bound:+.1f}" for bound in accuracy.ci95)
    p, within = f"{accuracy.p_holm:.3f}".removeprefix("0"), "other metrics, 2 tests (Holm)"
    word, deciding = shown[0][4].split("\n")
    assert [shown[0][3], word, *shown[0][5:8]] == ["+1.0", accuracy.verdict, f"[{low}, {high}]", p, within]
    assert deciding_text(accuracy, base) in deciding
    # Of perplexities the relative change of the geometric means.
    assert shown[1][3] == f"-{100 * (1 - (25.0 * 25.3 * 24.8 / (30.0 * 30.3 * 29.7)) ** (1 / 3)):.2f} %"
    assert shown[1][4] == ppl.verdict == "better"


def test_one_seed_says_something_of_its_models_alone(
    opened: Opened, page_of: Callable[..., Path], make_entry: Callable[..., Entry], runs: Path, tmp_path: Path
) -> None:
    right_SI = np.array([[1.0] * 30 + [0.0] * 20])
    other_SI = right_SI.copy()
    other_SI[0, 28:40] = [0.0] * 2 + [1.0] * 10  # wrong on 2 that were right, right on 10 that were wrong
    base, candidate = (make_entry(name, {"sst2": x}, seeds=[0]) for name, x in (("mle", right_SI), ("emo", other_SI)))
    page = opened(page_of(tmp_path / "out", [base, candidate], runs), f"#/compare/{base.id}/{candidate.id}")
    expect(page.get_by_role("region", name="Verdicts", exact=True).locator(".word")).to_have_text("undetermined")
    shown = page.get_by_role("region", name="Within one seed", exact=True).locator("tbody tr td").all_inner_texts()
    mid_p = 2 * binom.cdf(1, 12, 0.5) + binom.pmf(2, 12, 0.5)
    assert shown[:2] == ["0", "+16.0"]
    assert shown[3] == f"{mid_p:.3f}".removeprefix("0")
    assert "McNemar" in shown[4]


def test_entries_that_are_not_comparable_get_no_verdict(opened: Opened, toy: Path) -> None:
    page = opened(toy)
    page.get_by_label("Compare emo of small").check()
    page.get_by_label("Compare emo of large").check()
    page.get_by_role("link", name="Compare 2").click()
    view = page.locator("#view-compare")
    expect(view.locator(".warning")).to_contain_text("not comparable")
    expect(view.get_by_role("region", name="Why they are not comparable", exact=True).first).to_contain_text("r-small")
    assert view.locator(".word").count() == 0
    for name in ("better", "worse", "tied"):
        expect(view).not_to_contain_text(name)


def test_an_address_of_no_entry_says_so(opened: Opened, toy: Path) -> None:
    expect(opened(toy, "#/entry/0123456789ab").locator("#view-entry")).to_contain_text("No such entry")
    expect(opened(toy, "#/entry/%E0%A4%A/<b>").locator("#view-entry")).to_contain_text("No such entry")
    expect(opened(toy, "#/compare/0123456789ab/x").locator("#view-compare")).to_contain_text("Nothing to compare")


def test_hostile_text_shows_as_text(
    opened: Opened, drawn: Callable[[Page], None], page_of: Callable[..., Path], row: Row, tmp_path: Path
) -> None:
    """In every field, table, chart and tooltip; `opened` fails where a script ran or something was loaded."""
    runs = tmp_path / "runs"
    path = runs / "texts" / "samples.jsonl"
    path.parent.mkdir(parents=True)
    text = {"prefix_text": HOSTILE, "continuation_text": HOSTILE, "reference_text": HOSTILE}
    path.write_text(json.dumps(text) + "\n")
    file = {"path": "texts/samples.jsonl", "sha256": file_sha256(path)}
    task = "".join(HOSTILE.replace("/", "|").split()) or "task"
    entries = [
        row(
            name,
            {f"{task}/accuracy": [0.5, 0.6, 0.7 + place / 100], "other/ppl": [20.0, 21.0, 22.0 + place]},
            model=HOSTILE,
            params={"x": HOSTILE} if place else {},
            recipe={"name": HOSTILE, HOSTILE: HOSTILE},
            missing={f"{task}/ppl": HOSTILE},
            runs=[{"seed": s, "key": f"{place}-{s}", "samples": [file]} for s in range(3)],
            source={"command": HOSTILE, "cite": HOSTILE},
        )
        for place, name in enumerate([HOSTILE, HOSTILE + "2"])
    ]
    page = opened(page_of(tmp_path / "out", entries, runs, name=HOSTILE))
    drawn(page)
    page.locator(".chart svg path[aria-label]").first.hover(force=True)
    expect(page.locator("#vg-tooltip-element")).to_contain_text(task[:6])
    cleaned = "".join(c if c.isprintable() else "�" for c in HOSTILE.replace("\n", " "))
    squeezed = " ".join(cleaned.split())
    expect(page.locator("table.grid .name a").first).to_have_text(squeezed)
    expect(page.locator("table.grid thead")).to_contain_text(task[:6])
    for entry in entries:
        page.evaluate(f"location.hash = '#/entry/{entry.id}'")
        view = page.locator("#view-entry")
        expect(view.locator(".detail span").first).to_have_text(" ".join(HOSTILE.split()))
        unfold(page)
        expect(view.locator(".json .value", has_text=" ".join(HOSTILE.split())[:12]).first).to_be_visible()
        drawn(page)
    page.evaluate(f"location.hash = '#/compare/{entries[0].id}/{entries[1].id}'")
    expect(page.get_by_role("region", name="Verdicts", exact=True)).to_be_visible()
    drawn(page)
    assert page.locator("img, svg[onload], b:not(.browser b, .selection b, .told b), main script").count() == 0
    assert page.locator("a[href^='javascript:']").count() == 0


def unfold(page: Page) -> None:
    """Open the tree of an entry, whose branches grow when they are opened."""
    closed = page.locator("#view-entry details:not([open]) > summary")
    while closed.count() or page.evaluate("new Promise((done) => setTimeout(done, 50))") or closed.count():
        closed.first.click()


def test_a_training_of_one_step_is_said_in_place_of_a_curve(
    board: Opened, row: Row, tmp_path: Path, drawn: Callable[[Page], None]
) -> None:
    log = tmp_path / "mle-0" / "log.jsonl"
    log.parent.mkdir()
    log.write_text(json.dumps({"step": 1, "steps": 1, "loss": 5.25, "mle": 5.25}) + "\n")
    run = {"seed": 0, "key": "mle-0", "curves": [{"path": "mle-0/log.jsonl", "sha256": file_sha256(log)}]}
    entry = row("mle", {"toy/accuracy": [0.6]}, runs=[run])
    page = board([entry], f"#/entry/{entry.id}")
    chart = page.get_by_role("group", name="Training curves")
    chart.scroll_into_view_if_needed()
    expect(chart).to_contain_text("One step was logged (1), which makes no curve; mle: mle 5.25.")


def test_the_values_of_many_seeds_are_not_cut_off(board: Opened, row: Row) -> None:
    entry = row("mle", {"toy/accuracy": [0.6 + seed / 1000 for seed in range(20)]})
    page = board([entry], f"#/entry/{entry.id}", width=1300)
    shown = page.get_by_role("region", name="Metrics", exact=True).first.locator("td.values").bounding_box()
    assert shown is not None
    assert shown["x"] + shown["width"] <= 1300
