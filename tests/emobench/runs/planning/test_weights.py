"""Weights of conversations are a part of a training's key: what they are, and that they are used."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError
from emobench.core.settings import parse_overrides, to_plain
from emobench.runs.planning.plan import Plan, make_plan
from emobench.runs.planning.request import Request

ROWS = [{"instruction": f"Say {i}.", "output": f"{i}"} for i in range(8)]
ONES = [1] * len(ROWS)
OTHERS = [*ONES[:-1], 2]


@pytest.fixture
def planned(byte_model: Path, tmp_path: Path) -> Callable[..., Plan]:
    """Return a function that plans a training on rows with these weights in the field `trust`."""

    def planned(weights: Sequence[float] | None, *settings: str, objective: str = "emo", field: str = "trust") -> Plan:
        rows = ROWS if weights is None else [{**r, field: w} for r, w in zip(ROWS, weights, strict=True)]
        (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        given = parse_overrides(["corpus=own", *settings])
        return make_plan(
            Request(
                model=str(byte_model),
                recipe="alpaca-gpt4",
                data_dirs=(tmp_path,),
                settings=given,
                objectives=(objective,),
                seeds=(0,),
                offline=True,
            )
        )

    return planned


def key(found: Plan) -> str:
    (training,) = found.trainings()
    return training.key


def test_a_field_that_is_not_used_changes_no_key(planned: Callable[..., Plan]) -> None:
    assert len({key(planned(weights)) for weights in (None, ONES, OTHERS)}) == 1
    assert "weights" not in to_plain(planned(None).recipes[0])
    assert "weights" in to_plain(planned(ONES, "recipe.weights=trust").recipes[0])


def test_the_setting_and_the_weights_change_the_key(planned: Callable[..., Plan]) -> None:
    used = "recipe.weights=trust"
    found = [key(planned(None)), key(planned(ONES, used)), key(planned(OTHERS, used))]
    found.append(key(planned([w / 2 for w in OTHERS], used)))
    assert len(set(found)) == 4
    assert key(planned(OTHERS, used)) == found[2]


OWN = """import emobench

class Own(emobench.ModelObjective):
    \"\"\"The loss of the model.\"\"\"

    def loss(self, forward, batch):
        loss = forward(**batch).loss
        return emobench.UnitLosses(loss[None], loss.new_ones(1))
"""


def test_an_objective_that_weighs_its_own_units_is_refused(planned: Callable[..., Plan], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ConfigError, match=r"`recipe.weights` is trust, and .* weighs its own units; drop it"):
        planned(ONES, "recipe.weights=trust", objective=f"{tmp_path}/own.py:Own")
    with pytest.raises(ConfigError, match="`weights=trust` is for conversations"):
        planned(ONES, "recipe.template=none", "recipe.weights=trust")
