"""Checks of a ModelObjective on two tiny random models: GPT-2 (learned positions) and Llama (rotary positions).

Legend: B sequences, T positions, U units.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from emobench.core.conformance import Broken, Explained, check
from emobench.objectives import IGNORED, ModelObjective, Objective, UnitLosses
from emobench.testing.derivative_checks import HeldConstants
from emobench.testing.subject import CUT_OFF, CheckedObjective, distance

EXACT = 1e-6
"""Relative error. Weights are float64, but Llama normalises in float32, and padding changes attention sums."""
STEP = 1e-3
DIFFERENCES = 1e-2
"""Relative error. Many losses are float32, as in transformers; a wrong gradient has a much larger error."""
HALF = {torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Relative error of the summed loss. The layers of the models are rounded, too."""
FAMILIES = ("gpt2", "llama")


@check(
    "Return UnitLosses of two vectors; override `total_weight(batch)` where units are not target tokens, so that "
    "it is the sum of the weights, known before the model runs.",
    gate=True,
)
def units(subject: CheckedObjective) -> None:
    """One finite loss and one weight for each unit; the weights add up to total_weight."""
    for family, batch in _cases(subject):
        found = _units(subject.ready, _model(subject, family), batch)
        if not found.losses_U.requires_grad:
            raise Explained(CUT_OFF)
        if not torch.isfinite(found.losses_U).all():
            raise Broken(f"its loss is not finite on a random {family}")
        total, expected = float(found.weights_U.detach().sum()), float(subject.ready.total_weight(batch))
        if abs(total - expected) > 1e-6 * max(abs(expected), 1):
            raise Broken(f"its weights add up to {total:g}, its total_weight is {expected:g}")


@check(
    "Something between logits and loss is cut from autograd (`.item()`, argmax, torch.tensor), or a custom "
    "backward is another function's. Constants are marked by `.detach()` or torch.no_grad().",
)
def gradients(subject: CheckedObjective) -> None:
    """The gradient reaches the parameters, and agrees with finite differences along a random direction."""
    for family in FAMILIES:
        inputs = list(_model(subject, family).parameters())
        total = _total(subject.ready, _model(subject, family), subject.batch)
        if not any(slope.any() for slope in _slopes(total, inputs)):
            raise Broken(f"no gradient reaches the parameters of a random {family}")
    _compare_with_differences(subject)


def _compare_with_differences(subject: CheckedObjective) -> None:
    # Only GPT-2: Llama normalises in float32, which is too coarse for finite differences.
    model, held = _model(subject, "gpt2"), HeldConstants()
    inputs = list(model.parameters())
    generator = torch.Generator().manual_seed(subject.seed)
    along = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in inputs]
    with held:
        total = _total(subject.ready, model, subject.batch)
    expected = float(sum((s * a).sum() for s, a in zip(_slopes(total, inputs), along, strict=True)))
    ends = []
    for step in (STEP, -2 * STEP):  # the second step starts at the end of the first
        _move(inputs, along, step)
        held.rewind()
        with held:
            ends.append(_total(subject.ready, model, subject.batch))
    _move(inputs, along, STEP)
    found = float((ends[0] - ends[1]).detach()) / (2 * STEP)
    error = abs(found - expected) / max(abs(expected), 1e-3 * abs(float(total.detach())))
    if not error < DIFFERENCES:
        raise Broken(f"autograd's gradient and finite differences differ by {error:.1e}")


@check("Pass `attention_mask` to the model, and leave out positions whose next label is -100, before any mean.")
def padding(subject: CheckedObjective) -> None:
    """Columns of padding change nothing, whatever tokens they hold."""
    for family, batch in _cases(subject):
        expected = _total(subject.ready, _model(subject, family), batch)
        for token in (0, subject.vocabulary - 1):
            found = _total(subject.ready, _model(subject, family), padded(batch, 3, token))
            _same("three columns of padding change its loss", found, expected)


@check("The loss uses a sequence's place in the batch.")
def order(subject: CheckedObjective) -> None:
    """Sequences in another order add up to the same."""
    for family, batch in _cases(subject):
        flipped = {name: value.flip(0) for name, value in batch.items()}
        found, expected = (_total(subject.ready, _model(subject, family), b) for b in (flipped, batch))
        _same("with its sequences in another order a batch has another loss", found, expected)


@check("A mean over the batch, or a comparison of its sequences: return losses and weights; the trainer divides.")
def accumulation(subject: CheckedObjective) -> None:
    """The sequences of a batch, one at a time, add up to the whole."""
    for family, batch in _cases(subject):
        model = _model(subject, family)
        rows = [{name: value[i : i + 1] for name, value in batch.items()} for i in range(len(batch["labels"]))]
        found = torch.stack([_total(subject.ready, model, row) for row in rows]).sum()
        _same("the sum over its sequences and the loss of a batch differ", found, _total(subject.ready, model, batch))


@check("Divide by the number of targets with .clamp(min=1), and keep the loss a function of the logits (times 0).")
def empty_batch(subject: CheckedObjective) -> None:
    """A batch without targets has loss 0, gradients of 0 and goes backward."""
    batch = {**subject.batch, "labels": torch.full_like(subject.batch["labels"], IGNORED)}
    for family in FAMILIES:
        model = _model(subject, family)
        total = _total(subject.ready, model, batch)
        if not total.requires_grad:
            raise Broken("a batch without targets has a loss that cannot go backward")
        if float(total.detach()) != 0 or any((slope != 0).any() for slope in _slopes(total, list(model.parameters()))):
            raise Broken("a batch without targets has a loss or gradients")


@check(
    "Random numbers: draw them from a generator that is seeded by the step; or `loss` keeps something between calls.",
    gate=True,
)
def determinism(subject: CheckedObjective) -> None:
    """The same inputs give the same bits."""
    for family in FAMILIES:
        model = _model(subject, family)
        one, two = (_units(subject.ready, model, subject.batch) for _ in range(2))
        if not torch.equal(one.losses_U, two.losses_U):
            raise Broken("the same inputs twice give two losses")


@check("Work on logits.float(): sums over the vocabulary need its precision.")
def precisions(subject: CheckedObjective) -> None:
    """In bfloat16 and float16 its loss is close to float64 with the same weights."""
    for family in FAMILIES:
        for dtype, tolerance in HALF.items():
            model = copy.deepcopy(_model(subject, family)).to(dtype)
            found = _total(subject.ready, model, subject.batch)
            error = distance(found, _total(subject.ready, model.double(), subject.batch))
            if not error < tolerance:
                raise Broken(f"in {str(dtype).removeprefix('torch.')} its loss is off by {error:.1e} on a {family}")


def losses(subject: CheckedObjective, objective: Objective) -> Tensor:
    """Return the losses of the units, for the checks of any objective."""
    return _units(objective, _model(subject, FAMILIES[0]), subject.batch).losses_U.detach()


def padded(batch: Mapping[str, Tensor], columns: int, token: int = 0) -> dict[str, Tensor]:
    """Return a batch with more columns on the right, as the collator pads."""
    fills = {"labels": IGNORED, "input_ids": token}
    return {
        name: torch.cat([v, torch.full_like(v[:, :1], fills.get(name, 0)).expand(-1, columns, *v.shape[2:])], dim=1)
        for name, v in batch.items()
    }


def _cases(subject: CheckedObjective) -> list[tuple[str, dict[str, Tensor]]]:
    """Return for each family a batch of full rows, and a batch with one shorter row."""
    ragged = {name: value.clone() for name, value in subject.batch.items()}
    ragged["labels"][-1, -2:] = IGNORED
    ragged["attention_mask"][-1, -2:] = 0
    return [(family, batch) for family in FAMILIES for batch in (subject.batch, ragged)]


def _units(objective: Objective, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
    assert isinstance(objective, ModelObjective)
    found = objective.loss(model.forward, batch)  # a bound method, as in training
    if not isinstance(found, UnitLosses):
        raise Broken(f"its loss is a {type(found).__name__}; expected emobench.UnitLosses(losses, weights)")
    shapes = [tuple(value.shape) for value in (found.losses_U, found.weights_U)]
    if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
        raise Broken(f"its losses and weights have shapes {shapes[0]} and {shapes[1]}; expected one vector each")
    return found


def _total(objective: Objective, model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    found = _units(objective, model, batch)
    return (found.losses_U * found.weights_U).sum()


def _same(words: str, found: Tensor, expected: Tensor) -> None:
    error = distance(found.detach(), expected.detach())
    if not error < EXACT:
        raise Broken(f"{words} by {error:.1e}")


def _slopes(total: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(inputs, found, strict=True)]


def _move(inputs: list[Tensor], along: list[Tensor], step: float) -> None:
    with torch.no_grad():
        for value, direction in zip(inputs, along, strict=True):
            value.add_(direction, alpha=step)


def _model(subject: CheckedObjective, family: str) -> Any:
    return _random_model(family, subject.vocabulary, subject.width, subject.tokens, subject.seed)


@cache
def _random_model(family: str, vocabulary: int, width: int, positions: int, seed: int) -> Any:
    """Return a causal LM of two layers with random weights, in float64 and training mode, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    width = 4 * -(-width // 4)
    shape: dict[str, Any] = {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 0}
    off: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if family == "gpt2":
            shape |= {"n_embd": width, "n_layer": 2, "n_head": 2, "n_positions": positions + 8}
            return GPT2LMHeadModel(GPT2Config(**shape, **off)).double().train()
        shape |= {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2}
        shape |= {"num_attention_heads": 2, "max_position_embeddings": positions + 8}
        return LlamaForCausalLM(LlamaConfig(**shape)).double().train()


MODEL_CHECKS = (units, determinism, accumulation, order, gradients, padding, empty_batch, precisions)
