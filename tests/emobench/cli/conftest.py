"""A board with what two models wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WRITING = (
    *("--suite", "lm-quick", "--limit", "24", "--offline", "--quiet", "--set", "mauve.seeds=[0,1]"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "generation.sampling.samples=2", "--set", "recipe.max_length=32", "--set", "recipe.epochs=1"),
)


@dataclass(frozen=True)
class Board:
    """A board and its runs, and the entries of `pretrained` and of `mle`, which has seeds 0 and 1."""

    command: Callable[..., Any]
    root: Path
    runs: Path
    pretrained: dict[str, Any]
    mle: dict[str, Any]

    def __call__(self, verb: str, *arguments: object) -> Any:
        return self.command(verb, *arguments, "--leaderboard", self.root, "--runs", self.runs)


_SIGNED_ZERO = re.compile(r"(?<![\w.])[-−+]0(?:\.0+)?(?![\d.e])")
_NOISE = re.compile(r"\d[eE]-1\d")
_SPREAD = re.compile(r"(\d+(?:\.\d+)?) ± <?(\d+(?:\.\d+)?)")


@pytest.fixture(scope="session")
def require_readable() -> Callable[[str], None]:
    """Return a check of an output: no signed zero, no rounding noise, as many decimals in a spread as in its value."""

    def require(text: str) -> None:
        assert not _SIGNED_ZERO.findall(text), text
        assert not _NOISE.findall(text), text
        for value, spread in _SPREAD.findall(text):
            assert len(value.partition(".")[2]) == len(spread.partition(".")[2]), (value, spread)

    return require


@pytest.fixture(scope="session")
def written(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Board:
    """Two entries with generated texts, two for each prompt."""
    folder = tmp_path_factory.mktemp("written")
    given = ("--model", small_model, "--data-dir", small_data, "--runs", folder / "runs", "--leaderboard", folder / "b")
    done = command(
        "run",
        *given,
        *WRITING,
        "--objective",
        "pretrained",
        "--objective",
        "mle",
        *("--seed", 0, "--seed", 1),
        "--json",
    ).ok()
    return Board(command, folder / "b", folder / "runs", *done.json["entries"])
