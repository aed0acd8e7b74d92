"""The notebook in docs/ is executed, and the outputs in it are those that it gives.

EMOBENCH_GOLDEN=write writes them.
"""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "results.ipynb"


def shown(source: str, names: dict[str, Any]) -> dict[str, list[str]]:
    """Run a cell, and return what Jupyter shows of its last expression."""
    *statements, last = ast.parse(source).body
    value = None
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(statements, []), str(NOTEBOOK), "exec"), names)
        value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    else:
        exec(compile(ast.Module([*statements, last], []), str(NOTEBOOK), "exec"), names)
    found = {"text/html": value._repr_html_()} if hasattr(value, "_repr_html_") else {}
    return {kind: text.splitlines(keepends=True) for kind, text in (found | {"text/plain": repr(value)}).items()}


def test_the_notebook_shows_what_it_gives() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        data = shown("".join(cell["source"]), names)
        if "text/html" in data:
            data["text/plain"] = ["shown as a table"]
        given = [{"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}]
        if os.environ.get("EMOBENCH_GOLDEN") == "write":
            cell |= {"outputs": given, "execution_count": count}
        assert cell["outputs"] == given
    if os.environ.get("EMOBENCH_GOLDEN") == "write":
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    assert len(cells) == 4


def test_the_notebook_for_a_gpu_has_code_that_parses_and_no_output_that_was_not_measured() -> None:
    """It is not run here: it needs a GPU and the hub."""
    notebook = json.loads((NOTEBOOK.parent / "notebooks" / "first-comparison.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            assert cell["outputs"] == []
            if not source.startswith(("%", "!")):
                ast.parse(source)
