"""The conformance kit: checks of the contract of a plugin, for its tests and for `emobench objectives check`.

A plugin is an objective, a kind of task, a retriever, a metric, a judge, or of a family that a kind declares. In a
test, run all checks at once, or one test case for each check:

    from emobench.testing import check_plugin, plugin_checks

    def test_my_loss():
        check_plugin(MyLoss())

    @pytest.mark.parametrize("check", plugin_checks(MyLoss()), ids=str)
    def test_contract(check):
        check()

An objective is copied, set up with a random head, teacher and language, and run on a random batch of 2 sequences. Its
`side_data(batch)` gives the side data. If it reads columns of the corpus, define a method `example_side(batch)` that
returns example columns: tensors (B, T, ...) aligned with `batch["labels"]`. Or pass the side data of each token,
(tokens, ...), as `side`. Missing side data is replaced by random numbers in [0, 1), (tokens,), and the check "side
data" reports it. Other options of an objective's checks are `tokens`, `width`, `vocabulary` and `seed`.

A loss of another program is checked in the same way, as `emobench.testing.foreign.foreign_loss` returns it.
"""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from emobench.core.conformance import BoundCheck, Broken, Check, Outcome, Skipped, check, outcomes
from emobench.registry import family_of

__all__ = [
    "BoundCheck",
    "Broken",
    "Check",
    "Outcome",
    "Skipped",
    "check",
    "check_plugin",
    "plugin_checks",
    "run_checks",
]


def check_plugin(plugin: object, **options: Any) -> None:
    """Raise PluginError unless a plugin keeps the contract. The error names the problem and its usual cause.

    This does not check the docstring. `plugin_checks` and `emobench objectives check` do.
    """
    for bound in plugin_checks(plugin, **options):
        if bound.check.name != "documentation":
            with contextlib.suppress(unittest.SkipTest):
                bound()


def plugin_checks(plugin: object, **options: Any) -> list[BoundCheck]:
    """Return the checks of a plugin, in order. Calling one raises PluginError, or unittest.SkipTest."""
    checks, subject = _checks(plugin, **options)
    return [BoundCheck(check, subject) for check in checks]


def run_checks(plugin: object, **options: Any) -> list[Outcome]:
    """Run all checks and return their outcomes. An exception in the plugin's code is a failed check."""
    return list(outcomes(*_checks(plugin, **options)))


def _checks(plugin: object, **options: Any) -> tuple[Sequence[Check], Any]:
    # A loss of another program belongs to no family, and names its checks itself.
    named = getattr(plugin, "foreign_checks", None) or family_of(plugin).checks
    return resolve_name(named)(plugin, **options)
