"""The result of a training: a plain Hugging Face folder. What several processes trained is read again and compared.

Legend: B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from emobench.data.packing import IGNORE
from emobench.errors import RunError
from emobench.models.head import Head
from emobench.training.attach import detach, next_labels
from emobench.training.sharded import gather_weights
from emobench.training.trainer import ObjectiveTrainer
from emobench.training.zero import ZeroTrainer, whole_models

ROWS = 8
"""The most validation rows that are compared."""
TOLERANCE, COARSE = 1e-4, 5e-2
"""Largest relative difference of MLE, in float32 on a CPU, and elsewhere, where the products are rounded otherwise."""


def export(trainer: ObjectiveTrainer, model: Any, head: Head, tokenizer: Any, folder: Path) -> None:
    """Write the weights of a trained model, with adapters merged, and its tokenizer. All processes must call it.

    `model` is the one that the objective was attached to. Raises RunError if several processes trained, and the folder
    gives another MLE on validation rows than the trained model.
    """
    expected = _trained_mle(trainer) if trainer.args.world_size > 1 else None
    weights = _whole_weights(trainer, model)
    if not trainer.is_world_process_zero():
        return
    detach(model, head)
    if weights is None:
        plain: Any = trainer.accelerator.unwrap_model(trainer.model)
        (plain if plain is model else plain.merge_and_unload()).save_pretrained(folder)
    elif trainer.model is model:
        model.save_pretrained(folder, state_dict=weights)
    else:
        _merged(model, trainer.model, weights).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if expected is not None:
        _compare(expected, _read_mle(trainer, folder, _class_of(model), head), trainer, folder)


def _whole_weights(trainer: ObjectiveTrainer, model: Any) -> dict[str, Tensor] | None:
    """Return the complete weights of a sharded model, with tied weights once. None if the model is not sharded."""
    if trainer.is_fsdp_enabled:
        return gather_weights(trainer.model)
    if not isinstance(trainer, ZeroTrainer):
        return None
    tied = model.all_tied_weights_keys
    return {name: value for name, value in trainer.gather_weights().items() if name not in tied}


def _merged(model: Any, adapted: Any, weights: dict[str, Tensor]) -> Any:
    """Return a model that holds all its weights, with the adapters of a sharded one merged."""
    from peft import get_peft_model

    with torch.device("meta"):
        whole: Any = get_peft_model(_class_of(model)(model.config), next(iter(adapted.peft_config.values())))
    whole.load_state_dict(weights, strict=False, assign=True)
    whole.get_base_model().tie_weights()
    return whole.merge_and_unload()


def _class_of(model: Any) -> Any:
    """Return a model's own class; FSDP derives others from it."""
    return next(c for c in type(model).__mro__ if not issubclass(c, FSDPModule))


def _batch(trainer: ObjectiveTrainer) -> Any:
    rows: Any = trainer.eval_dataset
    return trainer.data_collator([rows[i] for i in range(min(ROWS, len(rows)))])


@torch.no_grad()
def _trained_mle(trainer: ObjectiveTrainer) -> float:
    model: Any = trainer.model_wrapped
    model.eval()
    trainer.compute_loss(model, trainer._prepare_inputs(_batch(trainer)))
    sums = trainer.attached.evaluated
    assert sums is not None
    return float(sums.mle_B.sum() / sums.tokens_B.sum().clamp(min=1))


@torch.no_grad()
def _read_mle(trainer: ObjectiveTrainer, folder: Path, model_class: Any, head: Head) -> float:
    with whole_models():
        model = model_class.from_pretrained(folder, dtype="auto", use_safetensors=True).eval()
    batch = _batch(trainer)
    labels_BT = next_labels(batch["labels"], IGNORE)
    inputs = {n: batch[n] for n in ("input_ids", "attention_mask", "position_ids") if n in batch}
    logits_BTV = model(**inputs, use_cache=False).logits[..., : head.tokens]
    total = F.cross_entropy(
        logits_BTV.double().flatten(0, 1), labels_BT.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    return float(total / (labels_BT != IGNORE).sum().clamp(min=1))


def _compare(expected: float, found: float, trainer: ObjectiveTrainer, folder: Path) -> None:
    exact = trainer.args.device.type == "cpu" and not (trainer.args.bf16 or trainer.args.fp16)
    if not abs(found - expected) <= (TOLERANCE if exact else COARSE) * max(abs(expected), 1.0):
        raise RunError(
            f"{folder} does not hold the model that was trained: its MLE on {ROWS} validation rows is {found:.6g} nats "
            f"per token, and was {expected:.6g}. Its checkpoints are kept; train with one process, and report this."
        )
