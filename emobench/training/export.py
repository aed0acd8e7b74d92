"""The result of a training: a plain Hugging Face folder, which is read again and compared with the trained model.

Weights are written as they were trained. Adapters are merged in float32, because half precision would round most of
what they add away.

Legend: B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from emobench.core.errors import RunError
from emobench.data.packing import IGNORE
from emobench.models.head import Head
from emobench.objectives import next_labels
from emobench.training.attach import detach
from emobench.training.parallel import Sharded, Zero, complete_models

if TYPE_CHECKING:
    from emobench.training.train import ObjectiveTrainer

ROWS, TOKENS = 8, 64
"""The most validation rows that are compared, and tokens of each."""
TOLERANCES = {"cpu": 1e-4, "cuda": 1e-3}
"""Largest relative difference of MLE in float32, by the device of the trained model; the written one is on the CPU."""
COARSE = 5e-2
"""The same where the trained model computes in half precision."""
HALF = (torch.bfloat16, torch.float16)
PRECISIONS = ("float32", "bfloat16", "float16")
"""The data types of weights in which a model is evaluated."""


def export(trainer: ObjectiveTrainer, model: Any, head: Head, tokenizer: Any, folder: Path) -> Any:
    """Write the weights of a trained model, with adapters merged, and its tokenizer. All processes must call it.

    `model` is the one that the objective was attached to. Returns the written model, which was read again on the CPU;
    None in all processes but the main one. Raises RunError if a written weight is not the trained one, or if the
    written model gives another MLE on validation rows.
    """
    gathered: Mapping[str, Tensor] | None = None
    expected = 0.0
    if isinstance(trainer, (Sharded, Zero)):
        gathered = trainer.gather_weights()
        expected = _sharded_mle(trainer)
    if not trainer.is_world_process_zero():
        return None
    detach(model, head)
    adapted: Any = trainer.model
    if gathered is None:
        if adapted is not model and _is_half(model):
            model.to(device="cpu", dtype=torch.float32)  # a GPU may have no memory for them
        expected = _mle(model, trainer, head)
    tolerance = TOLERANCES[trainer.args.device.type]
    if _is_half(model) or (gathered is not None and (trainer.args.bf16 or trainer.args.fp16)):
        tolerance = COARSE
    if adapted is not model:
        model = _merged(model, adapted, gathered)
        gathered = None
    # Tied weights once; save_pretrained empties the dict that it is given.
    trained = dict(model.named_parameters())
    if gathered is not None:
        trained = {name: value for name, value in gathered.items() if name not in model.all_tied_weights_keys}
    model.save_pretrained(folder, state_dict=dict(trained) if gathered is not None else None)
    tokenizer.save_pretrained(folder)
    with complete_models():
        written = _class_of(model).from_pretrained(folder, dtype="auto", use_safetensors=True).eval()
    parameters = dict(written.named_parameters(remove_duplicate=False))
    for name, weight in trained.items():
        if name not in parameters:  # a tied weight is written once
            continue
        before = weight.detach().cpu()
        after = parameters[name].detach()
        if before.dtype != after.dtype or not torch.equal(before, after):
            raise _other_model(folder, f"its weight {name} is not the trained one")
    actual = _mle(written, trainer, head)
    if not abs(actual - expected) <= tolerance * max(abs(expected), 1.0):
        what = f"its MLE on validation rows is {actual:.6g} nats per token instead of {expected:.6g}"
        raise _other_model(folder, what)
    return written


def _is_half(model: Any) -> bool:
    return any(weight.dtype in HALF for weight in model.parameters())


def _merged(model: Any, adapted: Any, gathered: Mapping[str, Tensor] | None) -> Any:
    """Return a model with its adapters merged; `gathered` are the weights of a sharded one."""
    if gathered is None:
        return adapted.merge_and_unload()
    from peft import get_peft_model

    wide = {}
    for name, weight in gathered.items():
        wide[name] = weight.float() if weight.dtype in HALF else weight
    with torch.device("meta"):
        whole: Any = get_peft_model(_class_of(model)(model.config), next(iter(adapted.peft_config.values())))
    whole.load_state_dict(wide, strict=False, assign=True)
    whole.get_base_model().tie_weights()
    return whole.merge_and_unload()


def _class_of(model: Any) -> Any:
    """Return a model's own class; FSDP derives others from it."""
    return next(c for c in type(model).__mro__ if not issubclass(c, FSDPModule))


def _rows(trainer: ObjectiveTrainer) -> list[Any]:
    """Return the ends of the first validation rows: few tokens, as the trainer is still in memory, too."""
    rows: Any = trainer.eval_dataset
    taken = [dict(rows[place]) for place in range(min(ROWS, len(rows)))]
    for row in taken:
        for name in row.keys() - {"row"}:
            row[name] = row[name][-TOKENS:]
    return taken


@torch.no_grad()
def _sharded_mle(trainer: ObjectiveTrainer) -> float:
    """Return the trained model's MLE, computed by all processes together, as in a validation."""
    model: Any = trainer.model_wrapped
    model.eval()
    trainer.compute_loss(model, trainer._prepare_inputs(trainer.data_collator(_rows(trainer))))
    sums = trainer.attached.evaluated
    assert sums is not None
    return float(sums.mle_B.sum() / sums.tokens_B.sum().clamp(min=1))


@torch.no_grad()
def _mle(model: Any, trainer: ObjectiveTrainer, head: Head) -> float:
    """Return a model's MLE in its own precision, without autocast, by its logits."""
    batch = trainer.collate(_rows(trainer))
    names = [name for name in ("input_ids", "attention_mask", "position_ids") if name in batch]
    inputs = {name: batch[name].to(model.device) for name in names}
    # Not model(...): a compiled model would be compiled once more.
    logits_BTV = model.eval().forward(**inputs, use_cache=False).logits[..., : head.tokens]
    labels_BT = next_labels(batch["labels"], IGNORE)
    total = F.cross_entropy(
        logits_BTV.cpu().double().flatten(0, 1), labels_BT.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    return float(total / (labels_BT != IGNORE).sum().clamp(min=1))


def _other_model(folder: Path, what: str) -> RunError:
    return RunError(
        f"{folder} does not hold the model that was trained: {what}. Its checkpoints are kept. Please report this."
    )


def weight_digests(model: Any) -> dict[str, str]:
    """Return the sha256 of a model's weights after rounding to each of `PRECISIONS`.

    Two models of one class have the same digest if all their weights are then equal, bit by bit: those of a training
    that moved nothing, or of seeds that agree.
    """
    digests = {precision: hashlib.sha256() for precision in PRECISIONS}
    for name, weight in sorted(model.named_parameters()):
        for precision, digest in digests.items():
            rounded = weight.detach().to(getattr(torch, precision)).cpu().contiguous()
            digest.update(f"{name} {tuple(rounded.shape)}".encode())
            digest.update(rounded.flatten().view(torch.uint8).numpy())
    return {precision: digest.hexdigest() for precision, digest in digests.items()}
