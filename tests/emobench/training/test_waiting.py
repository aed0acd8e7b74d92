"""The loss of a micro-batch never waits for a GPU.

Counted on the CPU: the operations whose result a host must read before it can go on, of every call of the loss.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.objectives import CostEmbedding
from emobench.objectives.base import Objective
from emobench.training.attach import AttachedObjective, attach
from emobench_objectives.emo import Emo
from emobench_objectives.entropy_regularization import EntropyRegularization
from emobench_objectives.mle import Mle
from emobench_objectives.unlikelihood import Unlikelihood

WAITING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "allclose", "is_nonzero"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
}


class Waits(TorchDispatchMode):
    """Collects the names of operations that wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put_", "index_put", "_index_put_impl_") else ()
        if name in WAITING or any(i is not None and i.dtype == torch.bool for i in indices):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def batch(kit: SimpleNamespace) -> dict[str, torch.Tensor]:
    batch = RowCollator(0)(kit.ragged(8))
    del batch["row"]
    return batch


def attached_to(model: Any, objective: Objective, *, kept: int) -> AttachedObjective:
    head = probe_head(model)
    if "expected_cost" in objective.needs:
        cost = CostEmbedding(head.linear.weight.detach())
        cost.keep(torch.arange(kept))
        objective.use_cost(cost)  # type: ignore[attr-defined]
    return attach(model, objective, head)


@pytest.mark.parametrize(
    ("objective", "kept"),
    [(Mle(), 0), (Emo(), 0), (Emo(), 20), (EntropyRegularization(), 0), (Unlikelihood(), 0)],
    ids=["mle", "emo", "emo-kept", "autograd", "side"],
)
def test_the_loss_waits_for_nothing(
    kit: SimpleNamespace, batch: dict[str, torch.Tensor], objective: Objective, kept: int
) -> None:
    model = kit.tiny("llama").train()
    attached = attached_to(model, objective, kept=kept)
    weight = attached.head.linear.weight
    attached.ready = attached.targets_of(batch["labels"], device=weight.device, dtype=weight.dtype)
    hidden_BTD = torch.randn(*batch["labels"].shape, weight.shape[1], dtype=weight.dtype, requires_grad=True)
    with Waits() as waits:
        attached.prepare(batch, objective.total_weight(batch), training=True)
        attached.head_forward(attached.head.linear, hidden_BTD).backward()
    assert waits.names == []
    assert float(hidden_BTD.grad.abs().sum()) > 0  # type: ignore[union-attr]


def test_preparing_the_targets_does_wait(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    """So the count can fail, and the collator does this where nothing waits: on the host."""
    attached = attached_to(kit.tiny("llama").train(), Emo(), kept=20)
    with Waits() as waits:
        attached.prepare(batch, None, training=True)
    assert {"nonzero", "_local_scalar_dense", "index"} <= set(waits.names)


def test_a_training_prepares_with_the_batch(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Its numbers are those of targets that are prepared on the device."""
    found: list[str] = []
    made = AttachedObjective.prepare

    def watched(self: AttachedObjective, *args: Any, training: bool) -> None:
        with Waits() as waits:
            made(self, *args, training=training)
        found.extend(waits.names if training else [])

    def unready(self: AttachedObjective, *args: Any, training: bool) -> None:
        self.ready = None
        made(self, *args, training=training)

    models, logs = [kit.tiny("llama") for _ in range(2)], []
    for model, prepare in zip(models, (watched, unready), strict=True):
        monkeypatch.setattr(AttachedObjective, "prepare", prepare)
        job = kit.job(tmp_path / prepare.__name__, model=model, objective=Emo(), recipe={"accumulation": 2})
        logs.append([line["loss"] for line in kit.train_sgd(job)])
    assert found == []
    assert logs[0] == logs[1]
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))
