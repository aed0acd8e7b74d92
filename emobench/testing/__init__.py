"""The conformance kit: checks that an objective keeps the contract, for its own tests and `emobench objectives check`.

In a test, all at once, or one case for each promise:

    from emobench.testing import check_objective, objective_checks

    def test_my_loss():
        check_objective(MyLoss())

    @pytest.mark.parametrize("check", objective_checks(MyLoss()), ids=str)
    def test_contract(check):
        check()

An objective is copied, set up with a random head, teacher and language (`ExampleContext`), and run on a random batch of
2 sequences. Its side data is what its own `side_data(batch)` makes of that batch. An objective that reads columns of
the corpus gives examples of them in a method `example_side(batch)`, which returns a mapping of tensors (B, T, ...)
aligned with `batch["labels"]`; or a test gives the side data of each token, (tokens, ...), as `side`. Names that nobody
gives are random numbers in [0, 1), (tokens,), and the check "side data" says so.
"""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from emobench.objectives import Objective
from emobench.testing.catalogue import DOCUMENTATION, checks_of
from emobench.testing.context import ExampleContext
from emobench.testing.kit import BoundCheck, Check, Outcome, outcomes
from emobench.testing.subject import Subject

__all__ = ["BoundCheck", "Check", "ExampleContext", "Outcome", "check_objective", "objective_checks", "run_checks"]


def check_objective(
    objective: Objective,
    *,
    tokens: int = 37,
    width: int = 16,
    vocabulary: int = 61,
    seed: int = 0,
    side: Mapping[str, Tensor] | None = None,
) -> None:
    """Raise PluginError, with what was found and what that usually means, unless an objective keeps the contract.

    The docstring is left out: `objective_checks` and `emobench objectives check` look at it as well.
    """
    for check in objective_checks(objective, tokens=tokens, width=width, vocabulary=vocabulary, seed=seed, side=side):
        if check.check.name != DOCUMENTATION:
            with contextlib.suppress(unittest.SkipTest):
                check()


def objective_checks(objective: Objective, **sizes: Any) -> list[BoundCheck]:
    """Return the checks of an objective, each to be called; it raises PluginError, or unittest.SkipTest.

    `sizes` are those of `check_objective`.
    """
    subject = _subject(objective, **sizes)
    return [BoundCheck(check, subject) for check in checks_of(objective)]


def run_checks(objective: Objective, **sizes: Any) -> list[Outcome]:
    """Run all checks and return what came of each, whatever the objective's own code raises."""
    return list(outcomes(checks_of(objective), _subject(objective, **sizes)))


def _subject(objective: Objective, *, side: Mapping[str, Tensor] | None = None, **sizes: Any) -> Subject:
    return Subject(objective, given_side=dict(side or {}), **sizes)
