"""The attached model: its stock paths are untouched, and an evaluation sums each sequence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.training.attach import AttachedObjective, attach, detach
from emobench_objectives.mle import Mle

KINDS = ("gpt2", "opt", "llama", "phi", "gemma2", "granite")


def attached_to(model: Any, **options: Any) -> AttachedObjective:
    return attach(model, Mle(), probe_head(model), **options)


@pytest.fixture
def batch(kit: SimpleNamespace) -> dict[str, torch.Tensor]:
    batch = RowCollator(0)(kit.ragged(8))
    del batch["row"]
    return batch


@pytest.mark.parametrize("kind", KINDS)
def test_stock_paths_are_untouched(kit: SimpleNamespace, batch: dict[str, torch.Tensor], kind: str) -> None:
    model = kit.tiny(kind, dtype=torch.float32)
    ids = batch["input_ids"][:2, :2]
    stock = model(input_ids=ids)
    text = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    own_names = set(vars(model)) | set(vars(model.get_output_embeddings()))

    head = probe_head(model)
    attach(model, Mle(), head)
    assert torch.equal(model(ids).logits, stock.logits)
    assert model(ids, return_dict=False)[0].shape == stock.logits.shape
    assert torch.equal(model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0), text)

    detach(model, head)
    assert set(vars(model)) | set(vars(model.get_output_embeddings())) == own_names
    assert torch.equal(model(ids).logits, stock.logits)
    assert torch.equal(model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0), text)


def test_arguments_by_position_keep_their_meaning(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    """The second argument of GPT-2's forward is its cache; that of the others is the attention mask."""
    ids = batch["input_ids"]
    for kind in ("gpt2", "llama"):
        model = kit.tiny(kind)
        second = model(ids[:, :4]).past_key_values if kind == "gpt2" else batch["attention_mask"]
        rest = ids[:, 4:] if kind == "gpt2" else ids
        expected = model(input_ids=ids, attention_mask=None if kind == "gpt2" else second).logits
        attached_to(model)
        found = model(rest, second).logits
        torch.testing.assert_close(found, expected[:, -rest.shape[1] :], rtol=1e-10, atol=1e-10)


def test_evaluation_sums_each_sequence(kit: SimpleNamespace, batch: dict[str, torch.Tensor]) -> None:
    model = kit.tiny("llama")
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    targets = batch["labels"][:, 1:]
    expected_B = F.cross_entropy(logits.mT, targets, reduction="none").sum(1)
    attached = attached_to(model)
    with torch.no_grad():
        model(**batch)
    found = attached.evaluated
    assert found is not None
    torch.testing.assert_close(found.mle_B, expected_B.detach(), rtol=1e-12, atol=1e-12)
    assert found.tokens_B.tolist() == (targets != -100).sum(1).tolist()
    assert found.tokens_B[3] == 0  # the row without targets
