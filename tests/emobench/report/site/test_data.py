"""What a page takes for granted about a board until its reader says otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emobench.report.site.data import _default_baseline


def group(*names: str) -> Any:
    """A group of entries of these objectives; "!" stands for a model that was not trained."""
    return SimpleNamespace(
        rows=[
            SimpleNamespace(
                id=name,
                untrained=name == "!",
                objective=SimpleNamespace(name=name),
                provenance=SimpleNamespace(created={"mle": "2026-01-01", "emo": "2026-01-02"}.get(name, "2026-01-03")),
            )
            for name in names
        ]
    )


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("emo", "mle"), ("tailr", "emo", "mle")], "mle"),  # recorded first
        ([("emo", "mle"), ("emo", "tailr")], "emo"),
        ([("emo", "mle"), ("emo",), ("emo", "!")], "mle"),  # where emo stands alone, nothing is compared with it
        ([("emo",), ("tailr",), ("emo", "!")], "emo"),
        ([("!",)], None),
    ],
)
def test_the_baseline_is_the_objective_that_others_are_beside(
    groups: list[tuple[str, ...]], expected: str | None
) -> None:
    assert _default_baseline([group(*names) for names in groups]) == expected
