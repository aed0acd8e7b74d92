"""The conformance kit: passes every installed objective, and each check finds the objective that breaks its promise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import emobench
from emobench.core.conformance import outcomes
from emobench.core.errors import PluginError
from emobench.registry import load_objective, objective_names
from emobench.testing import Outcome, check_plugin, plugin_checks, run_checks


@pytest.mark.parametrize("name", objective_names())
def test_installed_objectives_pass(name: str) -> None:
    assert [o for o in run_checks(load_objective(name).objective) if o.status == "failed"] == []


SMALL = {"tokens": 6, "width": 3, "vocabulary": 5}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("tailr(gamma=1)", {"seed": 7}),
        *((text, SMALL) for text in ("tailr(min_weight=0.3)", "mixce(gamma=0)", "emo(cost=initial)")),
        *((text, {}) for text in ("power(min_prob=1)", "power(max_prob=0.01)")),  # these train on few tokens
    ],
)
def test_they_pass_with_other_parameters_and_sizes(text: str, sizes: dict[str, int]) -> None:
    check_plugin(load_objective(text).objective, **sizes)


class Good(emobench.StatisticsObjective):
    """-(1 - g sg(q_t)) log q_t. Own."""

    gamma: float = emobench.param(0.5, low=0.0, high=1.0)

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -(1 - self.gamma * s.log_prob.detach().exp()) * s.log_prob


class GoodLogits(emobench.LogitsObjective):
    """-(1 - q_t)^2 log q_t. Own."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        mle_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
        return (1 - (-mle_N).exp()).square() * mle_N


class GoodModel(emobench.ModelObjective):
    """The mean of -log q_t over a sequence. Own."""

    def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
        return (batch["labels"][:, 1:] != -100).any(dim=1).sum()

    def loss(self, model: Any, batch: Mapping[str, Tensor]) -> emobench.UnitLosses:
        mle_BT, kept_BT = self.mle(model, batch)
        return emobench.UnitLosses(mle_BT.sum(1) / kept_BT.sum(1).clamp(min=1), kept_BT.any(1).to(mle_BT.dtype))

    def mle(self, model: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        targets_BT = batch["labels"][:, 1:]
        return F.cross_entropy(logits_BTV.float().mT, targets_BT, reduction="none"), targets_BT != -100


class Single(emobench.LogitsObjective):
    """-log q_t, made in float32 as most losses are. Own."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(logits_NV.float(), targets_N, reduction="none")


class Aware(emobench.StatisticsObjective):
    """H + teacher - log q_t. Own."""

    needs = frozenset({"entropy", "teacher"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return (s.side["teacher"] - s.log_prob) + 0.1 * s.entropy


@pytest.mark.parametrize("objective", [Good(), GoodLogits(), GoodModel(), Single(), Aware()], ids=repr)
def test_every_level_passes(objective: emobench.Objective) -> None:
    found = run_checks(objective)
    assert [o for o in found if o.status == "failed"] == []
    assert {o.name for o in found if o.status == "skipped"} <= {"slopes", "parts", "parameters", "side data"}


def derived(base: type[emobench.Objective] = Good, **names: Any) -> emobench.Objective:
    return type("Mine", (base,), {"__doc__": "-log q_t. Own.", **names})()


def losing(function: Callable[[Any], Any], **names: Any) -> emobench.Objective:
    return derived(loss=lambda self, s: function(s), **names)


def written(text: str | None) -> emobench.Objective:
    names = {"__doc__": text, "__module__": "nowhere", "loss": lambda self, s: -s.log_prob}
    return type("Mine", (emobench.StatisticsObjective,), names)()


def outcome(objective: emobench.Objective, name: str, **sizes: Any) -> Outcome:
    bound = next(b for b in plugin_checks(objective, **sizes) if str(b) == name)
    return next(outcomes([bound.check], bound.subject))


class Doubled(torch.autograd.Function):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # type: ignore[override]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * gradient


def counting() -> Callable[[Any], Tensor]:
    calls = itertools.count()
    return lambda s: -s.log_prob * (1 + next(calls))


def backward_counting() -> Callable[[Any], Tensor]:
    calls = itertools.count()
    return lambda s: -(s.log_prob - s.log_prob.detach()) * next(calls) - s.log_prob.detach()


def set_up_at_random(self: Any, context: emobench.SetupContext) -> None:
    self.kept = torch.rand(3)


def fade(self: Any, step: int, total_steps: int) -> None:
    self.scale = getattr(self, "scale", 1.0) * 0.9


def faded(self: Any, s: Any) -> Tensor:
    return -self.scale * s.log_prob


def ends_at_0(self: Any, s: Any) -> Tensor:
    return -s.log_prob / self.gamma


def dense(self: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"target": F.one_hot(batch["input_ids"], 127).double()}


def all_columns(self: Any, batch: Mapping[str, Tensor]) -> Tensor:
    return torch.tensor(batch["labels"].numel())


def squares(self: Any, logits_NV: Tensor, targets_N: Tensor, side: Any) -> Tensor:
    words = logits_NV.shape[1]
    return (logits_NV @ logits_NV.new_ones(words, words)).logsumexp(1)


def nothing(self: Any, logits_NV: Tensor, targets_N: Tensor, side: Any) -> Tensor:
    return 0 * logits_NV.sum(1)


def one_hot(s: Any) -> Tensor:
    return (s.log_prob > -1).to(s.log_prob)


CHUNKS_OF_ONE = "Chunks of size 1 and the reference differ"
BROKEN: list[tuple[str, Any, str]] = [
    ("documentation", lambda: written("Log-likelihood. Own."), "Its docstring shows no equation."),
    ("documentation", lambda: written("-log q_t"), "Its docstring names no source."),
    ("documentation", lambda: written(None), "It has no docstring."),
    ("gradients", lambda: losing(lambda s: -s.log_prob.half().to(s.log_prob)), "finite differences differ by"),
    ("setup", lambda: derived(setup=lambda self, c: c.teacher("gpt2")), "reads the model 'gpt2', which `reads` does"),
    (
        "setup",
        lambda: derived(setup=set_up_at_random, frozen_state=lambda self: {"kept": self.kept}),
        "two frozen states",
    ),
    ("loss", lambda: losing(lambda s: (s.log_prob - 0.5).log()), "Its loss is not finite on random logits."),
    ("loss", lambda: losing(lambda s: -s.log_prob.mean()), "mine: loss is shape (); expected one number per token"),
    ("loss", lambda: losing(lambda s: -s.log_prob[:-1]), "expected one number per token"),
    ("loss", lambda: losing(lambda s: 0.0), "mine: loss is a float; expected one number per token"),
    ("loss", lambda: losing(lambda s: -s.entropy), "statistic 'entropy'; write needs"),
    ("loss", lambda: losing(lambda s: -s["entrop"]), "did you mean 'entropy'?"),
    ("loss", lambda: losing(lambda s: s.absent), "It raises AttributeError: 'TokenStatistics' object has no"),
    ("loss", lambda: losing(lambda s: s.log_prob + "1"), "It raises TypeError: unsupported operand"),
    ("loss", lambda: losing(lambda s: -s.log_prob.detach()), "Its loss has no gradient: `.detach()`, `.item()`"),
    ("loss", lambda: losing(one_hot), "argmax or a comparison cut it off"),
    ("engine", lambda: losing(counting()), "The chunked engine and the reference differ in the loss by"),
    ("engine", lambda: losing(backward_counting()), "the reference differ in the gradient of the hidden states by"),
    ("gradients", lambda: losing(lambda s: -s.log_prob * s.log_prob.data), "derivative of its loss by log_prob and"),
    ("gradients", lambda: losing(lambda s: -Doubled.apply(s.log_prob)), "finite differences differ by 1.0e+00"),  # type: ignore[operator]
    ("gradients", lambda: losing(lambda s: 0 * s.log_prob), "Its gradient is 0 on every token: it trains nothing."),
    ("gradients", lambda: derived(GoodLogits, loss=nothing), "Its gradient is 0 on every token: it trains nothing."),
    ("slopes", lambda: derived(slopes=lambda self, s: {"log_prob": -s.log_prob}), "Its slope of log_prob and autograd"),
    ("slopes", lambda: derived(slopes=lambda self, s: {"entropy": s.log_prob}), "name 'entropy', which it does not"),
    ("slopes", lambda: derived(slopes=lambda self, s: {"log_prob": -torch.ones(1)}), "has shape (1,); expected (29,)"),
    ("masking", lambda: derived(total_weight=all_columns), "Its total_weight counts padding."),
    ("masking", lambda: losing(counting()), "With other hidden states where the label is -100"),
    ("empty batch", lambda: losing(lambda s: -s.log_prob if len(s) else torch.ones(1)), "one number per token"),
    ("chunks", lambda: losing(lambda s: -s.log_prob + 0.1 * s.log_prob * s.log_prob.roll(1)), CHUNKS_OF_ONE),
    ("chunks", lambda: losing(lambda s: -s.log_prob / len(s)), "differ in the loss by"),
    ("order", lambda: losing(lambda s: -s.log_prob * torch.arange(len(s))), "Tokens in another order and before"),
    ("accumulation", lambda: losing(lambda s: -s.log_prob / len(s)), "The sum of two halves and the whole differ"),
    ("determinism", lambda: losing(lambda s: -s.log_prob * torch.rand(len(s))), "twice give two values of the loss"),
    ("precisions", lambda: losing(lambda s: (1e6 - s.log_prob) - 1e6), "In float32 the loss is off by"),
    ("hard rows", lambda: losing(lambda s: (1 - s.log_prob.exp()).log()), "where the target has probability 1"),
    ("hard rows", lambda: losing(lambda s: 1 / s.log_prob.exp()), "not finite where the target has probability 0"),
    ("memory", lambda: derived(GoodLogits, loss=squares), "64 tokens and 127 words it makes a tensor of shape (127"),
    ("side data", lambda: derived(needs={"x"}, side_data=lambda self, batch: {"x": batch["labels"].T}), "(2, 19) and"),
    ("memory", lambda: derived(needs={"target"}, side_data=dense), "Its side data 'target' holds (64, 127) numbers"),
    ("parts", lambda: derived(parts=lambda self, s: {"loss": s.log_prob}), "'loss' takes the place of the trainer's"),
    ("loss", lambda: derived(parts=lambda self, s: {"x": s.log_prob / 0}), "Its part 'x' is not finite on random"),
    ("hard rows", lambda: derived(parts=lambda self, s: {"x": 1 / s.log_prob}), "Its part 'x' is not finite where the"),
    ("parts", lambda: derived(parts=lambda self, s: {"x": s.log_prob / len(s)}), "'x' depends on the other tokens"),
    ("parameters", lambda: derived(__post_init__=lambda self: None), "gamma=nan is out of range, and not refused"),
    ("parameters", lambda: derived(loss=ends_at_0), "With gamma=0.0, an end of its range, its loss is not finite."),
    ("state", lambda: derived(begin_step=fade, loss=faded), "After 3 steps its losses and those of a resumed copy"),
    ("state", lambda: derived(state=lambda self: {"x": torch.rand(1)}), "does not take back 'x' of state()"),
]


def test_each_check_can_fail() -> None:
    for objective, broken in ((Aware(), BROKEN), (GoodModel(), BROKEN_MODELS)):
        names = {str(check) for check in plugin_checks(objective)}
        shared = {"documentation", "setup", "parameters", "state"}
        assert names == {name for name, *_ in broken} | shared


def units(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], **names: Any) -> emobench.Objective:
    """A ModelObjective that makes its losses and weights from the MLE of each token, (B, T), and which are targets."""

    def loss(self: Any, model: Any, batch: Mapping[str, Tensor]) -> emobench.UnitLosses:
        return emobench.UnitLosses(*change(*self.mle(model, batch)))

    return derived(GoodModel, loss=loss, **names)


def mean(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    return mle_BT.sum(1) / kept_BT.sum(1).clamp(min=1), kept_BT.any(1).to(mle_BT.dtype)


def no_attention(self: Any, model: Any, batch: Mapping[str, Tensor]) -> emobench.UnitLosses:
    logits_BTV = model(input_ids=batch["input_ids"]).logits
    kept_B = (batch["labels"][:, 1:] != -100).any(1)
    return emobench.UnitLosses(logits_BTV.double().logsumexp(-1).mean(1) * kept_B, kept_B.double())


def by_place(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    losses_B, weights_B = mean(mle_BT, kept_BT)
    return losses_B * torch.arange(1, len(losses_B) + 1), weights_B


def centred(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    losses_B, weights_B = mean(mle_BT, kept_BT)
    return losses_B * losses_B.mean(), weights_B


def undivided(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    return mle_BT.sum(1) / kept_BT.sum(1), torch.ones(len(mle_BT), dtype=mle_BT.dtype)


def noisy(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    losses_B, weights_B = mean(mle_BT, kept_BT)
    return losses_B * torch.rand(1), weights_B


def coarse(self: Any, model: Any, batch: Mapping[str, Tensor]) -> emobench.UnitLosses:
    """Works in the precision of the logits, with numbers that are large beside their differences."""
    shifted_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1] + 1000
    kept_BT = batch["labels"][:, 1:] != -100
    spread_BT = shifted_BTV.logsumexp(-1) - shifted_BTV.mean(-1)
    return emobench.UnitLosses((spread_BT * kept_BT).sum(1) / kept_BT.sum(1).clamp(min=1), kept_BT.any(1).float())


def cut(mle_BT: Tensor, kept_BT: Tensor) -> tuple[Tensor, Tensor]:
    losses_B, weights_B = mean(mle_BT, kept_BT)
    return losses_B * losses_B.data, weights_B


BROKEN_MODELS: list[tuple[str, Any, str]] = [
    ("units", lambda: derived(GoodModel, loss=lambda self, m, b: torch.ones(2)), "Its loss is a Tensor; expected"),
    ("units", lambda: units(lambda mle, kept: (mle, kept)), "have shapes (2, 18) and (2, 18); expected one vector"),
    ("units", lambda: units(lambda mle, kept: mean(mle.detach(), kept)), "Its loss has no gradient: `.detach()`"),
    ("units", lambda: units(lambda mle, kept: mean(mle / 0, kept)), "Its loss is not finite on a random gpt2."),
    ("units", lambda: units(mean, total_weight=all_columns), "Its weights add up to 2, its total_weight is 38."),
    ("gradients", lambda: units(cut), "Autograd's gradient and finite differences differ by"),
    ("gradients", lambda: units(lambda mle, kept: mean(mle * 0, kept)), "No gradient reaches the parameters"),
    ("padding", lambda: derived(GoodModel, loss=no_attention), "Three columns of padding change its loss by"),
    ("empty batch", lambda: units(undivided), "A batch without targets has a loss or gradients."),
    ("order", lambda: units(by_place), "With its sequences in another order a batch has another loss by"),
    ("accumulation", lambda: units(centred), "The sum over its sequences and the loss of a batch differ by"),
    ("determinism", lambda: units(noisy), "The same inputs twice give two losses."),
    ("precisions", lambda: derived(GoodModel, loss=coarse), "16 its loss is off by"),
]


CASES = [*BROKEN, *BROKEN_MODELS]


@pytest.mark.parametrize(("name", "make", "sentence"), CASES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CASES)])
def test_a_broken_promise_is_found_by_its_check(name: str, make: Callable[[], Any], sentence: str) -> None:
    found = outcome(make(), name)
    assert found.status == "failed"
    assert sentence in found.found


def test_a_failure_is_raised_with_what_it_usually_means() -> None:
    with pytest.raises(PluginError, match=r"mine does not keep the contract: .* differ .*\. .*`loss` sees a chunk"):
        next(c for c in plugin_checks(losing(lambda s: -s.log_prob / len(s))) if str(c) == "chunks")()
    with pytest.raises(PluginError, match="mine does not keep the contract: its total_weight counts padding"):
        check_plugin(derived(total_weight=all_columns))


def test_the_checks_behind_a_gate_are_skipped() -> None:
    found = run_checks(losing(lambda s: s.absent))
    assert {o.found for o in found if o.status == "skipped"} == {"`loss` failed"}
    assert [o.name for o in found if o.status == "failed"] == ["loss"]
    for objective in (losing(counting()), losing(lambda s: -s.log_prob * torch.rand(len(s))), units(noisy)):
        found = run_checks(objective)
        assert [o.name for o in found if o.status == "failed"] == ["determinism"]
        assert {o.found for o in found if o.status == "skipped"} == {"`determinism` failed"}
        assert "or `loss` keeps something between calls" in next(o.usually for o in found if o.status == "failed")


def test_missing_side_data_is_reported() -> None:
    def loss(self: Any, s: Any) -> Tensor:
        return -s.log_prob * s.side["weigth"]

    found = outcome(derived(needs={"weigth"}, loss=loss), "side data")
    assert (found.status, found.usually) == ("skipped", "")
    assert "'weigth': not a statistic, and not from `side_data`" in found.found
    check_plugin(derived(needs={"weigth"}, loss=loss))
    for made in ("side_data", "example_side"):
        names: dict[str, Any] = {made: lambda self, batch: {"weigth": batch["labels"] + 0.5}}
        shown = derived(needs={"weigth"}, loss=loss, **names)
        assert outcome(shown, "side data").status == "ok"
    given = {"weigth": torch.rand(37).double()}
    assert outcome(derived(needs={"weigth"}, loss=loss), "side data", side=given).status == "ok"


@pytest.mark.parametrize(
    ("source", "status"),
    [*((text, "ok") for text in ("Mine.", "OWN.", "-log q_t, own")), ("Against its own entropy.", "failed")],
)
def test_an_own_equation_has_a_source(source: str, status: str) -> None:
    assert outcome(written(f"-log q_t\n\n{source}"), "documentation").status == status


def test_side_data_is_given_or_made_from_an_example_of_the_batch() -> None:
    seen: list[Tensor] = []

    def loss(self: Any, s: Any) -> Tensor:
        seen.append(s.side["teacher"])
        return -s.log_prob * s.side["teacher"]

    check_plugin(derived(needs={"teacher"}, loss=loss), side={"teacher": torch.full((37,), 0.25).double()})
    assert {float(v) for side in seen for v in side} == {0.25}
    seen.clear()
    example = lambda self, batch: {"teacher": 10.0 * batch["labels"].clamp(min=0)}  # noqa: E731
    check_plugin(derived(needs={"teacher"}, loss=loss, example_side=example))
    assert len({float(v) for side in seen for v in side}) > 10
    assert all(float(v) % 10 == 0 for side in seen for v in side)


def test_constants_are_made_by_detach_or_by_no_grad() -> None:
    def under_no_grad(s: Any) -> Tensor:
        with torch.no_grad():
            weight = 1 - s.log_prob.exp()
            weight /= 1 + s.log_prob.exp()
        return -weight * s.log_prob

    check_plugin(losing(under_no_grad))

    def teaching(self: Any, model: Any, batch: Mapping[str, Tensor]) -> emobench.UnitLosses:
        with torch.no_grad():
            weight_BT = (-self.mle(model, batch)[0]).exp()
        mle_BT, kept_BT = self.mle(model, batch)
        return emobench.UnitLosses(*mean(weight_BT * mle_BT * kept_BT, kept_BT))

    check_plugin(derived(GoodModel, loss=teaching))


def test_a_schedule_that_is_kept_passes() -> None:
    def load(self: Any, state: Mapping[str, Tensor]) -> None:
        self.scale = float(state["scale"])

    kept = {"state": lambda self: {"scale": torch.tensor(self.scale, dtype=torch.float64)}, "load_state": load}
    check_plugin(derived(begin_step=fade, loss=faded, **kept))
