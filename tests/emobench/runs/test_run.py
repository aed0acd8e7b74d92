"""Few steps lead from the command line to the Trainer."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import pytest

from emobench import cli

PACKAGE = str(Path(cli.__file__).parents[1])
MOST = 9
"""Own functions between `main` and `Trainer.train`."""


@pytest.mark.slow
def test_the_path_of_a_training_is_short(
    small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    stack: list[str] = []

    def train(*_: Any, **__: Any) -> NoReturn:
        stack.extend(frame.name for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE))
        raise KeyboardInterrupt

    monkeypatch.setattr(transformers.Trainer, "train", train)
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--data-dir", small_data)
    given = ("--suite", "lm-quick", "--objective", "mle", "--seed", 0, "--model", small_model, "--limit", 8)
    rules = ("recipe.max_length=32", "recipe.max_tokens=1024", "generation.max_length=32", "generation.prefix=4")
    settings = [word for rule in (*rules, "generation.continuation=8") for word in ("--set", rule)]
    monkeypatch.setattr(
        sys, "argv", ["emobench", "run", *map(str, (*given, *places)), *settings, "--offline", "--quiet"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert stack[0] == "main"
    assert len(stack) - 1 <= MOST, stack
