"""A compiled model with an attached objective: no graph break, and the numbers of the model as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import emobench
from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.objectives import CostEmbedding
from emobench.training.attach import AttachedObjective, attach, compiled_loss
from emobench_objectives.emo import Emo


class Bent(emobench.StatisticsObjective):
    """Without slopes: autograd has to run inside the operator."""

    needs = frozenset({"entropy"})

    def loss(self, s: emobench.TokenStatistics) -> torch.Tensor:
        return -s.log_prob * (1 + 0.1 * s.entropy)


class Margin(emobench.LogitsObjective):
    """Any function of the logits."""

    def loss(self, logits_NV: torch.Tensor, targets_N: torch.Tensor, side: Any) -> torch.Tensor:
        return (logits_NV.logsumexp(-1) - logits_NV.gather(1, targets_N[:, None])[:, 0]).square()


@pytest.fixture
def batch(kit: SimpleNamespace) -> dict[str, torch.Tensor]:
    batch = RowCollator(0)(kit.ragged(8))
    del batch["row"]
    return batch


def attached_to(model: Any, objective: Any) -> AttachedObjective:
    head = probe_head(model)
    if "expected_cost" in objective.needs:
        objective.use_cost(CostEmbedding(head.linear.weight))
    return attach(model, objective, head, evaluate_loss=True)


def compiled(model: Any) -> Any:
    # aot_eager traces forward and backward as every back end does, and needs no C++ compiler.
    return torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("kind", ["gpt2", "phi"])  # a tied head, and one with a bias
@pytest.mark.parametrize("make", [Emo, Bent, Margin])
def test_loss_gradients_and_parts_are_the_same(
    kit: SimpleNamespace, batch: dict[str, torch.Tensor], kind: str, make: Any
) -> None:
    torch._dynamo.reset()
    plain, fast = kit.tiny(kind).train(), kit.tiny(kind).train()
    expected, attached = attached_to(plain, make()), attached_to(fast, make())
    denominator = torch.tensor(50)
    loss = plain(**batch, num_items_in_batch=denominator).loss
    loss.backward()
    run = compiled(fast)
    for _ in range(2):  # the second call runs the graph that the first one traced
        fast.zero_grad()
        attached.window.clear()
        attached.prepare(batch, denominator, training=True)
        found = run(**batch, num_items_in_batch=denominator).loss
        found.backward()
        assert found.item() == pytest.approx(loss.item(), rel=1e-12)
        for (name, p), q in zip(plain.named_parameters(), fast.parameters(), strict=True):
            assert torch.allclose(p.grad, q.grad, rtol=1e-10, atol=1e-14), name
        assert {k: float(v) for k, v in attached.window[0].items()} == pytest.approx(
            {k: float(v) for k, v in expected.window[0].items()}, rel=1e-12
        )


def test_evaluation_is_the_same(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    torch._dynamo.reset()
    plain, fast = kit.tiny("llama").eval(), kit.tiny("llama").eval()
    expected, attached = attached_to(plain, Bent()), attached_to(fast, Bent())
    with torch.no_grad():
        loss = plain(**batch).loss
        attached.prepare(batch, None, training=False)
        assert compiled(fast)(**batch).loss.item() == pytest.approx(loss.item(), rel=1e-12)
    assert attached.evaluated is not None
    assert expected.evaluated is not None
    assert torch.allclose(attached.evaluated.loss_B, expected.evaluated.loss_B, rtol=1e-12)
    assert torch.equal(attached.evaluated.tokens_B, expected.evaluated.tokens_B)


def test_what_was_not_prepared_is_said(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    torch._dynamo.reset()
    model = kit.tiny("gpt2").train()
    attached_to(model, Bent())
    with pytest.raises(RuntimeError, match=r"No micro-batch was prepared; call attached\.prepare"):
        compiled(model)(**batch)


def test_the_operator_keeps_the_rules_of_torch(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    """Its fake results have the shapes and dtypes of the real ones."""
    model = kit.tiny("phi").train()
    attached = attached_to(model, Emo())
    head = model.get_output_embeddings()
    hidden = model.base_model(batch["input_ids"])[0].detach()
    arguments = (hidden, head.weight, head.bias, attached.number, True, True, True, True, head.weight.dtype)
    attached.prepare(batch, None, training=True)
    real = torch.ops.emobench.attached_loss(*arguments)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.ops.emobench.attached_loss(*arguments)
    assert [(f.shape, f.dtype) for f in fake] == [(r.shape, r.dtype) for r in real]


def test_autocast_reaches_the_operator(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    """A compiled graph runs with autocast off, and its products would be those of the single-precision weights."""
    torch._dynamo.reset()
    losses: dict[str, list[torch.Tensor]] = {}
    for kind, wrap in (("plain", lambda model: model), ("compiled", compiled)):
        model = kit.tiny("llama", dtype=torch.float32).train()
        attached = attached_to(model, Emo())
        attached.prepare(batch, None, training=True)
        with torch.autocast("cpu", torch.bfloat16):
            wrap(model)(**batch).loss.backward()
        losses[kind] = [attached.window[-1]["loss"], model.get_output_embeddings().weight.grad]
    for actual, expected in zip(losses["compiled"], losses["plain"], strict=True):
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_float16_keeps_small_gradients_and_takes_a_large_loss_scale(
    kit: SimpleNamespace, batch: dict[str, torch.Tensor]
) -> None:
    """As without the operator: what divides and scales them meets them in float32."""
    model = kit.tiny("llama").train()
    attached = attached_to(model, Emo())
    hidden = model.base_model(batch["input_ids"])[0].detach().half()
    weight = model.get_output_embeddings().weight.detach().half()
    found = []
    for through_operator in (True, False):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        attached.prepare(batch, torch.tensor(2**14), training=True)
        if through_operator:
            loss = compiled_loss(attached.number, *leaves, None, True)
        else:
            loss = attached.prepared_loss(*leaves, None, training=True)
        (65536.0 * loss).backward()
        found.append([leaf.grad.double() for leaf in leaves])
    for actual, expected in zip(*found, strict=True):
        assert float((actual - expected).norm() / expected.norm()) < 2e-3
