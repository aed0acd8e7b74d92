"""A small job of which a test replaces some options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIZES = (
    *("--set", "recipe.max_length=32", "--set", "generation.max_length=32", "--set", "mauve.seeds=[0]"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8"),
)


@pytest.fixture(scope="session")
def sizes() -> tuple[str, ...]:
    """The settings that make it small."""
    return SIZES


@pytest.fixture
def job(command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the small job in a fresh folder; an option that is None is left out."""

    def start(*given: object, verb: str = "run", sizes: tuple[str, ...] = SIZES, **options: object) -> Any:
        places = {"model": small_model, "data_dir": small_data, "runs": tmp_path / "runs"}
        usual = {"suite": "lm-quick", "limit": 30, "objective": "mle", "seed": 0, "leaderboard": tmp_path / "board"}
        chosen = {**places, **usual, **options}
        words = [w for name, v in chosen.items() if v is not None for w in (f"--{name.replace('_', '-')}", v)]
        return command(verb, "--offline", "--quiet", *words, *sizes, *given)

    return start


@pytest.fixture
def dry(job: Callable[..., Any]) -> Callable[..., Any]:
    """Make a dry run of the small job."""
    return lambda *given, **options: job("--dry-run", *given, leaderboard=None, **options)
