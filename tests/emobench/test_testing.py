"""The conformance kit: passes the built-in objectives, and says which promise another one breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import emobench
from emobench.errors import EmobenchError, PluginError
from emobench.objectives import LogitsObjective, ModelObjective, UnitLosses
from emobench.registry import load_objective, objective_names
from emobench.testing import check_objective


@pytest.mark.parametrize("name", objective_names())
def test_built_in_objectives_pass(name: str) -> None:
    check_objective(load_objective(name).objective)


@pytest.mark.parametrize("text", ["tailr(gamma=1)", "tailr(min_weight=0.3)", "mixce(gamma=0)", "emo(cost=initial)"])
@pytest.mark.parametrize("sizes", [{}, {"tokens": 6, "width": 3, "vocabulary": 5}, {"seed": 7}])
def test_they_pass_with_other_parameters_and_sizes(text: str, sizes: dict[str, int]) -> None:
    check_objective(load_objective(text).objective, **sizes)


class Focal(LogitsObjective):
    """A function of the logits that has no token statistic of its own."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        mle_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
        return (1 - (-mle_N).exp()).square() * mle_N


class Aware(emobench.StatisticsObjective):
    """Reads side data beside its statistics."""

    needs = frozenset({"entropy", "teacher"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return (s.side["teacher"] - s.log_prob) + 0.1 * s.entropy


def test_other_kinds_of_objectives_pass() -> None:
    check_objective(Focal())
    check_objective(Aware())


def from_loss(function: Callable[[Any], Any], **names: Any) -> emobench.Objective:
    return type("Mine", (emobench.StatisticsObjective,), {"loss": lambda self, s: function(s), **names})()


def log_of_a_negative(s: Any) -> Tensor:
    return (s.log_prob - 0.5).log()


def neighbour(s: Any) -> Tensor:
    return -s.log_prob + 0.1 * s.log_prob * s.log_prob.roll(1)


def centred(s: Any) -> Tensor:
    return -s.log_prob + (s.log_prob - s.log_prob.mean()).square()


def own_mean(s: Any) -> Tensor:
    return -s.log_prob / len(s)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (log_of_a_negative, "mine does not keep the contract: its loss is not finite on random logits."),
        (neighbour, "mine does not keep the contract: the chunked engine with chunks of two rows and the reference"),
        (centred, "mine does not keep the contract: the chunked engine with chunks of two rows and the reference"),
        (own_mean, "the chunked engine with chunks of two rows and the reference differ in the loss by"),
        (lambda s: -s.log_prob.mean(), r"mine: loss is shape (); expected one number per token"),
        (lambda s: -s.log_prob[:-1], "expected one number per token"),
        (lambda s: 0.0, "mine: loss is a float; expected one number per token"),
        (lambda s: -s.entropy, "The statistic 'entropy' was not asked for; write needs = {'entropy'}"),
        (lambda s: -s["entrop"], "did you mean 'entropy'?"),
    ],
)
def test_a_broken_promise_is_named(function: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(EmobenchError) as refused:
        check_objective(from_loss(function))
    assert sentence in str(refused.value)


def test_a_loss_that_differs_from_call_to_call() -> None:
    calls = iter(range(100))
    with pytest.raises(PluginError, match="the chunked engine and the reference differ in the loss by"):
        check_objective(from_loss(lambda s: -s.log_prob + next(calls)))


def test_a_gradient_that_differs_from_the_reference() -> None:
    """The engine's slopes are those of the statistics; a loss with a state in its backward pass has others."""
    calls = iter(range(100))
    with pytest.raises(PluginError, match="the chunked engine and the reference differ in the gradient of the hidden"):
        check_objective(from_loss(lambda s: -(s.log_prob - s.log_prob.detach()) * next(calls) - s.log_prob.detach()))


def test_a_part_that_is_a_mean() -> None:
    objective = from_loss(lambda s: -s.log_prob, parts=lambda self, s: {"q": s.log_prob.exp().mean()})
    with pytest.raises(PluginError, match=r"mine: parts\['q'\] is shape \(\)"):
        check_objective(objective)


def test_a_model_objective_has_no_tokens_to_check() -> None:
    class Whole(ModelObjective):
        def loss(self, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
            return UnitLosses(torch.zeros(1), torch.ones(1))

    with pytest.raises(PluginError, match=r"whole is a ModelObjective: .* test it with a model"):
        check_objective(Whole())


def test_a_batch_without_targets() -> None:
    """An objective that adds a loss where there is none to add to: it has no token to put it on."""
    with pytest.raises(PluginError, match=r"mine: loss is shape \(1,\); expected one number per token, shape \(0,\)"):
        check_objective(from_loss(lambda s: -s.log_prob if len(s) else torch.ones(1)))
