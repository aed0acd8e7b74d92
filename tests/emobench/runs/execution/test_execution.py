"""An execution walks the graph of stages: needs come first, and finished stages are reused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emobench.runs.execution.execution import Execution
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import Stage


class Noted(Stage):
    """Writes the names of its needs, and notes that it was made."""

    def __init__(self, name: str, made: list[str], needs: Sequence[Stage] = (), *, follows: bool = False) -> None:
        super().__init__("score", {"name": name})
        self._name, self._made, self._needs, self._follows = name, made, needs, follows

    @property
    def needs(self) -> Sequence[Stage]:
        return self._needs

    @property
    def made_of(self) -> Sequence[Stage]:
        return self._needs if self._follows else ()

    def make(self, folder: Path, tools: Execution) -> None:
        (folder / "name").write_text(self._name)
        self._made.append(self._name)


@pytest.fixture
def execution(tmp_path: Path) -> Any:
    model: Any = None
    return lambda: Execution(Request(suite="lm-quick", runs=tmp_path), model)


def test_needs_are_made_before_and_each_once(execution: Any) -> None:
    made: list[str] = []
    corpus = Noted("corpus", made)
    training, other = Noted("training", made, [corpus]), Noted("other", made, [corpus])
    execution().folder(Noted("scores", made, [training, other]))
    assert made == ["corpus", "training", "other", "scores"]


def test_a_finished_stage_needs_nothing(execution: Any) -> None:
    made: list[str] = []
    scores = Noted("scores", made)
    execution().folder(scores)
    execution().folder(Noted("scores", made, [Noted("training", made)]))
    assert made == ["scores"]


@pytest.mark.parametrize("follows", [True, False])
def test_scores_of_a_damaged_generation_are_made_again(execution: Any, follows: bool) -> None:
    made: list[str] = []
    generation = Noted("generation", made)
    scores = Noted("scores", made, [generation], follows=follows)
    execution().folder(scores)
    (execution().stages.folder(generation) / "name").write_text("altered")
    execution().folder(scores)
    assert made == (2 * ["generation", "scores"] if follows else ["generation", "scores"])
