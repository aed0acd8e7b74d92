"""The script of the guide "Bring your own training": trained by TRL, evaluated, compared, on a page."""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from pathlib import Path

import pytest

import emobench

SCRIPT = Path(__file__).parents[3] / "docs" / "bring_your_own_training.py"
ROWS = 3
"""Rows of the small corpora in each text."""


@pytest.fixture
def longer_data(small_data: Path, tmp_path: Path) -> Path:
    """The small corpora in longer texts."""
    (tmp_path / "data").mkdir()
    for file in small_data.glob("wikitext2.*.jsonl"):
        texts = [json.loads(line)["text"] for line in file.read_text().splitlines()]
        joined = []
        for first in range(0, len(texts), ROWS):
            joined.append(json.dumps({"text": " ".join(texts[first : first + ROWS]), "document": first}))
        (tmp_path / "data" / file.name).write_text("\n".join(joined) + "\n")
    return tmp_path / "data"


@pytest.mark.slow
def test_the_script_compares_what_it_trained(
    byte_model: Path, longer_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl")
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 32
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("sys.argv", [str(SCRIPT), str(byte_model), str(longer_data)])
    with warnings.catch_warnings(action="ignore"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    compared = emobench.compare("emo", "mle")
    (comparison,) = compared.comparisons
    verdicts = {contrast.metric.partition("/")[2]: contrast for contrast in comparison.contrasts}
    assert verdicts["ppl_test"].seeds == 3
    assert verdicts["ppl_test"].verdict in ("better", "worse", "tied")
    assert (tmp_path / "page" / "index.html").is_file()
