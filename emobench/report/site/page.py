"""One board as one HTML page: the libraries, our script and style, and the data, all inside.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emobench.core.errors import ConfigError
from emobench.core.extras import require
from emobench.report.palette import style_sheet

_HERE = Path(__file__).parent
SCRIPTS = (
    "elements.js", "data.js", "address.js", "tips.js", "downloads.js", "charts.js", "columns.js", "board.js",
    "board_charts.js", "trade_off.js", "samples.js", "entry.js", "compare.js", "route.js",
)  # fmt: skip
"""The page's own script, in one scope: a thin layer over DataTables and Vega-Lite."""
MARK = '<meta name="generator" content="emobench leaderboard site">'
"""Stands in every file that we write, and tells it from a foreign one."""


def render_page(
    facts: Mapping[str, Any], index: Mapping[str, Any], chunks: Sequence[Any], objectives: Sequence[Any]
) -> str:
    """Return the page of a board: `facts` for its template, and what its script reads."""
    scripts = [*_libraries(), "\n".join(map(_asset, SCRIPTS))]
    style = _of_itables("dt_bundle.css") + style_sheet() + _asset("page.css")
    # A suite's groups are most of an index: a page reads those of a suite when it shows it.
    groups = [[g for g in index["groups"] if g["suite"] == place] for place in range(len(index["suites"]))]
    rest = {name: part for name, part in index.items() if name != "groups"}
    return _template("page.html.j2").render(
        **facts,
        mark=MARK,
        style=style,
        scripts=scripts,
        policy=_policy(scripts, style),
        index=_packed(rest),
        groups=[_packed(of_suite) for of_suite in groups],
        chunks=[_packed(chunk) for chunk in chunks],
        objectives=_packed(objectives),
    )


def render_index(boards: Sequence[Mapping[str, Any]]) -> str:
    """Return the page that links the boards, and says what each holds."""
    style = style_sheet() + _asset("page.css")
    return _template("index.html.j2").render(boards=boards, mark=MARK, style=style, policy=_policy((), style))


def _template(name: str) -> Any:
    loader = FileSystemLoader(_HERE / "templates")
    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    return Environment(loader=loader, autoescape=True, **options).get_template(name)


def _policy(scripts: Sequence[str], style: str) -> str:
    """Return a Content-Security-Policy: these scripts alone run, and nothing is loaded from anywhere."""
    hashes = " ".join(_hash(text) for text in scripts) or "'none'"
    rest = "img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; {rest}"


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
    found = (f"{table}\nwindow.DataTable = {exported[1]};\n", f"{vega}\n")
    if any("</script" in text.lower() for text in found):
        raise ConfigError("An installed itables or vl-convert-python has </script in its code; install another.")
    return found


def _of_itables(name: str) -> str:
    """Return a file of itables, without importing it: that takes a second."""
    folder = Path(str(require("itables").origin)).parent
    # An HTML parser makes a newline of a carriage return, and the policy's hash is of what it made.
    return (folder / "html" / name).read_text(encoding="utf-8").replace("\r", "\n")
