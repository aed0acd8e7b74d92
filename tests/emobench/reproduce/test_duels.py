"""Figures 3 to 6: the rows of a figure, compared by judges that a server on the loopback answers for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import parse_overrides
from emobench.registry import find_table
from emobench.reproduce.run import outline_table
from emobench.runs.planning.request import Request

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds" / "instruct"))
from endpoints import serving

PARTS = re.compile(r"### Response 1:\n(.*?)\n\n### Response 2:\n(.*?)\n\n### Evaluation", re.DOTALL)
COUNT = 6
SMALL = (
    *("recipe.max_tokens=600", "recipe.max_length=192", "recipe.batch=4", "recipe.learning_rate=3e-2"),
    "instruct.max_new_tokens=8",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations to train on, and instructions, in the files that the figure reads, and the runs of all tests."""
    found = tmp_path_factory.mktemp("data")
    rows = [{"instruction": f"Name {i}.", "input": "", "output": f"It is {i}."} for i in range(60)]
    (found / "alpaca-gpt4.train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = [{"instruction": f"Say {i}.", "input": "", "output": f"{i}"} for i in range(COUNT)]
    (found / "alpaca_eval.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return found


def larger(prompt: str) -> str:
    found = PARTS.search(prompt)
    assert found is not None
    return "1" if found[1] > found[2] else "2"


def test_an_outline_counts_the_requests_of_each_judge(folder: Path) -> None:
    """Both orders of each instruction, for each of three seeds; the rows are not judged by themselves."""
    table = find_table("figure-4")
    for dirs, instructions in ((), 805), ((folder,), COUNT):
        lines = outline_table(table, Request(suite=table.suite, data_dirs=dirs, offline=True)).lines
        judged = [line for line in lines if line.requests]
        assert [line.requests for line in judged] == [2 * instructions * 3] * 2
        assert all(line.request_tokens for line in judged)
        assert [line.what for line in judged] == [
            f"{model}: auto-j compares emo with mle on alpaca_eval" for model in ("llama2-7b", "llama2-13b")
        ]
    alone = Request(suite=table.suite, settings=parse_overrides(["judge.name=mt-bench-pair"]), seeds=(0,))
    lines = [line for line in outline_table(table, alone).lines if line.requests]
    assert [(line.requests, line.what.split(" compares")[0]) for line in lines] == [
        (2 * 805, "llama2-7b: mt-bench-pair"),
        (2 * 805, "llama2-13b: mt-bench-pair"),
    ]
    tables = replace(find_table("table-9"), settings={})
    assert all(not line.requests for line in outline_table(tables, Request(suite=tables.suite)).lines)


def test_a_figure_is_made_printed_and_drawn(
    command: Callable[..., Any], byte_model: Path, folder: Path, tmp_path: Path
) -> None:
    places = ("--runs", folder / "runs", "--leaderboard", tmp_path / "board", "--data-dir", folder)
    with serving(larger) as server:
        judge = ("judge.name=pandalm", "judge.model=a-judge", f"judge.url={server.url}")
        settings = [word for one in (*SMALL, *judge) for word in ("--set", one)]
        given = ("reproduce", "figure-3", "--model", byte_model, "--seed", 0, *settings, *places, "--offline", "-q")
        (result,) = command(*given, "--json").ok().json["results"]
        asked = len(server.bodies)
        shown = command(*given, "--plot", tmp_path / "f.svg").ok().out
        assert len(server.bodies) == asked
    (duel,) = result["duels"]
    assert (duel["row"], duel["baseline"], duel["judge"], duel["instructions"]) == ("emo", "mle", "pandalm", COUNT)
    assert duel["wins"] + duel["ties"] + duel["losses"] == COUNT
    assert duel["win_rate"] == pytest.approx((duel["wins"] + duel["ties"] / 2) / COUNT)
    assert asked == 2 * (COUNT - duel["ties"])  # this judge never contradicts itself: a tie is of equal responses
    assert [cell["metric"] for cell in result["cells"]] == ["alpaca_eval/response_tokens"] * 2
    assert "emo against mle · pandalm, seed 0" in shown
    assert any("without numbers" in line for line in result["remarks"])
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    assert duel["subject"] == byte_model.name


def test_a_judged_table_stands_beside_the_papers_and_says_what_is_missing(
    command: Callable[..., Any], byte_model: Path, folder: Path, tmp_path: Path
) -> None:
    places = ("--runs", folder / "runs", "--leaderboard", tmp_path / "board", "--data-dir", folder)

    def made(url: str, model: str) -> Any:
        judge = ("judge.name=pandalm", f"judge.model={model}", f"judge.url={url}")
        settings = [word for one in (*SMALL, *judge) for word in ("--set", one)]
        given = ("reproduce", "table-9", "--model", byte_model, "--seed", 0, *settings, *places, "--offline", "-q")
        (result,) = command(*given, "--json").ok().json["results"]
        return result

    with serving(larger) as server:
        result = made(server.url, "a-judge")
        server.answer = lambda prompt: "I cannot say."
        silent = made(server.url, "a-silent-judge")
    assert result["published_model"] == "llama-7b"
    cells = {cell["row"]: cell for cell in result["cells"]}
    assert {row: cell["published"] for row, cell in cells.items()} == {"mle": 0.593, "emo": 0.684}
    assert all(cell["metric"] == "alpaca_eval/win_rate" and cell["n"] == COUNT for cell in cells.values())
    assert any("in one order, at random" in line for line in result["remarks"])
    assert silent["cells"] == []
    assert any(line.startswith("alpaca_eval/win_rate is missing here: ") for line in silent["remarks"])
