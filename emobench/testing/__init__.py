"""The conformance kit: checks of the contract of an objective, for its tests and for `emobench objectives check`.

In a test, run all checks at once, or one test case per check:

    from emobench.testing import check_objective, objective_checks

    def test_my_loss():
        check_objective(MyLoss())

    @pytest.mark.parametrize("check", objective_checks(MyLoss()), ids=str)
    def test_contract(check):
        check()

The kit copies the objective, sets it up with a random head, teacher and language (`ExampleContext`), and runs it on a
random batch of 2 sequences. Its `side_data(batch)` gives the side data. If an objective reads columns of the corpus,
define a method `example_side(batch)` that returns example columns: tensors (B, T, ...) aligned with `batch["labels"]`.
Or pass the side data of each token, (tokens, ...), as `side`. Missing side data is replaced by random numbers in
[0, 1), (tokens,), and the check "side data" reports it.
"""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from emobench.objectives import ModelObjective, Objective
from emobench.testing.context import ExampleContext
from emobench.testing.kit import BoundCheck, Check, Outcome, outcomes
from emobench.testing.model_checks import MODEL_CHECKS
from emobench.testing.object_checks import documentation, parameters, setup, state
from emobench.testing.subject import CheckedObjective
from emobench.testing.token_checks import TOKEN_CHECKS, side_data

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
    """Raise PluginError unless an objective keeps the contract. The error names the problem and its usual cause.

    This does not check the docstring. `objective_checks` and `emobench objectives check` do.
    """
    for check in objective_checks(objective, tokens=tokens, width=width, vocabulary=vocabulary, seed=seed, side=side):
        if check.check is not documentation:
            with contextlib.suppress(unittest.SkipTest):
                check()


def objective_checks(objective: Objective, **sizes: Any) -> list[BoundCheck]:
    """Return the checks of an objective. Calling one raises PluginError, or unittest.SkipTest.

    `sizes` are the keyword arguments of `check_objective`.
    """
    subject = _subject(objective, **sizes)
    return [BoundCheck(check, subject) for check in _checks(objective)]


def run_checks(objective: Objective, **sizes: Any) -> list[Outcome]:
    """Run all checks and return their outcomes. An exception in the objective's code is a failed check."""
    return list(outcomes(_checks(objective), _subject(objective, **sizes)))


def _subject(objective: Objective, *, side: Mapping[str, Tensor] | None = None, **sizes: Any) -> CheckedObjective:
    return CheckedObjective(objective, given_side=dict(side or {}), **sizes)


def _checks(objective: Objective) -> list[Check]:
    """Return the checks in the order in which they run. Later checks depend on earlier ones."""
    own = MODEL_CHECKS if isinstance(objective, ModelObjective) else TOKEN_CHECKS
    checks = [setup, *own, parameters, state, documentation]
    return [check for check in checks if check is not side_data or objective.side_names]
