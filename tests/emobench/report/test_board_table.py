"""The tables say what the entries hold, at any width, and nothing that the numbers do not carry.

Their sentences are in `golden/show.txt` (`test_printed.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from shown import board_cells, board_markdown, board_text, printed

from emobench.cli.leaderboard.show import print_board
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.stats.summary import summarise
from emobench.report.board_table import to_json
from emobench.tasks.scores import Score

MakeEntry = Callable[..., Entry]


@pytest.fixture
def make(make_row: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of values by metric; those without a task are of the task `toy`."""

    def make(name: str, metrics: Mapping[str, Sequence[float]], **changes: Any) -> Entry:
        metrics = {key if "/" in key else f"toy/{key}": values for key, values in metrics.items()}
        recipe = {} if name == "pretrained" else {"name": "lm", "epochs": 3}
        return make_row(name, metrics, **{"suite": {"name": "suite", "version": 2}, "recipe": recipe, **changes})

    return make


def text(entries: Sequence[Entry], width: int = 100, **more: Any) -> str:
    return printed(board_text(entries, **more), width)


def lines(entries: Sequence[Entry], width: int = 80) -> list[str]:
    return [line.rstrip() for line in text(entries, width).splitlines()]


def test_rows_of_one_name_are_told_apart_by_parameters_or_id(make: MakeEntry) -> None:
    def tailr(gamma: float, value: float) -> Entry:
        objective = {"name": "tailr", "version": "1", "params": {"gamma": gamma, "min_weight": 0.0}}
        return make("tailr", {"accuracy": [value]}, objective=objective)

    first, second, again = tailr(0.1, 0.9), tailr(0.2, 0.9), tailr(0.2, 0.8)
    (shown,) = board_cells([first, second, again])
    assert list(shown) == ["tailr(gamma=0.1)", *(f"tailr(gamma=0.2) [{e.id[:6]}]" for e in (second, again))]
    assert "tailr with min_weight=0.0" in text([first, second])


def test_no_entries_say_which_command_makes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("text", "markdown", "latex"):
        print_board(tmp_path / "board", tmp_path / "runs", format=format)
        assert "`emobench run --leaderboard " in capsys.readouterr().out
    assert to_json([]) == {"schema": 2, "groups": []}


def four_objectives(make: MakeEntry, metrics: int) -> list[Entry]:
    rng = np.random.default_rng(0)
    names = [f"a_task{i}/{'ppl' if i % 2 else 'kl'}" for i in range(metrics)]
    objectives = ("emo", "mle", "mixce", "a-rather-long-objective")
    scores = {objective: {name: list(1.5 + 0.01 * rng.random(3)) for name in names} for objective in objectives}
    return [make(name, of) for name, of in scores.items()]


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("metrics", [1, 9, 20])
def test_every_number_is_shown_at_every_width(make: MakeEntry, width: int, metrics: int) -> None:
    entries = four_objectives(make, metrics)
    shown = text(entries, width)
    assert max(cell_len(line.rstrip()) for line in shown.splitlines()) <= width
    assert "…" not in shown
    numbers = sorted(re.findall(r"\d+\.\d+ ± \d+\.\d+", shown))
    assert len(numbers) >= 4 * metrics
    assert sorted(re.findall(r"\d+\.\d+ ± \d+\.\d+", board_markdown(entries))) == numbers


def test_a_table_that_fits_better_turned_is_turned(make: MakeEntry) -> None:
    head = next(line for line in lines(four_objectives(make, 9), 100) if line.startswith("metric"))
    assert set(head.split()) == {"metric", "a-rather-long-objective", "emo", "mixce", "mle"}


def test_what_a_table_is_sorted_by_is_shown(make: MakeEntry) -> None:
    entries = [make(n, {"kl": [v], "ppl": [9.0], "one/kl": [w]}) for n, v, w in (("a", 2.0, 1.0), ("b", 1.0, 2.0))]
    by_one, hidden = (board_cells(entries, view=View(metrics=m, sort="kl"))[0] for m in (("toy/*",), ("toy/ppl",)))
    assert list(by_one) == ["b", "a"]  # of the metrics asked for, kl is toy's alone
    assert len(by_one["a"]) == 2
    assert len(hidden["a"]) == 4  # no kl is asked for: sorted by the mean of both, and both are shown


def test_entries_that_are_not_comparable_stand_in_tables_of_their_own(make: MakeEntry) -> None:
    other = make("emo", {"accuracy": [0.5]}, suite={"name": "other", "version": 1})
    first, second, third = (make("emo", {"accuracy": [0.5]}, recipe={"name": "lm", "epochs": n}) for n in (3, 9, 27))
    entries = [first, other, second, third]
    shown = lines(entries, 120)
    assert [line for line in shown if line.endswith(" · tiny")] == [*["suite v2 · tiny"] * 3, "other v1 · tiny"]
    assert [line for line in shown if line.startswith("Unlike")] == [
        "Unlike the first table of suite v2 · tiny: recipe.epochs: 3 and 9.",
        "Unlike the first table of suite v2 · tiny: recipe.epochs: 3 and 27.",
    ]
    assert [len(group["entries"]) for group in to_json(entries)["groups"]] == [1] * 4
    alike = make("emo", {"accuracy": [0.5]}, suite={"name": "toy", "version": 1})
    assert "protocol paper@1 · " in text([alike])  # not "paper (toy 1)" where the suite has the task's name


@pytest.mark.parametrize(("swing", "marked"), [(0.1, True), (2.5, False)])
def test_examples_bring_in_their_noise(make: MakeEntry, swing: float, marked: bool) -> None:
    """Three seeds agree on a difference of 0.5 nats; from one item to the next it swings by 0.1 or by 2.5.

    The standard error over 50 items is swing / 7.
    """
    entries, examples = [], {}
    for name, gap in (("emo", 0.0), ("mle", 0.5)):
        items_SI = 4 + np.arange(50) / 50 + np.zeros((3, 50))
        if gap:
            items_SI += gap + swing * (-1.0) ** np.arange(50) + np.array([[0.001], [-0.001], [0.0]])
        runs = [{str(i): (float(v), 1.0) for i, v in enumerate(row)} for row in items_SI]
        given = [
            Score(value=float(row.mean()), n=50, higher_is_better=False, unit="nats", examples=run)
            for row, run in zip(items_SI, runs, strict=True)
        ]
        entries.append(replace(make(name, {"kl": [1.0, 1.0, 1.0]}), metrics={"toy/kl": summarise(given)}))
        examples[entries[-1].id] = [{"toy/kl": run} for run in runs]
    (group,) = to_json(entries, lambda entry: examples[entry.id])["groups"]
    assert group["best"] == {"toy/kl": entries[0].id if marked else None}
    (group,) = to_json(entries)["groups"]
    assert group["best"] == {"toy/kl": None}
    assert list(group["untested"]) == ["toy/kl"]


def test_below_three_seeds_no_examples_are_read_and_nothing_is_marked(make: MakeEntry) -> None:
    entries = [make(n, {"kl": v}) for n, v in (("emo", [1.0, 1.001]), ("mle", [9.0, 9.001]))]
    read: list[str] = []
    assert "*" not in str(board_cells(entries, examples_of=lambda entry: read.append(entry.id)))
    assert read == []


def test_hostile_text_shows_as_text(make: MakeEntry) -> None:
    hostile = "\x1b[31m<script>|[bold]*_`"
    model, missing = {"name": hostile, "source": "x"}, {"toy/kl": hostile + "\r\n| a | b |"}
    entry = make("emo", {"accuracy": [0.5]}, model=model, missing=missing)
    shown = text([entry])
    assert "\x1b" not in shown
    assert "<script>|[bold]*_`" in shown
    table = [line for line in board_markdown([entry]).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in table] == [3, 3, 3]
    assert re.search(r"(?<!\\)[<`*]script", board_markdown([entry])) is None


def test_the_tables_module_loads_nothing_heavy() -> None:
    modules = ("report.board_table", "leaderboard.store", "leaderboard.run_files")
    code = "import sys;" + "".join(f"import emobench.{name};" for name in modules)
    code += "print([m for m in ('scipy', 'torch', 'transformers', 'datasets', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
