"""How to train: one frozen dataclass; a YAML file in `recipes/` is its values, `--set recipe.x=y` overrides them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from emobench.config import check_ranges, ranged
from emobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters (peft). The defaults are those of the official EMO code for LLaMA."""

    rank: int = ranged(32, low=1, high=8192)
    alpha: int = ranged(16, low=1, high=100_000)
    dropout: float = ranged(0.05, low=0, high=0.99)
    targets: tuple[str, ...] = ()
    """Module names to adapt; none means peft's own choice for the architecture."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every value that determines a training besides model, objective and seed.

    The defaults are section 4.1.1 of the EMO paper with the settings of its code (PAPER.md, "Language modelling").
    """

    name: str
    corpus: str
    epochs: float = ranged(3, above=0, high=100_000)
    batch: int = ranged(32, low=1, high=1_000_000)
    """Sequences per optimizer step, over all devices and accumulated micro-batches."""
    accumulation: int = ranged(1, low=1, high=1_000_000)
    """Micro-batches per optimizer step and device; changes memory and speed, not the gradient."""
    learning_rate: float = ranged(5e-5, above=0, high=100)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = ranged(0.0, low=0, high=1)
    """Share of the steps in which the learning rate grows from 0."""
    weight_decay: float = ranged(0.0, low=0, high=1000)
    clip: float = ranged(0.0, low=0, high=1_000_000)
    """Largest gradient norm; 0 does not clip."""
    max_length: int = ranged(256, low=2, high=2**20)
    """Tokens of a block, or the most tokens of a row."""
    packing: Literal["blocks", "rows"] = "blocks"
    """blocks: texts concatenated and cut into blocks of max_length; rows: one text per row."""
    ends: bool = False
    """blocks: end each text with the end-of-text token; rows: put one before and one after each text."""
    mask_until: str = ""
    """rows: no loss on the text up to and including this marker, such as "### Response:"; empty masks nothing."""
    max_tokens: int | None = ranged(None, low=2, high=10**14)
    """Train on this many tokens at most."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    """What the forward pass computes in; half precisions keep the master weights as they were loaded. auto, which a
    plan resolves: as the EMO paper's code on a GPU, float16 with LoRA and bfloat16 without; float32 elsewhere."""
    lora: bool | Lora = False
    select: Literal["mle", "objective", "last"] = "mle"
    """The checkpoint that is kept: of lowest validation MLE, of lowest own loss (the official code), or the last."""
    cost_rows: int = ranged(0, low=0, high=10**7)
    """Finished cost rows of this many of the most frequent target tokens are kept: exact, and faster on a GPU; each
    takes 2 bytes a token of the vocabulary (4 in float32)."""
    compile: bool = False
    """Compile the model with torch.compile; the loss is one operator in it."""
    engine: Literal["chunked", "torch", "triton", "reference"] = "chunked"
    """chunked: Triton kernels on a GPU, PyTorch elsewhere; reference: autograd on whole logits, large and slow."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.max_tokens is not None and self.max_tokens < self.max_length:
            raise ConfigError(f"`max_tokens` is {self.max_tokens}; expected at least max_length, {self.max_length}.")
        if self.packing == "blocks" and self.mask_until:
            raise ConfigError("`mask_until` belongs to packing=rows; set packing to rows, or drop it.")

    @property
    def adapters(self) -> Lora | None:
        """The LoRA settings in force, None without."""
        return Lora() if self.lora is True else (self.lora or None)

    def micro_batch(self, processes: int) -> int:
        """Return the sequences of one forward pass on one device."""
        micro, rest = divmod(self.batch, self.accumulation * processes)
        if rest or micro == 0:
            raise ConfigError(
                f"`batch` is {self.batch}; expected a multiple of accumulation x processes, "
                f"{self.accumulation} x {processes}, such as {max(1, micro) * self.accumulation * processes}."
            )
        return micro


def total_steps(recipe: Recipe, rows: int, processes: int) -> int:
    """Return the optimizer steps of a training on `rows` rows, by the Trainer's own rule."""
    batches = math.ceil(math.ceil(rows / recipe.micro_batch(processes)) / processes)
    return math.ceil(recipe.epochs * max(math.ceil(batches / recipe.accumulation), 1))
