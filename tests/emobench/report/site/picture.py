"""Takes the picture of a board's page, leaderboards/page.png: its head, its differences and its table.

make demo
python tests/emobench/report/site/picture.py leaderboards/measured     what it shows, and the picture
python tests/emobench/report/site/picture.py                           the picture of what it showed before

What it shows is kept in `pictured.json`, and a digest of that and of the page's script, style and template in the
picture: a test finds a picture that is not of the present page.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from emobench.leaderboard.schema.examples import ExamplesReader
from emobench.leaderboard.store.board import Leaderboard
from emobench.report.charts.board_charts import page_charts
from emobench.report.render.palette import style_sheet
from emobench.report.site import page as pages
from emobench.report.site.build import Board, summary
from emobench.report.site.data import BoardData

PICTURE = Path(__file__).parents[4] / "leaderboards" / "page.png"
SHOWN = Path(__file__).parent / "pictured.json"
WIDTH = 1280
KEY = "emobench-page"
"""Of the digest, among the texts of the picture's file."""


def shown(root: Path, runs: Path) -> dict[str, Any]:
    """Return what the page of a board shows, but for its charts' templates, which are those of the code."""
    entries = Leaderboard(root).entries()
    index = BoardData(entries, ExamplesReader(runs, [root])).plain
    facts = summary(Board(name="measured", entries=entries), Path("measured.html"))
    return json.loads(json.dumps({"facts": facts, "index": {k: v for k, v in index.items() if k != "charts"}}))


def digest(data: dict[str, Any]) -> str:
    """Return the sha256 of all that a picture follows from, but for the browser, its fonts and the libraries."""
    found = hashlib.sha256(json.dumps([data, page_charts(), style_sheet(), pages.SCRIPTS], sort_keys=True).encode())
    folder = Path(pages.__file__).parent
    for path in sorted([*(folder / "assets").iterdir(), folder / "templates" / "page.html.j2"]):
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return found.hexdigest()


def digest_of(picture: Path) -> str:
    with Image.open(picture) as image:
        return str(image.info.get(KEY, ""))


def write_page(data: dict[str, Any], path: Path) -> None:
    index = {**data["index"], "charts": page_charts(), "chunk": len(data["index"]["entries"])}
    details = [{"curves": [], "samples": []} for _ in index["entries"]]
    facts = data["facts"] | {"links": [data["facts"]], "place": 0, "problems": []}
    path.write_text(pages.render_page(facts, index, [details], []), encoding="utf-8")


def take(page_file: Path) -> Image.Image:
    """Return the page from its top to the end of the table."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1600}, device_scale_factor=2, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        box = page.locator("#table").bounding_box()
        height = box["y"] + box["height"] + 20 if box else 1600
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()
    return Image.open(io.BytesIO(taken)).convert("RGB")


def main(argv: list[str]) -> None:
    if argv:
        runs = Path(argv[1] if len(argv) > 1 else "runs")
        SHOWN.write_text(json.dumps(shown(Path(argv[0]), runs), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    data = json.loads(SHOWN.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        write_page(data, Path(folder) / "page.html")
        image = take(Path(folder) / "page.html")
    notes = PngInfo()
    notes.add_text(KEY, digest(data))
    few_colours(image).save(PICTURE, optimize=True, pnginfo=notes)


def few_colours(image: Image.Image) -> Image.Image:
    """Return a picture in its 256 most frequent colours, which a page hardly exceeds: half the file."""
    counts = sorted(image.getcolors(image.width * image.height) or [], reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _, colour in counts for channel in colour])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main(sys.argv[1:])
