"""A compiled model with an attached objective: the numbers of the model as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.objectives import CostEmbedding
from emobench.training.attach import attach
from emobench_objectives.emo import Emo


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch hides it, but not an error
@pytest.mark.parametrize(("kind", "autocast"), [("gpt2", False), ("phi", True)])  # a tied head, and one with a bias
def test_loss_gradients_and_parts_are_the_same(kit: SimpleNamespace, kind: str, autocast: bool) -> None:
    torch._dynamo.reset()
    batch = RowCollator(0)(kit.ragged(8))
    del batch["row"]
    graphs: list[int] = []
    results: list[tuple[Any, ...]] = []

    def count(graph: Any, example_inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    for compiled in (False, True):
        model = kit.tiny(kind, dtype=torch.float32 if autocast else torch.float64).train()
        head, objective = probe_head(model), Emo()
        objective.use_cost(CostEmbedding(head.linear.weight))
        attached = attach(model, objective, head, evaluate_loss=True)
        run: Any = torch.compile(model, backend=count) if compiled else model
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            for _ in range(2):  # the second call runs the graph that the first one traced
                model.zero_grad()
                run(**batch, num_items_in_batch=torch.tensor(50)).loss.backward()
            with torch.no_grad():
                run.eval()(**batch)
        assert attached.evaluated is not None
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append((attached.window[-1]["loss"], attached.evaluated.loss_B, *gradients))
    close = 1e-5 if autocast else 1e-10
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=close, atol=close)
    assert max(graphs) > 50  # the layers
