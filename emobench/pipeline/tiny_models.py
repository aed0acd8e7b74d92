"""The tiny models: 3-layer GPT-2s that learn the oracle language by MLE, made at first use."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.models.catalog import ModelSource
from emobench.models.quiet import quiet_libraries
from emobench.pipeline.request import Request

if TYPE_CHECKING:
    from emobench.pipeline.plan import PlannedTraining

SEED = 0


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """What a tiny model is made from, all in all."""

    name: str
    recipe: str
    """How it is pre-trained, and on what."""
    context: int
    width: int = 96
    layers: int = 3
    heads: int = 4
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further values of its configuration."""

    def parameters(self, rows: int) -> int:
        """Return how many weights it has, its head of `rows` rows (tied to the embedding) counted once."""
        block = 12 * self.width**2 + 13 * self.width  # attention, feed-forward, two layer norms
        return self.width * (rows + self.context) + self.layers * block + 2 * self.width

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies it before its pre-training."""
        sizes = {name: getattr(self, name) for name in ("context", "width", "layers", "heads")}
        return {"architecture": "gpt2", **sizes, "seed": SEED, **self.more}


TINY_MODELS = {
    model.name: model
    for model in (
        TinyModel(name="tiny-oracle", recipe="oracle-pretrain", context=64),
        # GPT-2's weights of 0.02 are for its width. With weights of about 1 / sqrt(96), attention finds labels in the
        # context within 200 steps; with 0.02, not in 470.
        TinyModel(name="tiny-icl", recipe="oracle-pretrain-episodes", context=128, more={"initializer_range": 0.1}),
    )
}


def write_untrained(tiny: TinyModel, folder: Path) -> None:
    """Write the untrained model and its tokenizer as a Hugging Face folder."""
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    from emobench.data.oracle import oracle_tokenizer

    tokenizer = oracle_tokenizer()
    eos_id = len(tokenizer) - 1
    set_seed(SEED)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=tiny.context,
        n_embd=tiny.width,
        n_layer=tiny.layers,
        n_head=tiny.heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, in one kernel
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=eos_id,
        eos_token_id=eos_id,
        **tiny.more,
    )
    with quiet_libraries():
        GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def pretraining(tiny: TinyModel, request: Request) -> PlannedTraining:
    """Return the training that makes a tiny model; its settings are the project's, not the request's."""
    from emobench.data.texts import load_texts
    from emobench.pipeline.base_model import BaseModel
    from emobench.pipeline.plan import PlannedTraining, training_facts
    from emobench.registry import find_recipe, load_objective

    recipe, objective = find_recipe(tiny.recipe), load_objective("mle")
    texts = {s: load_texts(recipe.corpus, s, data_dirs=(), offline=True) for s in ("train", "validation")}
    plain = dataclasses.replace(request, dtype="float32", from_scratch=False, settings={}, trackers=())
    model = BaseModel(ModelSource(tiny.name, tiny.name, None, "made"), tiny.facts, plain)
    return PlannedTraining(
        model, objective, recipe, SEED, texts, training_facts(plain, model, objective, recipe, SEED, texts)
    )
