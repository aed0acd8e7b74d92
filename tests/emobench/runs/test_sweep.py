"""The file of a sweep: its cells, grouped into requests, and what is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UserError
from emobench.runs.sweep import Sweep, differing_settings, read_sweep


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str, **given: Any) -> Sweep:
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return read_sweep(path, "lm-quick", **given)

    return read


def shapes(sweep: Sweep) -> list[tuple[Any, ...]]:
    return [(one.model, one.objectives, one.seeds, one.settings, one.limit) for one in sweep.requests]


def test_cells_that_differ_in_objective_and_seed_are_one_request(read: Any) -> None:
    sweep = read(
        """
        suite = "lm-quick"
        limit = 40
        [set]
        "mauve.seeds" = [0]
        recipe.epochs = 2
        [grid]
        model = ["gpt2", "distilgpt2"]
        objective = ["mle", "emo"]
        seed = [0, 1]
        "recipe.learning_rate" = [1e-5, 2e-5]
        """
    )
    assert sweep.cells == 16

    assert shapes(sweep) == [
        (model, ("mle", "emo"), (0, 1), {"mauve": {"seeds": [0]}, "recipe": {"epochs": 2, "learning_rate": rate}}, 40)
        for model in ("gpt2", "distilgpt2")
        for rate in ("1e-05", "2e-05")
    ]
    assert {request.suite for request in sweep.requests} == {"lm-quick"}
    assert differing_settings(sweep.requests) == 2 * [["recipe.learning_rate=1e-05"], ["recipe.learning_rate=2e-05"]]
    assert sweep.requests[0].command == (
        "emobench run --suite lm-quick --limit 40 --set 'mauve.seeds=[0]' --set recipe.epochs=2 --model gpt2 "
        "--set recipe.learning_rate=1e-05 --objective mle --objective emo --seed 0 --seed 1"
    )


def test_skipped_cells_and_further_grids(read: Any) -> None:
    sweep = read(
        """
        [grid]
        objective = ["mle", "emo"]
        seed = [0, 1, 2]
        [[skip]]
        objective = "emo"
        seed = 2
        [[skip]]
        "recipe.epochs" = 7
        [[also]]
        objective = ["mixce", "mle"]
        seed = [0]
        [[also]]
        objective = ["mixce"]
        "recipe.epochs" = [7]
        """
    )
    assert sweep.cells == 6  # mle with seed 0 stands in both grids
    assert [(one.objectives, one.seeds) for one in sweep.requests] == [
        (("mle",), (0, 1, 2)),
        (("emo",), (0, 1)),
        (("mixce",), (0,)),
    ]


def test_what_is_given_is_in_every_request(read: Any, tmp_path: Path) -> None:
    sweep = read('data_dir = "texts"\n[grid]\nseed = [3]', runs=tmp_path, offline=True)
    (one,) = sweep.requests
    assert (one.runs, one.offline, one.data_dirs, one.objectives) == (tmp_path, True, (Path("texts"),), ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grid = 3", "`grid` is 3"),
        ("[grid]\nseed = 0", "`seed` is 0 in a grid; expected a list of values"),
        ("[grid]\nseed = []", "no cell is left"),
        ("[grid]\nseed = ['0']", "is '0'; expected a whole number"),
        ("[grid]\nseed = [true]", "is True; expected a whole number"),
        ("[grid]\nobjective = [1]", "is 1; expected text"),
        ("[grid]\nlimit = ['a']", "`limit` is 'a'"),
        ("grids = 3", "did you mean 'grid'"),
        ("[grid]\nrecipes.epochs = [1]", "no setting 'recipes'; did you mean 'recipe'"),
        ("limit = 3\n[grid]\nlimit = [3, 4]", "limit has a value for all cells, and values in a grid"),
        ("[grid]\nseed = [0]\n[[skip]]\nseed = 0", "no cell is left"),
        ("[grid]\nseed = [0]\n[[skip]]\nseeds = 0", "did you mean 'seed'"),
        ("skip = 3", "`skip` is 3"),
        ("[grid", "cannot be read as TOML"),
        ("x = " + "[" * 5000, "cannot be read as TOML"),
        ("dtype = 16", "`dtype` is 16"),
        ("data_dir = 3", "`data_dir` is 3"),
    ],
)
def test_what_cannot_be_used_is_refused(read: Any, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read(text)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        read_sweep(tmp_path / "none.toml", "lm-quick")


def test_too_many_cells_take_no_memory(read: Any) -> None:
    lists = "\n".join(
        f'"recipe.{name}" = {list(range(100))}' for name in ("epochs", "batch", "max_tokens", "max_length")
    )
    tracemalloc.start()
    with pytest.raises(ConfigError, match="20,000 at most"):
        read(f"[grid]\n{lists}")
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        '[set]\n"recipe" = {epochs = 1}\n"recipe.epochs" = 2',
        '[set]\n"recipe.epochs" = 2\nrecipe = {epochs = 1}',
        '[set]\n"recipe.lora" = true\n"recipe.lora.rank" = 4',
        '[set]\n"recipe.lora.rank" = 4\n"recipe.lora" = true',
        '[grid]\n"recipe" = {epochs = [1]}\n"recipe.epochs" = [2]',
        '[[skip]]\n"recipe" = {epochs = 1}\n"recipe.epochs" = 2',
        "[set]\n'recipe.epochs' = 2026-01-31",
        "[set]\n'recipe.epochs' = 07:32:00",
        "[grid]\n'recipe.epochs' = [2026-01-31T07:32:00Z]",
        "[grid]\n'recipe.epochs' = [1, [2026-01-31]]",
        "[set]\n'recipe.epochs' = inf",
        "[set]\n'recipe.epochs' = nan",
        "[grid]\nseed = [2026-01-31]",
        "[grid]\nseed = [0, 1]\n" + "".join(f"[[also]]\nseed = {list(range(9000))}\n" for _ in range(3)),
    ],
)
def test_a_value_that_is_ambiguous_or_no_setting_is_refused_at_once(read: Any, text: str) -> None:
    with pytest.raises(ConfigError):
        read(text)


def test_a_list_of_lists_is_a_value(read: Any) -> None:
    sweep = read("[grid]\n'generation.without' = [['a'], ['a', 'b']]")
    assert [request.settings["generation"]["without"] for request in sweep.requests] == [["a"], ["a", "b"]]
