"""What a training or an evaluation may take: operations, memory and time, from sizes alone. Plain arithmetic, no model.

Rough by design, within a factor of two or three: attention over the prefix (about 2 % of a 7B model's operations at 600
tokens), the cost matrix product, padding and loading are left out; so is validation on texts that are not here.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emobench.core.settings import PRETRAINED
from emobench.models.catalog import ModelFacts
from emobench.models.device import MPS, machine_memory
from emobench.training.recipe import Recipe, total_steps

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
ACTIVATIONS = 34
"""Bytes that a layer keeps for the backward pass, by token and unit of width, in half precision (Korthikanti et al.,
*Reducing Activation Recomputation in Large Transformer Models*, 2022, Eq. 2, without attention matrices)."""
HEAD_CHUNK = 1 << 30
"""Bytes of logits, cost rows and buffers that are held at once, at most, about."""
SCORED = 4096
"""Tokens of a batch that is scored, about."""
ADAPTED = 2
"""Square matrices of a layer that LoRA adapts by default: queries and values."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What computes: operations a second of its matrix products, by precision, and the share taken to be reached."""

    name: str
    rate: Callable[[str], float]
    share: float
    """An assumption, as it was not measured."""
    memory: float
    """Bytes; who needs more is warned."""
    place: str
    """What has this memory."""
    step: float = 0.025
    """Seconds that a step of sampling takes at least: many small kernels, one after the other. An assumption."""


_H100 = {"float32": 67e12, "bfloat16": 989e12, "float16": 989e12, "float64": 67e12}
H100 = Machine(
    name="one H100-class GPU (data sheet)", rate=_H100.__getitem__, share=0.4, memory=80e9, place="one such GPU"
)


def this_machine(device: str) -> Machine:
    """Return the machine that runs this process, whose rates are timed when they are asked for."""
    if device.startswith("cuda"):
        import torch

        name, place, step = "this GPU", "this GPU", Machine.step
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        name, place, step = "this CPU", "this machine", 0.01
        memory = machine_memory()
    rate = functools.partial(_timed, "cpu" if device == MPS else device)
    return Machine(name=name, rate=rate, share=0.5, memory=memory, place=place, step=step)


PRODUCTS, MOST_PRODUCTS, LOOK = 5, 50, 0.5
"""Products that are timed: at least, and at most; between these, as many as take `LOOK` seconds."""


@functools.cache
def _timed(device: str, precision: str) -> float:
    """Return operations a second of a matrix product: the best of several, as other programs only take time away.

    A look at what the device can do, not a benchmark.
    """
    import torch

    size = 4096 if device.startswith("cuda") else 768
    a = torch.randn(size, size, device=device, dtype=getattr(torch, precision))
    (a @ a).sum().item()  # loads libraries
    times: list[float] = []
    while len(times) < PRODUCTS or (sum(times) < LOOK and len(times) < MOST_PRODUCTS):
        began = time.perf_counter()
        (a @ a).sum().item()
        times.append(time.perf_counter() - began)
    return 2 * size**3 / min(times)


FORWARD = 2
"""Operations of a forward pass, by parameter and token."""


def training_operations(size: ModelFacts, tokens: int, recipe: Recipe) -> float:
    """Return 6 N T: 2 N T forward and twice as many backward; with LoRA 4 N T, as frozen weights get no gradient.

    Gradient checkpointing adds a second forward pass, 2 N T.
    """
    return FORWARD * _passes(recipe) * size.parameters * tokens


def scoring_operations(size: ModelFacts, tokens: int) -> float:
    """Return 2 N T, a forward pass."""
    return FORWARD * size.parameters * tokens


def _passes(recipe: Recipe) -> int:
    """Return how many forward passes take as long as a step of a training."""
    return 3 - (recipe.adapters is not None) + recipe.gradient_checkpointing


def validated_tokens(recipe: Recipe, tokens: int) -> int:
    """Return the tokens that are read by all validations of a training, with `tokens` in the split."""
    return tokens * math.ceil(recipe.epochs)


def long_validation(recipe: Recipe, trained: int, validated: int) -> str | None:
    """Return a note if the validations of a training take longer than its steps, else None.

    `trained` and `validated` are the target tokens of all epochs.
    """
    if validated <= _passes(recipe) * trained:
        return None
    return (
        f"Recipe {recipe.name}: validation takes longer than the training, because it reads {validated:,} tokens, and "
        f"only {trained:,} are trained on. To read fewer: --set recipe.validation_tokens=N."
    )


def sampling_seconds(machine: Machine, size: ModelFacts, texts: int, length: int, batch: int, precision: str) -> float:
    """Return the time of sampling texts of `length` tokens at most, `batch` at a time, each token in a step."""
    computed = scoring_operations(size, texts * length) / (machine.rate(precision) * machine.share)
    return computed + -(-texts // batch) * length * machine.step


def computes_in(recipe: Recipe) -> str:
    """Return the precision of a training's matrix products: that of autocast, else that of the weights."""
    return recipe.weight_dtype if recipe.precision == "float32" else recipe.precision


def training_memory(size: ModelFacts, recipe: Recipe, *, costs: bool, copies: Sequence[str] = ()) -> float:
    """Return bytes at most: weights, gradients and Adam's two moments, activations, a chunk of logits.

    `costs`: the objective keeps a cost embedding besides. `copies`: those of the model (`Objective.copies`). Where
    autocast computes in another precision than that of the weights, a copy of these stays for the backward pass.
    """
    dtype, product = recipe.weight_dtype, computes_in(recipe)
    lora, compute = recipe.adapters, BYTES[product]
    whole = moving = held = size.parameters * BYTES[dtype]
    trained = 3 * held
    if lora is not None:  # the adapters, and their gradients and moments, in float32
        moving = 4 * size.layers * ADAPTED * lora.rank * 2 * size.width
        trained = 4 * moving
    for copy in copies:
        held += whole if copy == PRETRAINED else moving  # a snapshot has the weights that are trained
    if product != dtype:
        held += size.parameters * compute
    tokens = recipe.micro_batch(1) * recipe.max_length
    # Gradient checkpointing keeps the input of each layer, 2 bytes in half precision, and computes one layer at a time.
    kept = ACTIVATIONS * size.layers
    if recipe.gradient_checkpointing:
        kept = 2 * size.layers + ACTIVATIONS
    activations = tokens * size.width * kept * compute / 2
    return held + trained + activations + costs * size.vocabulary * size.width * compute + _head(size, tokens)


def scoring_memory(size: ModelFacts, dtype: str, *, sampled: int = 0) -> float:
    """Return bytes: the weights, a batch, and the keys and values of `sampled` tokens."""
    held = 2 * sampled * size.layers * size.width * BYTES[dtype]
    return size.parameters * BYTES[dtype] + _head(size, SCORED) + held


def _head(size: ModelFacts, tokens: int) -> int:
    """Return bytes of two rows of float32 as wide as the vocabulary for each token, as many as a chunk holds."""
    return min(HEAD_CHUNK, 8 * tokens * size.vocabulary)


def tokens_and_steps(recipe: Recipe, tokens: int, texts: int | None) -> tuple[int, int | None]:
    """Return the target tokens, at most, and steps of training on a corpus of `tokens` tokens in `texts` texts.

    The steps are None if each row is a text, and their number is not known.
    """
    used = min(tokens, recipe.max_tokens or tokens)
    if recipe.packing == "rows":
        steps = None
        if texts is not None:
            steps = total_steps(recipe, max(round(texts * used / max(tokens, 1)), 1))
        return int(used * recipe.epochs), steps
    rows = max(used // recipe.max_length, 1)
    return int(rows * (recipe.max_length - 1) * recipe.epochs), total_steps(recipe, rows)


def duration(seconds: float) -> str:
    """Return a rough time, such as "1.5 h"."""
    if 0 < seconds < 1:
        return "under 1 s"
    for unit, size in (("years", 365.25 * 86400), ("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * size if unit.endswith("s") else size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def gigabytes(count: float) -> str:
    """Return bytes in GB, one digit more below 1, "under 0.01 GB" below 10 MB."""
    if count < 1e7:
        return "under 0.01 GB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e9:.2f} GB"
