"""Checks of a ModelObjective on two tiny random models: GPT-2 (learned positions) and Llama (rotary positions).

Legend: U units.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from emobench.core.conformance import Broken, Explained, check
from emobench.objectives import IGNORED, Objective, UnitLosses
from emobench.testing.subject import CUT_OFF, CheckedObjective, distance
from emobench.testing.token_checks import central_difference

EXACT = 1e-6
"""Relative error. Weights are float64, but Llama normalises in float32, and padding changes attention sums."""
STEP = 1e-3
DIFFERENCES = 1e-2
"""Relative error. Many losses are float32, as in transformers; a wrong gradient has a much larger error."""
HALF = {torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Relative error of the summed loss. The layers of the models are rounded, too."""
FAMILIES = ("gpt2", "llama")


class _Case:
    """An objective on a random model and a batch."""

    def __init__(self, subject: CheckedObjective, family: str, batch: Mapping[str, Tensor]) -> None:
        self.objective, self.family, self.batch = subject.ready, family, batch
        self.model = _random_model(family, subject.vocabulary, subject.width, subject.tokens, subject.seed)

    def units(self, **changes: Any) -> UnitLosses:
        """Return the losses of the units, with another `objective`, `model` or `batch` if given."""
        given = {"objective": self.objective, "model": self.model, "batch": self.batch, **changes}
        losses = given["objective"].loss(given["model"].forward, given["batch"])  # a bound method, as in training
        if not isinstance(losses, UnitLosses):
            raise Broken(f"its loss is a {type(losses).__name__}; expected emobench.UnitLosses(losses, weights)")
        shapes = [tuple(value.shape) for value in (losses.losses_U, losses.weights_U)]
        if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
            raise Broken(f"its losses and weights have shapes {shapes[0]} and {shapes[1]}; expected one vector each")
        return losses

    def total(self, **changes: Any) -> Tensor:
        units = self.units(**changes)
        return (units.losses_U * units.weights_U).sum()

    def slopes(self, total: Tensor) -> list[Tensor]:
        """Return the gradient of each parameter; 0 if the total does not depend on it."""
        inputs = list(self.model.parameters())
        return list(torch.autograd.grad(total, inputs, materialize_grads=True))

    def same(self, words: str, total: Tensor) -> None:
        """Raise Broken unless this is the case's own total."""
        error = distance(total, self.total())
        if not error < EXACT:
            raise Broken(f"{words} by {error:.1e}")


def _whole(subject: CheckedObjective) -> list[_Case]:
    return [_Case(subject, family, subject.batch) for family in FAMILIES]


def _cases(subject: CheckedObjective) -> list[_Case]:
    """Return for each family a batch of full rows, and a batch with one shorter row."""
    ragged = {name: value.clone() for name, value in subject.batch.items()}
    ragged["labels"][-1, -2:] = IGNORED
    ragged["attention_mask"][-1, -2:] = 0
    return _whole(subject) + [_Case(subject, family, ragged) for family in FAMILIES]


@check(
    "Return UnitLosses of two vectors; override `total_weight(batch)` where units are not target tokens, so that "
    "it is the sum of the weights, known before the model runs.",
    gate=True,
)
def units(subject: CheckedObjective) -> None:
    """One finite loss and one weight for each unit; the weights add up to total_weight."""
    for case in _cases(subject):
        units = case.units()
        if not units.losses_U.requires_grad:
            raise Explained(CUT_OFF)
        if not torch.isfinite(units.losses_U).all():
            raise Broken(f"its loss is not finite on a random {case.family}")
        total = float(units.weights_U.detach().sum())
        expected = float(subject.ready.total_weight(case.batch))
        if abs(total - expected) > 1e-6 * max(abs(expected), 1):
            raise Broken(f"its weights add up to {total:g}, its total_weight is {expected:g}")


@check(
    "Something between logits and loss is cut from autograd (`.item()`, argmax, torch.tensor), or a custom "
    "backward is another function's. Constants are marked by `.detach()` or torch.no_grad().",
)
def gradients(subject: CheckedObjective) -> None:
    """The gradient reaches the parameters, and agrees with finite differences along a random direction."""
    for case in _whole(subject):
        if not any(slope.any() for slope in case.slopes(case.total())):
            raise Broken(f"no gradient reaches the parameters of a random {case.family}")
    # Only GPT-2: Llama normalises in float32, which is too coarse for finite differences.
    case = _whole(subject)[0]
    inputs = list(case.model.parameters())
    generator = torch.Generator().manual_seed(subject.seed)
    along = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in inputs]
    total = case.total()
    expected = sum(float((slope * a).sum()) for slope, a in zip(case.slopes(total), along, strict=True))

    def total_at(step: float) -> Tensor:
        moved = copy.deepcopy(case.model)
        for value, direction in zip(moved.parameters(), along, strict=True):
            value.data.add_(direction, alpha=step)
        return case.total(model=moved)

    numeric = float(central_difference(total_at, STEP))
    error = abs(numeric - expected) / max(abs(expected), 1e-3 * abs(float(total.detach())))
    if not error < DIFFERENCES:
        raise Broken(f"autograd's gradient and finite differences differ by {error:.1e}")


@check("Pass `attention_mask` to the model, and leave out positions whose next label is -100, before any mean.")
def padding(subject: CheckedObjective) -> None:
    """Columns of padding change nothing, whatever tokens they hold."""
    for case in _cases(subject):
        for token in (0, subject.vocabulary - 1):
            case.same("three columns of padding change its loss", case.total(batch=padded(case.batch, 3, token)))


@check("The loss uses a sequence's place in the batch.")
def order(subject: CheckedObjective) -> None:
    """Sequences in another order add up to the same."""
    for case in _cases(subject):
        flipped = {name: value.flip(0) for name, value in case.batch.items()}
        case.same("with its sequences in another order a batch has another loss", case.total(batch=flipped))


@check("A mean over the batch, or a comparison of its sequences: return losses and weights; the trainer divides.")
def accumulation(subject: CheckedObjective) -> None:
    """The sequences of a batch, one at a time, add up to the whole."""
    for case in _cases(subject):
        totals = []
        for row in range(len(case.batch["labels"])):
            totals.append(case.total(batch={name: value[row : row + 1] for name, value in case.batch.items()}))
        case.same("the sum over its sequences and the loss of a batch differ", torch.stack(totals).sum())


@check("Divide by the number of targets with .clamp(min=1), and keep the loss a function of the logits (times 0).")
def empty_batch(subject: CheckedObjective) -> None:
    """A batch without targets has loss 0, gradients of 0 and goes backward."""
    batch = {**subject.batch, "labels": torch.full_like(subject.batch["labels"], IGNORED)}
    for case in _whole(subject):
        total = case.total(batch=batch)
        if not total.requires_grad:
            raise Broken("a batch without targets has a loss that cannot go backward")
        if float(total.detach()) != 0 or any((slope != 0).any() for slope in case.slopes(total)):
            raise Broken("a batch without targets has a loss or gradients")


@check(
    "Random numbers: draw them from a generator that is seeded by the step; or `loss` keeps something between calls.",
    gate=True,
)
def determinism(subject: CheckedObjective) -> None:
    """The same inputs give the same bits."""
    for case in _whole(subject):
        if not torch.equal(case.units().losses_U, case.units().losses_U):
            raise Broken("the same inputs twice give two losses")


@check("Work on logits.float(): sums over the vocabulary need its precision.")
def precisions(subject: CheckedObjective) -> None:
    """In bfloat16 and float16 its loss is close to float64 with the same weights."""
    for case in _whole(subject):
        for dtype, tolerance in HALF.items():
            model = copy.deepcopy(case.model).to(dtype)
            error = distance(case.total(model=model), case.total(model=model.double()))
            if not error < tolerance:
                raise Broken(
                    f"in {str(dtype).removeprefix('torch.')} its loss is off by {error:.1e} on a {case.family}"
                )


def losses(subject: CheckedObjective, objective: Objective) -> Tensor:
    """Return the losses of the units, for the checks of any objective."""
    return _whole(subject)[0].units(objective=objective).losses_U.detach()


def padded(batch: Mapping[str, Tensor], columns: int, token: int = 0) -> dict[str, Tensor]:
    """Return a batch with more columns on the right, as the collator pads."""
    fills = {"labels": IGNORED, "input_ids": token}
    wide = {}
    for name, value in batch.items():
        shape = (len(value), columns, *value.shape[2:])
        wide[name] = torch.cat([value, value.new_full(shape, fills.get(name, 0))], dim=1)
    return wide


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
        shape |= {
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": positions + 8,
        }
        return LlamaForCausalLM(LlamaConfig(**shape)).double().train()


MODEL_CHECKS = (units, determinism, accumulation, order, gradients, padding, empty_batch, precisions)
