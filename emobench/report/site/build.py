"""Boards become files: one HTML page each, and an index. A file is written whole or not at all; a foreign one is kept.

The libraries come from installed packages: DataTables from itables, Vega-Lite from vl-convert-python. Their licence
notices stay in them. The data are JSON, gzip-compressed in base64, so that no text of an entry is ever markup.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

from emobench import __version__
from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.extras import require
from emobench.core.files import write_whole
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.report.palette import style_sheet
from emobench.report.site.data import BoardData, details
from emobench.report.site.runs import Plain, RunFiles

CHUNK = 64
"""Entries whose details a page decompresses together."""
SCRIPTS = (
    "elements.js", "data.js", "address.js", "downloads.js", "copy.js", "charts.js", "columns.js", "board.js",
    "board_charts.js", "samples.js", "entry.js", "compare.js", "route.js",
)  # fmt: skip
"""The page's own script, in one scope: a thin layer over DataTables and Vega-Lite."""
MARK = '<meta name="generator" content="emobench leaderboard site">'
"""Stands in every file that we write, and tells it from a foreign one."""
_HERE = Path(__file__).parent
TermsOf: TypeAlias = Callable[[Entry], Sequence[Plain]]
"""The terms of an entry's objective as installed here, () if it is not: {"name", "version", "equation", "about",
"source", "code"}. `code` is None unless it is the code that the entry was trained with."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What the author of pages says: `notes` are Markdown."""

    title: str = ""
    author: str = ""
    notes: str = ""


NOTHING = About()


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board for a page. `problems` are sentences about files that were skipped."""

    name: str
    entries: Sequence[Entry]
    problems: Sequence[str] = ()


def write_site(
    boards: Sequence[Board],
    out: Path,
    examples_of: ExamplesOf,
    runs: RunFiles,
    baseline: str | None = None,
    terms_of: TermsOf = lambda _: (),
    about: About = NOTHING,
) -> list[Path]:
    """Write a page for each board and `index.html`, which comes first in the returned paths.

    `baseline` is the objective that differences are shown against at first. Raises UnknownNameError if no entry has it,
    ConfigError if a file of another origin is in the way, StorageError if one cannot be written.
    """
    names: set[str] = set()
    for board in boards:
        names.update(entry.objective.name for entry in board.entries)
    if baseline is not None and baseline not in names:
        raise UnknownNameError("objective to be the baseline", baseline, names)
    index = out / "index.html"
    paths = _paths(boards, out)
    for path in (index, *paths):
        _check_ours(path)
    style = style_sheet() + _asset("page.css")
    heads = list(map(_head, boards, paths))
    if about.title:
        heads[0]["title"] = about.title
    shown = {"author": about.author, "notes": markdown_html(about.notes)}
    terms: dict[str, Sequence[Plain]] = {}
    for place, (board, path, head) in enumerate(zip(boards, paths, heads, strict=True)):
        data = BoardData(board.entries, examples_of, baseline)
        of_entries: list[Plain] = []
        samples: dict[str, str] = {}
        for entry, columns in data.entries:
            objective = f"{entry.objective.name} {entry.objective.source_sha256}"
            if objective not in terms:
                terms[objective] = () if entry.untrained else terms_of(entry)
            files = runs.of(entry)
            if texts := files.pop("samples"):
                samples[entry.id] = _packed(texts)
            of_entries.append({"objective": objective, **details(entry, columns), **files})
        chunks = []
        for start in range(0, len(of_entries), CHUNK):
            chunks.append(_packed(of_entries[start : start + CHUNK]))
        cite = {"title": head["title"], "author": about.author, "year": head["newest"][:4], "version": __version__}
        page = {"index": _packed(data.plain | {"chunk": CHUNK, "cite": cite}), "objectives": _packed(terms)}
        # A suite's groups are most of an index: a page reads those of a suite when it shows it.
        page |= {"groups": list(map(_packed, data.groups)), "chunks": chunks, "samples": samples}
        whole = head | {"links": heads, "place": place, "problems": board.problems, **shown}
        scripts = [*_libraries(), "\n".join(map(_asset, SCRIPTS))]
        _write(path, "page.html.j2", scripts, _of_itables("dt_bundle.css") + style, **whole, **page)
    _write(index, "index.html.j2", [], style, boards=heads, title=about.title or "Leaderboards", **shown)
    return [index, *paths]


def markdown_html(text: str) -> str:
    """Return Markdown as HTML: raw HTML stays text, images are links, and nothing has a style of its own."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(text)
    for token in tokens:
        token.attrs.pop("style", None)  # the policy refuses it
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + 1, 6)}"  # the page has the first heading
    return parser.renderer.render(tokens, parser.options, {})


def _paths(boards: Sequence[Board], out: Path) -> list[Path]:
    """Return a file for each board, named after it."""
    paths: list[Path] = []
    for board in boards:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", board.name).strip(".-") or "board"
        path = out / f"{stem}.html"
        while path in (out / "index.html", *paths):
            stem += "-2"
            path = out / f"{stem}.html"
        paths.append(path)
    return paths


def _head(board: Board, path: Path) -> Plain:
    """Return the head of a board's page: its title, counts and suites."""
    suites: dict[str, None] = {}
    models, objectives, newest = set(), set(), ""
    for entry in board.entries:
        suites[str(entry.suite)] = None
        models.add(entry.model.name)
        objectives.add(entry.objective.name)
        newest = max(newest, entry.provenance.created[:10])
    numbers = {
        "entries": len(board.entries),
        "suites": len(suites),
        "models": len(models),
        "objectives": len(objectives),
    }
    counts = [f"{name}: {number:,}" for name, number in numbers.items()]
    return {
        "name": board.name,
        "href": path.name,
        "suites": list(suites),
        "counts": counts,
        "newest": newest,
        "title": f"{board.name} leaderboard",
    }


def _check_ours(path: Path) -> None:
    try:
        ours = not path.exists() or MARK in path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Choose another folder.") from None
    if not ours:
        raise ConfigError(f"{path} was not written by `emobench leaderboard site`. Move it, or choose another folder.")


def _write(path: Path, template: str, scripts: Sequence[str], style: str, **shown: Any) -> None:
    loader = FileSystemLoader(_HERE / "templates")
    pages = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    # These scripts alone run, and nothing is loaded from anywhere.
    hashes = " ".join(map(_hash, scripts)) or "'none'"
    policy = f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:; connect-src 'none'"
    policy += "; base-uri 'none'; form-action 'none'"
    text = pages.get_template(template).render(mark=MARK, style=style, scripts=scripts, policy=policy, **shown)
    write_whole(path, text, f"The page {path.name}", "Free space or choose another folder.")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(value: Any) -> str:
    """Return JSON, compressed, in base64. The same value gives the same text: no time is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A name may hold half of a surrogate pair, which UTF-8 cannot say.
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)).decode()


def _asset(name: str) -> str:
    return (_HERE / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def _libraries() -> tuple[str, str]:
    """Return DataTables and Vega-Lite as scripts that set `DataTable` and `vegaEmbed` of the window."""
    table = _of_itables("dt_bundle.js")
    exported = re.search(r"export\{[^}]*?([\w$]+) as default[^}]*\}", table)
    if exported is None:
        raise ConfigError("The installed itables exports no DataTable. Install another: pip install --upgrade itables")
    require("vl_convert")
    import vl_convert

    vega = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("\r", "\n")
    scripts = (f"{table}\nwindow.DataTable = {exported[1]};\n", f"{vega}\n")
    if "</script" in "".join(scripts).lower():
        raise ConfigError("An installed itables or vl-convert-python has </script in its code; install another.")
    return scripts


def _of_itables(name: str) -> str:
    """Return a file of itables, without importing it: that takes a second."""
    folder = Path(str(require("itables").origin)).parent
    # An HTML parser makes a newline of a carriage return, and the policy's hash is of what it made.
    return (folder / "html" / name).read_text(encoding="utf-8").replace("\r", "\n")
