"""Combinations against their terms run alone: loss, gradients, slopes, parts, state and side data, in float64.

Legend: N tokens, V vocabulary, D hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from emobench.core.errors import ConfigError
from emobench.objectives import (
    IGNORED,
    CostEmbedding,
    LogitsObjective,
    ModelObjective,
    Objective,
    StatisticsObjective,
    TokenStatistics,
    objective_loss,
)
from emobench.objectives.combination import combine
from emobench.objectives.expression import Constant, Cosine, Linear, Schedule, Step
from emobench.registry import load_objective, objective_names
from emobench_objectives.emo import Emo
from emobench_objectives.mixce import MixCE
from emobench_objectives.mle import Mle
from emobench_objectives.tailr import TaiLr

# 37 tokens of at most 29 targets in chunks of 8 rows: several chunks and a rest.
N, V, D, CHUNK_BYTES = 37, 29, 16, 4 * 29 * 8


class Confidence(StatisticsObjective):
    """H + sum_v q_v^2, with its slopes."""

    needs = frozenset({"entropy", "sum_squares"})

    def loss(self, s: Any) -> Tensor:
        return s.entropy + s.sum_squares

    def slopes(self, s: Any) -> dict[str, Tensor]:
        return {"entropy": torch.ones_like(s.entropy), "sum_squares": torch.ones_like(s.entropy)}


class Squared(StatisticsObjective):
    """(log q_t)^2 + u^2, with its slopes."""

    needs = frozenset({"expected_cost"})

    def loss(self, s: Any) -> Tensor:
        return s.log_prob**2 + s.expected_cost**2

    def slopes(self, s: Any) -> dict[str, Tensor]:
        return {"log_prob": 2 * s.log_prob, "expected_cost": 2 * s.expected_cost}


class Margin(LogitsObjective):
    """max(0, 1 - z_t + max_v z_v), which is no function of the statistics."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return (1 - logits_NV.gather(1, targets_N[:, None])[:, 0] + logits_NV.amax(1)).clamp(min=0)


class Weighed(StatisticsObjective):
    """-w log q_t with a weight w for each token, a column of the batch."""

    needs = frozenset({"importance"})

    def loss(self, s: Any) -> Tensor:
        return -s.side["importance"] * s.log_prob


class WeighedByPlace(Weighed):
    """The same with the token's place as the weight, which it computes itself under the same name."""

    def side_data(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"importance": torch.arange(batch["labels"].shape[1]).expand(batch["labels"].shape).double()}


class WeighedLogits(LogitsObjective):
    """The same weight, times the logit of the target, squared."""

    needs = frozenset({"importance"})

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return side["importance"] * logits_NV.gather(1, targets_N[:, None])[:, 0] ** 2


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=generator, dtype=torch.float64)
    head_VD = torch.randn(V, D, generator=generator, dtype=torch.float64)
    labels_N = torch.randint(V, (N,), generator=generator)
    labels_N[::5] = IGNORED
    return hidden_ND, head_VD, labels_N


def cost() -> CostEmbedding:
    generator = torch.Generator().manual_seed(1)
    return CostEmbedding(torch.randn(V, 7, generator=generator, dtype=torch.float64))


def ready(objective: Any) -> Any:
    if "expected_cost" in objective.needs:
        objective.use_cost(cost())
    return objective


def run(objective: Any, impl: str = "chunked", side: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    hidden_ND, head_VD, labels_N = inputs()
    hidden_ND.requires_grad_()
    head_VD.requires_grad_()
    result = objective_loss(
        objective, hidden_ND, head_VD, None, labels_N, impl=impl, chunk_bytes=CHUNK_BYTES, side=side
    )
    result.total.backward()
    assert hidden_ND.grad is not None
    assert head_VD.grad is not None
    return {"losses": result.losses_N, "hidden": hidden_ND.grad, "head": head_VD.grad}


def close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float((found[name] - value).norm() / value.norm()) <= tolerance, name


def weighted_sum(parts: list[tuple[float, dict[str, Tensor]]]) -> dict[str, Tensor]:
    return {name: sum(w * values[name] for w, values in parts) for name in parts[0][1]}  # type: ignore[misc]


MIXES: list[tuple[str, list[tuple[float, Any]]]] = [
    ("statistics", [(0.25, Mle), (0.5, Confidence), (2.0, MixCE)]),
    ("emo", [(0.5, Emo), (0.5, TaiLr)]),
    ("two of one cost", [(0.7, Emo), (0.3, Squared)]),
    ("logits", [(0.5, Margin), (1.5, Confidence)]),
    ("logits and emo", [(0.3, Margin), (0.6, Emo), (0.1, Confidence)]),
    ("one", [(0.1, Emo)]),
]


@pytest.mark.parametrize("impl", ["chunked", "reference"])
@pytest.mark.parametrize("mix", [mix for _, mix in MIXES], ids=[name for name, _ in MIXES])
def test_loss_and_gradients_are_the_weighted_sums_of_the_terms(mix: list[tuple[float, Any]], impl: str) -> None:
    combined = ready(combine([cls() for _, cls in mix], [Constant(w) for w, _ in mix]))
    assert isinstance(combined, LogitsObjective) == any(cls is Margin for _, cls in mix)
    close(run(combined, impl), weighted_sum([(w, run(ready(cls()), impl)) for w, cls in mix]))


# Side data have tests of their own, below.
@pytest.mark.parametrize("name", [n for n in objective_names() if not load_objective(n).objective.side_names])
def test_every_installed_objective_can_be_combined(name: str) -> None:
    def make() -> Any:
        return ready(load_objective(name).objective)

    other = MixCE(gamma=0.3)  # no other has these parameters
    combined = combine([make(), other], [Constant(0.3), Constant(0.7)])
    if "expected_cost" in make().needs:
        combined.use_cost(cost())
    close(run(combined), weighted_sum([(0.3, run(make())), (0.7, run(other))]))


@pytest.mark.parametrize("text_order", [1, -1])
def test_the_order_and_spelling_of_terms_make_no_difference(text_order: int) -> None:
    objectives: list[Objective] = [Mle(), TaiLr(gamma=0.3), MixCE(gamma=0.9)]
    weights: list[Schedule] = [Constant(0.1), Linear(1, 0), Constant(1)]
    combined = combine(objectives[::text_order], weights[::text_order])
    assert combined.name == repr(combined) == "mixce + 0.1*mle + linear(1, 0)*tailr(gamma=0.3)"
    assert combined.params == {"mixce.gamma": 0.9, "tailr.gamma": 0.3, "tailr.min_weight": 0.0}
    assert combined.version == "1+1+1"


def test_slopes_are_the_weighted_sum_and_those_of_autograd() -> None:
    combined = combine([Squared(), Confidence()], [Constant(0.3), Linear(0, 2)])
    combined.begin_step(3, 5)
    generator = torch.Generator().manual_seed(0)
    names = ("log_prob", "expected_cost", "entropy", "sum_squares")
    leaves = {n: -torch.rand(N, generator=generator, dtype=torch.float64).requires_grad_() for n in names}
    s = TokenStatistics(leaves, torch.zeros(N, dtype=torch.int64))
    assert isinstance(combined, StatisticsObjective)
    expected = torch.autograd.grad(combined.loss(s).sum(), list(leaves.values()))
    found = combined.slopes(s)
    assert found is not None
    assert found.keys() == leaves.keys()
    for name, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-13, atol=0)
    torch.testing.assert_close(found["log_prob"], 0.6 * leaves["log_prob"].detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(found["entropy"], torch.full((N,), 1.5, dtype=torch.float64), rtol=1e-13, atol=0)


def test_weights_follow_the_steps() -> None:
    combined = combine([Mle(), MixCE(), TaiLr()], [Linear(1, 0), Cosine(0, 1), Step(0.2, 0.4, at=0.5)])
    alone = [(run(cls())) for cls in (MixCE, Mle, TaiLr)]  # in the order of the combination
    for step, weights in ((0, [0, 1, 0.2]), (4, [0.5, 0.5, 0.4]), (8, [1, 0, 0.4])):
        combined.begin_step(step, 9)
        assert combined.weights == pytest.approx(weights, abs=1e-15)
        close(run(combined), weighted_sum(list(zip(weights, alone, strict=True))))
    combined.begin_step(0, 1)
    assert combined.weights == [0.0, 1.0, 0.2]


def test_parts_are_named_after_their_term_where_two_share_a_name() -> None:
    combined = ready(combine([Emo(), TaiLr(gamma=0.3)], [Constant(0.25), Linear(1, 0)]))
    combined.begin_step(1, 5)
    hidden_ND, head_VD, labels_N = inputs()
    found = objective_loss(combined, hidden_ND, head_VD, None, labels_N).parts
    emo, tailr = (objective_loss(ready(o), hidden_ND, head_VD, None, labels_N) for o in (Emo(), TaiLr(gamma=0.3)))
    expected = {
        "mle": emo.parts["mle"],
        "demd": emo.parts["demd"],
        "zero_weight_count": emo.parts["zero_weight_count"],
        "emo.weight": emo.parts["weight"],
        "emo.loss": emo.total,
        "emo.share": torch.tensor(0.25 * emo.count),
        "tailr.weight": tailr.parts["weight"],
        "tailr.loss": tailr.total,
        "tailr.share": torch.tensor(0.75 * tailr.count),
    }
    assert expected.keys() <= found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value.to(found[name].dtype), rtol=1e-12, atol=0)


class FakeContext:
    """Hands out new objects at each call, and counts the calls."""

    total_steps, vocabulary = 10, V

    def __init__(self) -> None:
        self.asked: list[str] = []

    def head_weight(self) -> Tensor:
        return torch.eye(V)

    def cost_embedding(self, source: str = "pretrained") -> CostEmbedding:
        self.asked.append(source)
        return cost()

    def teacher(self, name: str) -> Any:
        self.asked.append(f"teacher {name}")
        return object()

    def language(self) -> Any:
        self.asked.append("language")
        return object()


def test_terms_share_one_cost_embedding_made_once() -> None:
    terms = [Emo(), Squared()]
    combined = combine([*terms, Mle()], [Constant(1)] * 3)
    context = FakeContext()
    combined.setup(context)
    assert context.asked == ["pretrained"]
    assert combined.cost_embedding is terms[0].cost_embedding is terms[1].cost_embedding
    assert combined.reads == ("pretrained",)
    assert list(combined.frozen_state()) == ["emo.cost_embedding"]
    assert torch.equal(combined.frozen_state()["emo.cost_embedding"], cost().rows_VE)


def test_different_costs_are_refused() -> None:
    class OtherCost(Squared):
        def setup(self, context: Any) -> None:
            self.use_cost(context.cost_embedding("initial"))

    class Adaptive(Squared):
        adaptive_cost = True

    class EmoToo(Emo):
        name = "emo-too"

    said = "take their costs from different embeddings, and a combination computes `expected_cost` once; give every"
    with pytest.raises(ConfigError, match=rf"emo\(cost=gpt2\) and emo-too {said}"):
        combine([Emo(cost="gpt2"), EmoToo()], [Constant(1)] * 2)
    with pytest.raises(
        ConfigError, match=r"adaptive and squared: the costs of adaptive follow the head .* others are fro"
    ):
        combine([Adaptive(), Squared()], [Constant(1)] * 2)
    with pytest.raises(ConfigError, match=rf"emo \+ other-cost {said}"):
        combine([Emo(), OtherCost()], [Constant(1)] * 2).setup(FakeContext())
    with pytest.raises(ConfigError, match="adaptive and margin: the costs of the one follow the head as it is trained"):
        combine([Adaptive(), Margin()], [Constant(1)] * 2)
    assert combine([Adaptive(), Mle()], [Constant(1)] * 2).adaptive_cost
    assert not combine([Emo(), Mle()], [Constant(1)] * 2).adaptive_cost


def test_what_cannot_be_summed_is_refused() -> None:
    class Whole(ModelObjective):
        def loss(self, model: Any, batch: Any) -> Any:
            return model

    class BySequence(Mle):
        def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
            return torch.tensor(len(batch["labels"]))

    with pytest.raises(ConfigError, match="whole runs the model itself, and its units need not be tokens"):
        combine([Whole(), Mle()], [Constant(1)] * 2)
    with pytest.raises(ConfigError, match="mle is two terms of one combination; give it once"):
        combine([Mle(), Mle()], [Constant(1), Linear(1, 0)])
    with pytest.raises(ConfigError, match="Every weight of mle and mixce is 0"):
        combine([Mle(), MixCE()], [Constant(0)] * 2)
    with pytest.raises(ConfigError, match="mle and by-sequence divide their sums by different weights"):
        combine([Mle(), BySequence()], [Constant(1)] * 2)
    alone = combine([BySequence()], [Constant(0.5)])
    assert int(alone.total_weight({"labels": torch.zeros(3, 4)})) == 3


class Counting(Mle):
    """Counts the steps that began, as a running state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps = torch.zeros((), dtype=torch.int64)

    def begin_step(self, step: int, total_steps: int) -> None:
        self.steps = self.steps + 1
        self.last = (step, total_steps)

    def state(self) -> dict[str, Tensor]:
        return {"steps": self.steps, "a.b": self.steps}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        assert state.keys() == {"steps", "a.b"}
        self.steps = state["steps"]


class CountingToo(Counting):
    pass


def test_steps_and_state_reach_each_term_and_come_back() -> None:
    first, second = Counting(), CountingToo()
    combined = combine([Mle(), second, first], [Constant(1)] * 3)
    combined.begin_step(3, 9)
    second.begin_step(4, 9)
    assert (first.last, int(first.steps), int(second.steps)) == ((3, 9), 1, 2)
    restored = [CountingToo(), Counting(), Mle()]
    combine(restored, [Constant(1)] * 3).load_state(combined.state())
    assert [int(o.steps) for o in restored[:2]] == [2, 1]  # type: ignore[attr-defined]


def test_side_data_that_two_terms_name_alike_is_kept_apart() -> None:
    labels_BT = torch.randint(V, (2, 5), generator=torch.Generator().manual_seed(0))
    batch = {"labels": labels_BT, "importance": torch.rand(2, 5, dtype=torch.float64)}
    terms: list[Objective] = [Weighed(), WeighedByPlace(), WeighedLogits()]
    combined = combine(terms, [Constant(0.5), Constant(2), Constant(1)])
    # The column of the batch is shared, and under its own name, by which the trainer keeps it from the model.
    assert combined.side_names == {"importance", "weighed-by-place.importance"}
    side = combined.side_data(batch)
    assert side["importance"] is batch["importance"]
    generator = torch.Generator().manual_seed(3)
    logits_NV = torch.randn(10, V, generator=generator, dtype=torch.float64)
    targets_N = labels_BT.flatten()
    found = combined.loss(logits_NV, targets_N, {n: v.flatten() for n, v in side.items()})  # type: ignore[call-arg]
    log_prob_N = torch.log_softmax(logits_NV, 1).gather(1, targets_N[:, None])[:, 0]
    place_N = torch.arange(5, dtype=torch.float64).repeat(2)
    w_N = batch["importance"].flatten()
    logit_N = logits_NV.gather(1, targets_N[:, None])[:, 0]
    expected = -0.5 * w_N * log_prob_N - 2 * place_N * log_prob_N + w_N * logit_N**2
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
