"""Makes leaderboards/page.png, the picture of a board's page: its head, its differences and its table.

emobench run --offline --leaderboard /tmp/measured
python tests/benchmarks evidence.picture /tmp/measured [--runs runs] [--out leaderboards/page.png]
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

PICTURE = Path(__file__).parents[3] / "leaderboards" / "page.png"
WIDTH = 1280


def write_page(board: Path, runs: Path, out: Path) -> Path:
    """Write the page of a board into the folder `out` and return its path."""
    given = ("--leaderboard", board, "--runs", runs, "--baseline", "mle")
    subprocess.run([sys.executable, "-m", "emobench", "leaderboard", "site", out, *given], check=True)
    (page,) = (path for path in out.glob("*.html") if path.name != "index.html")
    return page


def screenshot(page_file: Path) -> Image.Image:
    """Return the page from its top to the end of the table."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1600}, device_scale_factor=2, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        expect(page.locator(".chart:empty:visible")).to_have_count(0)
        box = page.locator("#table").bounding_box()
        height = box["y"] + box["height"] + 20 if box else 1600
        png = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()
    return Image.open(io.BytesIO(png)).convert("RGB")


def few_colours(image: Image.Image) -> Image.Image:
    """Return an image in its 256 most frequent colours, which a page hardly exceeds: half the file."""
    counts = sorted(image.getcolors(image.width * image.height) or [], reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _, colour in counts for channel in colour])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("board", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        image = screenshot(write_page(options.board, options.runs, Path(folder)))
    few_colours(image).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
