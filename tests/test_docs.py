"""The README and the documents: short, without broken links, and built without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READMES = [ROOT / place / "README.md" for place in ("", "plugins", "tasks")]
GUIDES = [page for folder in ("guides", "evidence", "api") for page in sorted(ROOT.glob(f"docs/{folder}/*.md"))]


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


@pytest.mark.parametrize("page", [*READMES, *GUIDES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_every_built_in_objective_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "api" / "objectives.md").read_text()
    modules = {point.module for point in entry_points(group="emobench.objectives")}
    built_in = {name for name in modules if name.startswith("emobench_objectives.")}
    assert built_in == set(re.findall(r"automodule:: (\S+)", page))


def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    """A broken link or reference, or a docstring that cannot be read, is a warning. `make docs` runs the same."""
    for tool in ("sphinx", "myst_parser", "pydata_sphinx_theme"):
        pytest.importorskip(tool)
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--fresh-env"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, ROOT / "docs", tmp_path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"(?:https?:)?//[^\"]*|<link[^>]* href=\"https?:[^\"]*", text
        )
        assert not loaded, path
    _every_command_and_public_name_is_there(tmp_path)


def _every_command_and_public_name_is_there(site: Path) -> None:
    import typer

    import emobench
    from emobench.cli import app
    from emobench.runs.inspect.settings import settings

    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    assert {path.stem for path in (site / "commands").glob("*.html")} == {*root.commands, "index"}
    assert "&lt;corpus&gt;.&lt;split&gt;.jsonl" in (site / "commands" / "run.html").read_text()  # as it is in the help
    listed = (site / "commands" / "settings.html").read_text()
    assert {setting.name for setting in settings() if f">{setting.name}<" not in listed} == set()
    reference = (site / "api" / "emobench.html").read_text()
    assert {name for name in emobench.__all__ if f'id="emobench.{name}"' not in reference} == set()
