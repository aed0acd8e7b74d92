"""The tables say what the entries hold, at any width, and nothing that the numbers do not carry."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from shown import board_markdown, board_text

from emobench.cli.leaderboard.show import print_board
from emobench.config import to_plain
from emobench.leaderboard.query.view import View
from emobench.leaderboard.render.leaderboard_table import to_json
from emobench.leaderboard.schema.entry import Entry, read_entry
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score

MakeEntry = Callable[..., Entry]

SIZES = {"accuracy": ("fraction", True), "ppl": ("perplexity", False), "kl": ("nats", False), "entropy": ("nats", None)}


def summary(name: str, values: Sequence[float], **more: Any) -> Any:
    unit, higher = SIZES[name]
    scores = [Score(value=v, n=50, higher_is_better=higher, unit=unit, aggregate="corpus", **more) for v in values]
    return to_plain(summarise(scores))


@pytest.fixture
def make(entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of plain metrics; those without a task are of the task `toy`."""

    def make(name: str, metrics: Mapping[str, Any], **changes: Any) -> Entry:
        metrics = {key if "/" in key else f"toy/{key}": value for key, value in metrics.items()}
        given = {
            "suite": {"name": "suite", "version": 2},
            "protocols": {key.split("/")[0]: "paper@3fa9c1" for key in metrics},
            "model": {"name": "tiny", "source": "tiny", "revision": "r1"},
            "recipe": {} if name == "pretrained" else {"name": "lm", "epochs": 3},
        }
        return entry_of(name, metrics=metrics, **{**given, **changes})

    return make


def text(entries: Sequence[Entry], width: int = 100, **more: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(board_text(entries, **more))
    return out.getvalue()


def rows(shown: str) -> dict[str, list[str]]:
    """Return the cells of a table's lines by their first cell (cells are two spaces apart or more)."""
    split = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines() if line.strip()]
    return {first: rest for first, *rest in split}


def test_a_group_reads_as_the_paper_would_print_it(make: MakeEntry) -> None:
    entries = [
        make(
            "mle", {"accuracy": summary("accuracy", [0.901, 0.903, 0.905]), "ppl": summary("ppl", [72.0, 72.4, 72.2])}
        ),
        make(
            "tailr",
            {"accuracy": summary("accuracy", [0.951, 0.954, 0.954]), "ppl": summary("ppl", [73.0, 71.4, 72.8])},
            objective={"name": "tailr", "version": "1", "params": {"gamma": 0.2}},
        ),
    ]
    lines = [line.rstrip() for line in text(entries, 80).splitlines()]
    conditions = ["suite v2 · tiny", "protocol paper (toy 3fa9c1) · recipe lm", "tailr with gamma=0.2", ""]
    assert lines[:4] == conditions
    assert lines[4:9] == [
        "               accuracy          ppl",
        "objective         (%) ↑            ↓",
        "────────────────────────────────────",
        "mle          90.3 ± 0.2   72.2 ± 0.2",
        "tailr       95.3 ± 0.2*   72.4 ± 0.9",
    ]
    assert " ".join(lines[10:]).startswith(
        "Mean ± standard deviation over 3 seeds. * better than every other objective beyond the noise of seeds and"
        " test examples, as `emobench compare` tests each pair (two-sided 5 %, paired by seed). p is adjusted for all"
        " tests of its family, shown or not (Holm): other metrics (2 tests)."
    )
    assert "one pre-trained model" in " ".join(lines)


def test_rows_of_one_objective_show_the_parameters_in_which_they_differ(make: MakeEntry) -> None:
    entries = [
        make(
            "tailr",
            {"accuracy": summary("accuracy", [0.9])},
            objective={"name": "tailr", "version": "1", "params": {"gamma": gamma, "min_weight": 0.0}},
        )
        for gamma in (0.1, 0.2)
    ]
    shown = text(entries, 80)
    assert "tailr with min_weight=0.0" in shown
    assert "tailr(gamma=0.1)" in shown
    assert "tailr(gamma=0.2)" in shown


def test_no_entries_say_which_command_makes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for markdown in (False, True):
        print_board(tmp_path / "board", tmp_path / "runs", markdown=markdown)
        assert "`emobench run`" in capsys.readouterr().out
    assert to_json([]) == {"schema": 2, "groups": []}


def four_objectives(make: MakeEntry, metrics: int) -> list[Entry]:
    rng = np.random.default_rng(0)
    names = [f"task{i}/{'ppl' if i % 2 else 'kl'}{i}" for i in range(metrics)]
    return [
        make(
            name,
            {
                m: summary(m.split("/")[1].rstrip("0123456789"), [1.5 + 0.01 * float(rng.random()) for _ in range(3)])
                for m in names
            },
        )
        for name in ("emo", "mle", "mixce", "a-rather-long-objective")
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("metrics", [1, 3, 9, 20])
def test_every_number_is_shown_at_every_width(make: MakeEntry, width: int, metrics: int) -> None:
    entries = four_objectives(make, metrics)
    shown = text(entries, width)
    assert max(cell_len(line.rstrip()) for line in shown.splitlines()) <= width
    assert "…" not in shown
    found = sorted(re.findall(r"\d+\.\d+ ± \d+\.\d+", shown))
    assert len(found) == 4 * metrics
    assert sorted(re.findall(r"\d+\.\d+ ± \d+\.\d+", board_markdown(entries))) == found


def test_a_table_that_fits_better_turned_is_turned(make: MakeEntry) -> None:
    shown = rows(text(four_objectives(make, 9), 100))
    assert shown["metric"] == ["a-rather-long-objective", "emo", "mixce", "mle"]
    assert len(shown["task0/kl0 (nats) ↓"]) == 4


def test_what_all_columns_say_is_said_once(make: MakeEntry) -> None:
    entries = [
        make(n, {f"{t}/accuracy": summary("accuracy", [v]) for t in "ab"}) for n, v in (("emo", 0.6), ("mle", 0.5))
    ]
    lines = [line.rstrip() for line in text(entries, 80).splitlines()]
    assert lines[2] == "accuracy (%) ↑"
    assert lines[4:8] == [
        "objective   mean      a      b",
        "──────────────────────────────",
        "emo         60.0   60.0   60.0",
        "mle         50.0   50.0   50.0",
    ]


def test_a_tasks_metrics_stay_in_one_table(make: MakeEntry) -> None:
    """At 60 columns a table has room for four columns; a task has three, so that each task has a table of its own."""
    names = [f"{task}/{metric}" for task in ("one", "two", "six") for metric in ("kl", "ppl", "accuracy")]
    value = {"kl": 0.5, "ppl": 2.0, "accuracy": 0.5}
    scores = {name: summary(metric := name.split("/")[1], [value[metric]]) for name in names}
    entries = [make(f"objective-{i}", scores) for i in range(12)]
    shown = text(entries, 60)
    heads = [line.split() for line in shown.splitlines() if line.split()[:1] in (["one"], ["two"], ["six"], ["mean"])]
    assert heads == [["mean", "one", "one", "one"], ["two", "two", "two"], ["six", "six", "six"]]
    assert shown.count("objective-11 ") == 3


def test_intervals_and_n_in_the_place_of_the_spread(make: MakeEntry) -> None:
    """Three seeds of 50, 51 and 52 %: 51 -+ 4.3027 / sqrt(3) (Student's t with 2 degrees of freedom)."""
    entries = [make("emo", {"accuracy": summary("accuracy", [0.50, 0.51, 0.52])})]
    shown = text(entries, view=View(intervals=True))
    assert rows(shown)["emo"] == ["51.0 [48.5, 53.5]"]
    assert "(%) ↑ n=50" in shown
    assert "Mean [95 % interval] over 3 seeds." in shown
    single = text([make("emo", {"kl": summary("kl", [0.5])})], view=View(intervals=True))
    assert rows(single)["emo"] == ["0.500 [1]"]
    assert "no interval: one seed, and no per-example results" in single


def test_ranks_are_explained(make: MakeEntry) -> None:
    entries = [
        make(n, {f"{t}/accuracy": summary("accuracy", [v, v + 0.01, v + 0.03 + e]) for t in "ab"})
        for n, v, e in (("emo", 0.9, 0.0), ("mle", 0.5, 0.001), ("tailr", 0.2, 0.002))
    ]
    said = "Rank by mean accuracy over 2 tasks: 1 + the objectives that are better beyond noise (two-sided 5 %, Holm"
    assert f"{said} over 3 pairs)." in text(entries, 130)
    cells = [
        [cell.strip() for cell in line.split("|")] for line in board_markdown(entries).splitlines() if line[:2] == "| "
    ]
    assert [row[1:3] for row in cells] == [["objective", "rank"], ["emo", "1"], ["mle", "2"], ["tailr", "3"]]


def test_missing_scores_and_small_n_have_footnotes(make: MakeEntry) -> None:
    small = summary("accuracy", [0.5, 0.9, 0.6], flags=("small_n",))
    entries = [
        make("emo", {"accuracy": small, "kl": summary("kl", [1.0, 1.1, 1.2])}),
        make("mle", {"accuracy": small}, missing={"toy/kl": "the oracle\nwas away"}),
    ]
    shown = text(entries)
    assert rows(shown)["mle"] == ["66.7 ± 20.8", "– [2]"]
    assert "(%) ↑ [1]" in shown
    assert "[1] small n (50): shown, not ranked" in shown
    assert "[2] toy/kl: the oracle was away" in shown
    assert "*" not in shown


def test_a_spread_never_rounds_to_zero_and_one_seed_has_none(make: MakeEntry) -> None:
    shown = rows(text([make("emo", {"accuracy": summary("accuracy", [0.50001, 0.50003])})]))
    assert shown["emo"] == ["50.002 ± 0.001"]
    single = text([make("emo", {"kl": summary("kl", [0.12345])})])
    assert rows(single)["emo"] == ["0.123"]
    assert "Values of one seed." in single


def test_the_digits_of_a_cell_are_those_of_its_mean(make: MakeEntry) -> None:
    """A spread that three decimals would hide is below the last one; of equal seeds it is 0, and of float rounding."""
    given = {"emo": [4.3172, 4.3168, 4.317], "mle": [4.2, 4.2, 4.2], "tailr": [4.1, 4.1 + 4e-8, 4.1]}
    shown = rows(text([make(name, {"kl": summary("kl", values)}) for name, values in given.items()]))
    assert {name: shown[name] for name in given} == {
        "emo": ["4.317 ± <0.001"],
        "mle": ["4.200 ± 0.000"],
        "tailr": ["4.100 ± 0.000"],
    }


def test_a_metric_without_a_direction_has_no_best(make: MakeEntry) -> None:
    entries = [make(n, {"entropy": summary("entropy", [v, v + 0.1, v + 0.3])}) for n, v in (("a", 1.0), ("b", 2.0))]
    shown = " ".join(text(entries).split())
    assert "over 3 seeds. entropy describes and decides nothing: nothing is marked as best." in shown
    assert "every other" not in shown


def test_what_a_table_is_sorted_by_is_shown(make: MakeEntry) -> None:
    entries = [
        make(n, {"kl": summary("kl", [v]), "ppl": summary("ppl", [9.0]), "one/kl": summary("kl", [w])})
        for n, v, w in (("a", 2.0, 1.0), ("b", 1.0, 2.0))
    ]
    by_one, hidden = (text(entries, view=View(metrics=m, sort="kl")) for m in (("toy/*",), ("toy/ppl",)))
    assert by_one.index("b  ") < by_one.index("a  ")  # of the metrics asked for, kl is toy's alone
    assert "one" not in by_one[: by_one.index("─")]
    assert "one" in hidden[: hidden.index("─")]  # none of those is asked for: sorted by both, and both are shown


def test_a_row_that_ties_is_not_marked(make: MakeEntry) -> None:
    entries = [
        make(n, {"accuracy": summary("accuracy", v)}) for n, v in (("a", [0.5, 0.6, 0.7]), ("b", [0.6, 0.5, 0.7]))
    ]
    shown = text(entries)
    assert "*" not in shown
    assert "No objective is better than every other beyond the noise of seeds" in " ".join(shown.split())


def test_no_row_is_marked_where_a_rival_lacks_the_metric(make: MakeEntry) -> None:
    wins = [make(n, {"kl": summary("kl", [v, v + 0.01, v + 0.03])}) for n, v in (("a", 1.0), ("b", 9.0))]
    wins[1] = make("b", {"kl": summary("kl", [9.0, 9.02, 9.01])})
    assert "1.013 ± 0.015*" in text(wins)
    assert "*" not in text([*wins, make("c", {"accuracy": summary("accuracy", [0.5])}, missing={"toy/kl": "no"})])


def test_entries_that_are_not_comparable_stand_in_tables_of_their_own(make: MakeEntry) -> None:
    values = summary("accuracy", [0.5, 0.6])
    entries = [make("emo", {"accuracy": values}), make("emo", {"accuracy": values}, recipe={"name": "lm", "epochs": 9})]
    shown = text(entries)
    assert shown.count("objective ") == 2
    assert "Not ranked with the table above: recipe.epochs: 3 and 9." in shown
    assert [len(group["entries"]) for group in to_json(entries)["groups"]] == [1, 1]


def test_a_table_of_one_task_names_it_unless_it_is_called_as_the_suite(make: MakeEntry) -> None:
    values = {"accuracy": summary("accuracy", [0.5])}
    assert "protocol paper (toy 3fa9c1) · " in text([make("emo", values)])
    assert "protocol paper (toy 3fa9c1) · " in board_markdown([make("emo", values)])
    alike = make("emo", values, suite={"name": "toy", "version": 1})
    assert "protocol paper@3fa9c1 · " in text([alike])


def test_tables_of_one_suite_stand_together_and_name_the_one_that_they_differ_from(make: MakeEntry) -> None:
    values = {"accuracy": summary("accuracy", [0.5])}
    other = make("emo", values, suite={"name": "other", "version": 1})
    first, second, third = (make("emo", values, recipe={"name": "lm", "epochs": epochs}) for epochs in (3, 9, 27))
    lines = text([first, other, second, third], 120).splitlines()
    assert [line.strip() for line in lines if line.endswith(" · tiny")] == [*["suite v2 · tiny"] * 3, "other v1 · tiny"]
    assert [line.strip() for line in lines if line.startswith("Not ranked")] == [
        "Not ranked with the table above: recipe.epochs: 3 and 9.",
        "Not ranked with the first table of suite v2 · tiny: recipe.epochs: 3 and 27.",
    ]


def test_what_is_said_of_every_table_is_said_once_at_the_end(make: MakeEntry) -> None:
    few = summary("accuracy", [0.5], flags=("small_n",))
    entries = [make("mle", {"accuracy": few}, recipe={"name": "lm", "epochs": n}, seeds=[0]) for n in (1, 2)]
    for shown in (text(entries), board_markdown(entries).replace("\\", "")):
        assert shown.count("small n") == 1
        assert shown.count("Values of one seed.") == 1
        assert shown.index("Not ranked with") < shown.index("Values of one seed.") < shown.rindex("[1] ")
    (one,) = [text(entries[:1])]
    assert "Values of one seed." in one


def test_a_cell_is_never_broken(make: MakeEntry) -> None:
    values = [463.264, 463.268, 463.266]
    names = [f"task{number}/ppl" for number in range(5)]
    entries = [make(name, {task: summary("ppl", values) for task in names}) for name in ("mle", "emo")]
    for width in range(50, 121):
        cells = re.findall(r"463\.266 ± 0\.002(?!\d)", text(entries, width))
        assert len(cells) == 2 * (len(names) + 1), width  # and their mean


def test_two_rows_of_one_objective_are_told_apart_by_id(make: MakeEntry) -> None:
    entries = [make("emo", {"accuracy": summary("accuracy", [0.5 + i / 10])}) for i in range(2)]
    assert {f"emo [{entry.id[:6]}]" for entry in entries} <= rows(text(entries)).keys()


def test_rows_that_differ_in_their_code_alone_are_said_to(make: MakeEntry) -> None:
    def of(code: str | None, seed: int, **params: Any) -> Entry:
        objective = {"name": "mine", "version": "1", "params": params, "source_sha256": code and code * 64}
        return make("mine", {"accuracy": summary("accuracy", [0.5])}, objective=objective, seeds=[seed])

    one, other, third = of("0", 0, nats=4.0), of("1", 0, nats=4.0), of("1", 0, nats=5.0)
    older = next(e for e in (one, other) if e.id in to_json([one, other, third])["groups"][0]["older_code"])
    assert f"mine(nats=4.0) [{older.id[:6]}] older code" in rows(text([one, other, third]))
    said = f"mine(nats=4.0) [{older.id[:6]}]: the same name and parameters, other code. Older code is neither"
    assert said in text([one, other, third], 120)
    assert board_markdown([one, other, third]).replace("\\", "").count(said) == 1
    assert "other code" not in text([of("0", 0), of("0", 1)])  # other seeds
    assert "other code" not in text([of("0", 0), of(None, 1)])  # not known


def test_one_value_without_examples_decides_nothing(make: MakeEntry) -> None:
    trained = make("mle", {"accuracy": summary("accuracy", [0.901, 0.903, 0.905])})
    entries = [trained, make("pretrained", {"accuracy": summary("accuracy", [0.5])})]
    lines = [line.rstrip() for line in text(entries, 120).splitlines()]
    assert lines[6:8] == ["pretrained         50.0", "mle          90.3 ± 0.2"]
    assert "*" not in text(entries)
    assert "Not tested: accuracy (one value without seeds and without per-example results)." in lines


@pytest.mark.parametrize(("swing", "marked"), [(0.1, True), (2.5, False)])
def test_examples_bring_in_their_noise(make: MakeEntry, swing: float, marked: bool) -> None:
    """Three seeds agree on a difference of 0.5 nats; from one item to the next it swings by 0.1 or by 2.5.

    The standard error over 50 items is swing / 7.
    """
    entries, examples = [], {}
    for name, gap in (("emo", 0.0), ("mle", 0.5)):
        runs = [
            {str(i): (4.0 + seed + (gap + swing * (-1) ** i if gap else 0.0) + i / 50, 1.0) for i in range(50)}
            for seed in ((0.001, -0.001, 0.0) if gap else (0.0, 0.0, 0.0))
        ]
        given = [
            Score(
                value=float(np.mean([v for v, _ in r.values()])), n=50, higher_is_better=False, unit="nats", examples=r
            )
            for r in runs
        ]
        entries.append(make(name, {"kl": to_plain(summarise(given))}))
        examples[entries[-1].id] = [{"toy/kl": run} for run in runs]
    (group,) = to_json(entries, lambda entry: examples[entry.id])["groups"]
    assert group["best"] == {"toy/kl": entries[0].id if marked else None}
    assert ("*" in text(entries, examples_of=lambda entry: examples[entry.id]).split("Mean")[0]) is marked
    (group,) = to_json(entries)["groups"]
    assert group["best"] == {"toy/kl": None}
    assert list(group["untested"]) == ["toy/kl"]
    without = text(entries, 200, examples_of=lambda entry: None)
    assert "*" not in without
    assert "Not tested: kl (the per-example results of both sides are not available" in without


def test_below_three_seeds_no_examples_are_read_and_nothing_is_marked(make: MakeEntry) -> None:
    entries = [make(n, {"kl": summary("kl", v)}) for n, v in (("emo", [1.0, 1.001]), ("mle", [9.0, 9.001]))]
    read: list[str] = []
    shown = text(entries, 200, examples_of=lambda entry: read.append(entry.id))
    assert read == []
    assert "*" not in shown
    assert "Fewer than 3 seeds cannot tell objectives apart: nothing is tested, marked or ranked (--seed 0" in shown


def test_json_holds_the_entries_whole(make: MakeEntry) -> None:
    entry = make("emo", {"accuracy": summary("accuracy", [0.5, 0.6])})
    (group,) = json.loads(json.dumps(to_json([entry])))["groups"]
    assert read_entry(group["entries"][0], "json") == entry
    assert group["best"] == {"toy/accuracy": None}


def test_hostile_text_shows_as_text(make: MakeEntry) -> None:
    hostile = "\x1b[31m<script>|[bold]*_`"
    entry = make(
        "emo",
        {"accuracy": summary("accuracy", [0.5])},
        model={"name": hostile, "source": "x"},
        missing={"toy/kl": hostile + "\r\n| a | b |"},
    )
    shown = text([entry])
    assert "\x1b" not in shown
    assert "<script>|[bold]*_`" in shown
    table = [line for line in board_markdown([entry]).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in table] == [3, 3, 3]
    assert re.search(r"(?<!\\)[<`*]script", board_markdown([entry])) is None


def test_markdown_has_the_same_cells(make: MakeEntry) -> None:
    entries = [
        make(n, {"accuracy": summary("accuracy", v)}) for n, v in (("a", [0.1, 0.11, 0.13]), ("b", [0.91, 0.9, 0.92]))
    ]
    assert [line for line in board_markdown(entries).splitlines() if line.startswith("|")] == [
        "| objective | accuracy (%) ↑ |",
        "|---|---:|",
        "| a | 11.3 ± 1.5 |",
        "| b | **91.0 ± 1.0\\*** |",
    ]


def test_the_tables_module_loads_nothing_heavy() -> None:
    modules = ("render.leaderboard_table", "store.board", "schema.examples")
    code = "import sys;" + "".join(f"import emobench.leaderboard.{name};" for name in modules)
    code += "print([m for m in ('scipy', 'torch', 'transformers', 'datasets', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
