"""What an objective's author hears when the contract is broken, and what a user hears about parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import emobench
from emobench.core.errors import ConfigError, EmobenchError, PluginError, UserError
from emobench.objectives import CostEmbedding, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

HIDDEN = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
HEAD = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([1, 2, -100, 3, 3, 8])

engines = pytest.mark.parametrize("impl", ["reference", "chunked"])


def run(objective: emobench.Objective, impl: str = "chunked", **options: Any) -> Any:
    return objective_loss(objective, HIDDEN.clone().requires_grad_(), HEAD, None, LABELS, impl=impl, **options)


def from_loss(function: Any, **names: Any) -> emobench.Objective:
    """Return an objective whose loss is `function`."""
    body = {"loss": lambda self, s: function(s), **names}
    return type("Mine", (emobench.StatisticsObjective,), body)()


@engines
@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda s: -s.log_prob.mean(), r"shape \(\)"),
        (lambda s: -s.log_prob[:, None], r"shape \(5, 1\)"),
        (lambda s: -s.log_prob[1:], r"shape \(4,\)"),
        (lambda s: 0.0, "a float"),
        (lambda s: None, "a NoneType"),
    ],
)
def test_a_loss_is_one_number_per_token(impl: str, function: Any, found: str) -> None:
    with pytest.raises(PluginError, match=rf"mine: loss is {found}; expected one number per token, shape \(5,\)"):
        run(from_loss(function), impl)


def test_a_loss_that_depends_on_nothing() -> None:
    with pytest.raises(PluginError, match="depends on nothing that the model computes"):
        run(from_loss(lambda s: -s.log_prob.detach()))
    with torch.no_grad():
        assert float(run(from_loss(lambda s: -s.log_prob.detach())).total) > 0


@engines
@pytest.mark.parametrize(
    ("function", "names", "refusal"),
    [
        (lambda s: s.entropy, {}, r"'entropy'; write needs = \{'entropy'\}"),
        (lambda s: s["entropi"], {}, "did you mean 'entropy'"),
        (lambda s: -s.log_prob, {"needs": {"entropi"}}, r"mine\.needs: .*'entropi'; did you mean 'entropy'"),
        (
            lambda s: -s.log_prob,
            {"parts": lambda self, s: {"q": s.log_prob.mean()}},
            r"parts\['q'\] is shape \(\)",
        ),
    ],
)
def test_names_and_parts_of_a_loss(impl: str, function: Any, names: dict[str, Any], refusal: str) -> None:
    with pytest.raises(EmobenchError, match=refusal):
        run(from_loss(function, **names), impl)


@pytest.mark.parametrize("needs", ["entropy", ["entropy"], {1}, None])
def test_needs_is_a_set_of_names(needs: Any) -> None:
    with pytest.raises(PluginError, match="expected a set of names"):
        type("Mine", (emobench.StatisticsObjective,), {"needs": needs, "loss": lambda self, s: s.log_prob})


def test_side_data_has_one_row_per_token() -> None:
    objective = from_loss(lambda s: -s.log_prob * s.side["w"], needs=frozenset({"w"}))
    with pytest.raises(PluginError, match=r"'w' has 5 rows; expected one for each of the 6 tokens"):
        run(objective, side={"w": torch.ones(5)})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden_ND": HIDDEN.view(2, 3, 4)}, "must be (tokens, 4), got (2, 3, 4). Flatten"),
        ({"hidden_ND": HIDDEN[:, :3]}, "must be (tokens, 4), got (6, 3)"),
        ({"hidden_ND": HIDDEN[:5]}, "6 labels for 5 hidden states"),
        ({"weight_VD": HEAD[0]}, "The head is (4,) for a vocabulary of 4; expected (vocabulary or more, width)"),
        ({"vocabulary": 10}, "The head is (9, 4) for a vocabulary of 10"),
        ({"bias_V": torch.zeros(8)}, "The head's bias is (8,); expected (9,), one for each row."),
        ({"labels_N": torch.tensor([1, 2, 9, 3, 3, 8])}, "Label 9 is not a token of the vocabulary, 0 to 8 (-100 is"),
        ({"labels_N": torch.tensor([1, 2, -1, 3, 3, 8])}, "Label -1 is not a token of the vocabulary, 0 to 8"),
        ({"labels_N": LABELS, "vocabulary": 8}, "Label 8 is not a token of the vocabulary, 0 to 7"),
    ],
)
def test_inputs_that_do_not_fit(changes: dict[str, Any], sentence: str) -> None:
    given = {"hidden_ND": HIDDEN, "weight_VD": HEAD, "bias_V": None, "labels_N": LABELS} | changes
    with pytest.raises((PluginError, UserError)) as refused:
        objective_loss(Mle(), **given)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("slopes", "sentence"),
    [
        ({"log_prob": torch.tensor(-1.0)}, r"mine: slopes['log_prob'] is shape (); expected one number per token"),
        ({"entropy": -torch.ones(5)}, "the statistic 'entropy'"),
        ({"log_prop": -torch.ones(5)}, "did you mean 'log_prob'?"),
    ],
)
def test_slopes_are_one_number_per_token_and_statistic(slopes: Any, sentence: str) -> None:
    with pytest.raises(EmobenchError) as refused:
        run(from_loss(lambda s: -s.log_prob, slopes=lambda self, s: slopes))
    assert sentence in str(refused.value)


def test_an_unknown_engine() -> None:
    with pytest.raises(UserError, match="impl is 'fast'; expected one of chunked, torch, triton, reference"):
        run(Mle(), "fast")


def test_the_cost_embedding_has_the_vocabulary_of_the_head() -> None:
    objective = Emo()
    objective.use_cost(CostEmbedding(torch.randn(8, 4)))
    with pytest.raises(PluginError, match="cost embedding has 8 rows; the head has 9"):
        run(objective)


def test_backward_twice() -> None:
    total = run(Mle()).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"gives its gradients away once.*impl='reference'"):
        total.backward()
    reference = run(Mle(), "reference").total
    reference.backward(retain_graph=True)
    reference.backward()


class Tuned(emobench.StatisticsObjective):
    gamma: float = emobench.param(0.5, low=0.0, high=1.0)
    steps: int = emobench.param(3, low=1)
    kind: str = emobench.param("a", choices=("a", "b"))

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"gamma": 1.5}, r"`gamma` is 1\.5; expected at least 0\.0, at most 1\.0"),
        ({"gamma": -1}, r"`gamma` is -1\.0; expected at least 0\.0"),
        ({"gamma": float("nan")}, "`gamma` is nan; expected a finite number"),
        ({"gamma": "much"}, "`gamma`"),
        ({"gamma": True}, "`gamma`"),
        ({"steps": 0}, "`steps` is 0; expected at least 1"),
        ({"steps": 1.5}, "`steps`"),
        ({"kind": "c"}, "`kind` is 'c'; expected one of a, b"),
    ],
)
def test_parameters_are_checked(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match="objective tuned: " + sentence):
        Tuned(**given)


def test_parameters_are_converted_and_shown() -> None:
    assert Tuned(gamma=1).params == {"gamma": 1.0, "steps": 3, "kind": "a"}
    assert repr(Tuned(gamma=0.25, kind="b")) == "tuned(gamma=0.25, kind=b)"
    assert repr(Tuned()) == "tuned"
    assert repr(Mle()) == "mle"


def test_names_come_from_the_class_unless_given() -> None:
    assert type("UniformMle", (Mle,), {}).name == "uniform-mle"
    assert Emo.name == "emo"
