"""A small board with known numbers, its runs' files, and a real browser that reports whatever goes wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from emobench.core.settings import file_sha256
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.run_files import ExamplesReader
from emobench.report.site.build import Board, write_site
from emobench.report.site.runs import RunFiles

MakeEntry = Callable[..., Entry]

SIZES = {"small": 100_000_000, "large": 7_000_000_000}


@pytest.fixture(scope="session")
def row(make_row: MakeEntry) -> MakeEntry:
    """Return `make_row` for a toy suite: `model` is a name, and `params` are those of the objective."""

    def make(name: str, metrics: Mapping[str, Sequence[float]], **changes: Any) -> Entry:
        model, params = changes.pop("model", "small"), changes.pop("params", {})
        seeds = 0 if name == "pretrained" else len(next(iter(metrics.values())))
        source = {"name": model, "source": f"org/{model}", "revision": f"r-{model}"}
        given = {
            "suite": {"name": "toy", "version": 1},
            "protocols": {key.split("/")[0]: "paper@3fa9c1" for key in metrics},
            "model": {**source, "parameters": SIZES.get(model)},
            "objective": {"name": name, "version": "1", "params": params},
            "recipe": {"dtype": "float32", **({"name": "lm", "epochs": 3} if seeds else {})},
            "runs": [{"seed": seed, "key": f"{name}-{model}-{seed}"} for seed in range(seeds)],
            "cost": {"tokens": 3_000_000},
            "source": {"command": f"emobench run --objective {name}"},
        }
        return make_row(name, metrics, **{**given, **changes})

    return make


def training_files(runs: Path, key: str, start: float) -> dict[str, Any]:
    """Write the step log and the samples of a run, and return the fields that name them."""
    folder = runs / key
    folder.mkdir(parents=True)
    steps = [{"step": n, "steps": 40, "loss": start - n / 40, "mle": start - n / 40} for n in range(1, 41)]
    (folder / "log.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    texts = [
        {"prompt_id": str(n), "prefix_text": f"Prompt {n}", "continuation_text": f" of {key}, {n}"} for n in range(8)
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    name = {"curves": "log.jsonl", "samples": "samples.jsonl"}
    return {field: [{"path": f"{key}/{file}", "sha256": file_sha256(folder / file)}] for field, file in name.items()}


def toy_entries(row: MakeEntry, runs: Path) -> list[Entry]:
    """Objectives of two models: `emo` is far better than `mle`, `tailr` is equal to it but for noise.

    The small model has a `pretrained` row, too, of which one task is missing.
    """
    entries = []
    for place, (model, base) in enumerate((("small", 0.60), ("large", 0.80))):
        rows = {
            "mle": ([base, base + 0.010, base - 0.010], [30.0, 30.3, 29.7]),
            "emo": ([base + 0.100, base + 0.111, base + 0.091], [25.0, 25.3, 24.8]),
            "tailr": ([base + 0.006, base - 0.004, base + 0.001], [30.1, 30.2, 29.6]),
        }
        for number, (name, (accuracy, ppl)) in enumerate(rows.items()):
            files = [training_files(runs, f"{name}-{model}-{seed}", 5 + number + seed / 10) for seed in range(3)]
            entries.append(
                row(
                    name,
                    {"sst2/accuracy": accuracy, "wikitext2/ppl": ppl},
                    model=model,
                    params={"gamma": 0.1} if name == "tailr" else {},
                    runs=[{"seed": s, "key": f"{name}-{model}-{s}", **of} for s, of in enumerate(files)],
                    provenance=_provenance(f"2026-01-31T12:0{number}:0{place}"),
                )
            )
    missing = {"wikitext2/ppl": "the corpus was not available"}
    protocols = {"sst2": "paper@3fa9c1", "wikitext2": "paper@3fa9c1"}
    entries.append(row("pretrained", {"sst2/accuracy": [0.5]}, missing=missing, protocols=protocols))
    return entries


def _provenance(created: str) -> dict[str, Any]:
    return {"commit": "c" * 40, "packages": {"torch": "2.11.0"}, "hardware": "x86_64", "data": {}, "created": created}


def write(out: Path, entries: Sequence[Entry], runs: Path, name: str = "measured") -> Path:
    """Write the site of one board and return its page."""

    def texts_of(_: Entry, run: Run) -> dict[str, list[WrittenText]]:
        texts: list[WrittenText] = []
        for file in run.samples:
            texts += map(_text, (runs / file.path).read_text().strip("\n").split("\n"))
        return {"toy": texts}

    return write_site([Board(name=name, entries=entries)], out, ExamplesReader(runs), RunFiles(runs, (), texts_of))[1]


def _text(line: str) -> WrittenText:
    row = {"prompt_id": "0", "reference_text": None, **json.loads(line)}
    prompt, prefix, human = row["prompt_id"], row["prefix_text"], row["reference_text"]
    return WrittenText(
        prompt=prompt, sample=0, prefix=prefix, human=human, generated=row["continuation_text"], ended=True
    )


@dataclass
class Opened:
    """Opens pages in fresh contexts; whatever a page must not do is in `faults`."""

    browser: Browser
    faults: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def __call__(self, path: Path, place: str = "", *, width: int = 1280, dark: bool = False) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda text: self._note(text.type in ("error", "warning"), f"console: {text.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._note(not request.url.startswith("file:"), f"request: {request.url}"))
        page.goto(path.as_uri() + place)
        page.wait_for_selector("html[data-ready]")
        expect(page.locator(".chart:empty:visible")).to_have_count(0, timeout=15_000)
        return page

    def _note(self, wrong: bool, text: str) -> None:
        if wrong:
            self.faults.append(text)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Open pages; at the end nothing was requested but files, and no page complained or asked."""
    found = Opened(browser)
    yield found
    for context in found.contexts:
        context.close()
    assert found.faults == []


@pytest.fixture(scope="session")
def page_of() -> Callable[..., Path]:
    return write


@pytest.fixture
def board(opened: Opened, tmp_path: Path) -> Callable[..., Page]:
    """Return a function that opens the page of some entries, at a place."""
    return lambda entries, place="", **more: opened(write(tmp_path / "out", entries, tmp_path), place, **more)


@pytest.fixture(scope="session")
def toy(row: MakeEntry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small board."""
    folder = tmp_path_factory.mktemp("site")
    return write(folder / "out", toy_entries(row, folder / "runs"), folder / "runs")


@pytest.fixture
def drawn() -> Callable[[Page], None]:
    """Return a function that scrolls through a page until every chart is there."""

    def draw(page: Page) -> None:
        for chart in page.locator(".chart:visible").all():
            chart.scroll_into_view_if_needed()
            chart.locator("svg, p.empty").first.wait_for()

    return draw
