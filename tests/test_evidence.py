"""The boards of studies that ship with the project, and the page that tells what they hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify

ROOT = Path(__file__).parents[1]
STUDIES, PAGE = ROOT / "leaderboards" / "studies", ROOT / "docs" / "evidence.md"
sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))  # as `python tests/benchmarks NAME` does

from evidence import fair_page  # noqa: E402
from evidence.smollm2_page import TABLES, Study, filled  # noqa: E402


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Without a folder of runs: a clone has what the board ships."""
    return Study(STUDIES / "smollm2", tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", [name for name in TABLES if f"<!-- {name}: begin -->" in PAGE.read_text("utf-8")])
def test_each_table_is_made_of_the_board(name: str, study: Study) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, name, TABLES[name](study)) == page


@pytest.mark.parametrize("name", fair_page.TABLES)
def test_each_table_on_equal_tuning_is_made_of_its_board(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name}: begin -->" in page
    assert filled(page, name, fair_page.TABLES[name](fair_page.Study(STUDIES / "fair"))) == page


def test_the_main_question_has_an_answer(study: Study) -> None:
    """EMO against MLE on SmolLM2: three seeds, 1,000 texts, an interval and a verdict."""
    contrast = study.contrast(("wikitext2", ()), "mauve")
    assert contrast is not None
    assert contrast.seeds == 3
    assert contrast.ci95 is not None
    assert contrast.verdict in ("better", "worse", "tied")


@pytest.fixture(params=["smollm2", "fair"])
def shipped(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A board without what was recorded in this clone since, as by `make demo`: its files are in a folder of runs."""
    board = STUDIES / request.param
    listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=board, capture_output=True, text=True, check=False)
    if listed.returncode:  # no clone
        return board
    for name in filter(None, listed.stdout.split("\0")):
        (tmp_path / "board" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(board / name, tmp_path / "board" / name)
    return tmp_path / "board"


def test_the_board_is_whole_and_small(shipped: Path, tmp_path: Path) -> None:
    count, findings = verify(Leaderboard(shipped), tmp_path / "runs")
    assert (count > 0, findings) == (True, [])
    files = [path for path in shipped.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10_000_000
    for path in files:
        if path.suffix in (".json", ".txt"):
            assert not re.search(r"[\"' ](/(home|root|tmp|work|mnt|Users)/)", path.read_text(encoding="utf-8")), path
