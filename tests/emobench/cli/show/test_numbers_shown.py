"""Every command that shows results writes its numbers in one way, also those that are rounding of 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.store import Leaderboard

Require = Callable[[str], None]


@pytest.fixture
def noisy(entry_of: Callable[..., Any], tmp_path: Path) -> Path:
    """A board of two comparable entries, with values that are rounding noise, small, large and usual."""

    def metric(values: list[float], unit: str, better: bool | None) -> dict[str, Any]:
        mean = sum(values) / len(values)
        std = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        given = {"mean": mean, "std": std, "values": values, "n": 50, "ci95": [mean - std, mean + std]}
        return {**given, "ci95_of": "seeds", "higher_is_better": better, "unit": unit, "flags": []}

    board = Leaderboard(tmp_path / "board")
    for name, shift in (("mle", 0.0), ("emo", 1e-17)):
        metrics = {
            "a/accuracy": metric([0.5 + shift, 0.5, 0.5004], "fraction", True),
            "b/kl": metric([-8.67e-17 - shift, 0.0, 1e-17], "nats", False),
            "c/kl": metric([4.317, 4.3171 + shift, 4.3166], "nats", False),
            "d/ppl": metric([31.4159, 31.4159, 31.4159], "perplexity", False),
        }
        board.append(entry_of(name, metrics=metrics))
    return board.root


@pytest.mark.parametrize(
    "given",
    [
        ("leaderboard", "show"),
        ("leaderboard", "show", "--markdown"),
        ("compare", "emo", "mle"),
        ("compare", "emo", "mle", "--explain"),
        ("compare", "emo", "mle", "--latex"),
        ("leaderboard", "export", "emo", "--to", "model-card"),
    ],
    ids=" ".join,
)
def test_boards(command: Callable[..., Any], noisy: Path, given: tuple[str, ...], require_readable: Require) -> None:
    shown = command(*given, "--leaderboard", noisy).ok().out
    # A card's front matter has the values as they are stored.
    read = shown.rpartition("---\n")[2] if "model-card" in given else shown
    assert "31.4" in read
    require_readable(read)


def test_runs(written: Any, require_readable: Require) -> None:
    for name in ("leaderboard show", "compare mle pretrained", "curves"):
        require_readable(written(*name.split()).out if name == "curves" else _board(written, *name.split()))


def _board(written: Any, *given: str) -> str:
    return written.command(*given, "--leaderboard", written.root).ok().out


def test_facts_of_an_objective(command: Callable[..., Any], require_readable: Require) -> None:
    require_readable(command("objectives", "show", "emo").ok().out)
