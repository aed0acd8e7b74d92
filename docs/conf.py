"""Sphinx's configuration: `make docs`.

The guides are Markdown (MyST). The pages of commands are written from the Typer application at each build, and the
API reference comes from the docstrings, so that neither is copied by hand. The site needs no network to be read.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

import emobench
from emobench.cli import app as commands
from emobench.cli.listings import shown_default
from emobench.runs.inspect.settings import settings

HERE = Path(__file__).parent
COMMANDS = HERE / "commands"
"""Generated, and ignored by git."""

project = "emobench"
release = emobench.__version__
copyright = "the emobench authors, Apache 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "requirements.txt"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_title = f"emobench {release}"
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2}

highlight_language = "text"
smartquotes = False

# Docstrings write code as `code`.
default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True


def write_commands(_: Sphinx) -> None:
    """Write a page for each command, or group of commands, as its `--help` has it."""
    shutil.rmtree(COMMANDS, ignore_errors=True)
    COMMANDS.mkdir()
    root = typer.main.get_command(commands)
    assert isinstance(root, typer.core.TyperGroup)
    context = typer.Context(root, info_name="emobench", **root.context_settings)
    for name, command in _loaded(root).items():
        if isinstance(command, typer.core.TyperGroup):
            command.commands = _loaded(command)
        page = get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="emobench")
        (COMMANDS / f"{name}.md").write_text("\n".join(map(_as_markdown, page.splitlines())))
    with (COMMANDS / "settings.md").open("a") as page:
        page.writelines(_settings())
    listing = "\n".join(sorted(root.commands))
    (COMMANDS / "index.md").write_text(f"# Commands\n\n{root.help}\n\n```{{toctree}}\n:maxdepth: 2\n\n{listing}\n```\n")


def _settings() -> Iterator[str]:
    """Yield the lines of the list that `emobench settings` prints, with a heading for each section."""
    section = ""
    for setting in settings():
        if section != (section := setting.name.partition(".")[0]):
            yield f"\n## {section}\n\n"
        kind = f"{setting.type}{shown_default(setting)}".replace("`", "")
        yield f"- `{setting.name}` (`{kind}`): {_escaped(setting.meaning, r'([<*|_])')}\n"


def _loaded(group: Any) -> dict[str, Any]:
    """Return the commands of a group by name, imported."""
    return {name: group.load(name) if hasattr(group, "load") else one for name, one in group.commands.items()}


def _as_markdown(line: str) -> str:
    """Escape `<` and `*` in a line of help, but for the marks of a list and of bold words."""
    mark = re.match(r"(\* |\*\*\w+\*\*:?)?", line)
    assert mark is not None
    return mark[0] + _escaped(line[mark.end() :], r"([<*])")


def plain_text(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring reStructuredText: its indented blocks are code, and `|`, `*` and `_` of equations are text."""
    text, indented = [], False
    for line in lines:
        if line.startswith("    "):
            text += [] if indented else ["::", ""]
            text.append(line)
            indented = True
        else:
            indented = indented and not line
            text.append(_escaped(line, r"([|*_])"))
    lines[:] = text


def _escaped(line: str, marks: str) -> str:
    """Escape marks outside of `code`."""
    parts = line.split("`")
    parts[::2] = [re.sub(marks, r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_commands)
    app.connect("autodoc-process-docstring", plain_text)
