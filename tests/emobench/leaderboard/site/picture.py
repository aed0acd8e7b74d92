"""Takes the README's picture of a board's page: its head, its table and its differences, light, at twice the scale.

emobench leaderboard site /tmp/site          (after `make demo`)
python tests/emobench/leaderboard/site/picture.py /tmp/site/measured.html leaderboards/page.png
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1280


def take(page_file: Path, picture: Path) -> None:
    """Write a PNG of the page from its top to the end of the heat map."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1600}, device_scale_factor=2, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        chart = page.get_by_role("group", name="Differences from the baseline")
        chart.scroll_into_view_if_needed()
        chart.locator("svg").first.wait_for()
        page.evaluate("window.scrollTo(0, 0)")
        box = page.get_by_role("region", name="Differences from the baseline").bounding_box()
        height = box["y"] + box["height"] + 20 if box else 1600
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()
    # A page has few colours: a palette halves the file.
    image = Image.open(io.BytesIO(taken)).convert("RGB")
    image.quantize(256, method=Image.Quantize.MEDIANCUT).save(picture, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
