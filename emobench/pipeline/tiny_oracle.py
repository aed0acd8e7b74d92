"""The tiny model: a 3-layer GPT-2 that learns the source domain of the oracle language by MLE, made at first use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from emobench.models.catalog import ModelSource
from emobench.models.quiet import quiet_libraries
from emobench.pipeline.request import Request

if TYPE_CHECKING:
    from emobench.pipeline.plan import PlannedTraining

CONTEXT, WIDTH, LAYERS, HEADS = 64, 96, 3, 4
NAME, RECIPE = "tiny-oracle", "oracle-pretrain"
SEED = 0


def parameters(rows: int) -> int:
    """Return how many weights the model has, its head of `rows` rows (tied to the embedding) counted once."""
    block = 12 * WIDTH**2 + 13 * WIDTH  # attention, feed-forward, two layer norms
    return WIDTH * (rows + CONTEXT) + LAYERS * block + 2 * WIDTH


def write_untrained(folder: Path) -> None:
    """Write the untrained model and its tokenizer as a Hugging Face folder."""
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    from emobench.data.oracle import oracle_tokenizer

    tokenizer = oracle_tokenizer()
    eos_id = len(tokenizer) - 1
    set_seed(SEED)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=CONTEXT,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, in one kernel
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=eos_id,
        eos_token_id=eos_id,
    )
    with quiet_libraries():
        GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def pretraining(request: Request) -> PlannedTraining:
    """Return the training that makes the tiny model; its settings are the project's, not the request's."""
    from emobench.data.texts import load_texts
    from emobench.pipeline.base_model import BaseModel
    from emobench.pipeline.plan import PlannedTraining, training_facts
    from emobench.registry import find_recipe, load_objective

    recipe, objective = find_recipe(RECIPE), load_objective("mle")
    texts = {s: load_texts(recipe.corpus, s, data_dirs=(), offline=True) for s in ("train", "validation")}
    plain = dataclasses.replace(request, dtype="float32", from_scratch=False, settings={}, trackers=())
    facts = {"architecture": "gpt2", "context": CONTEXT, "width": WIDTH, "layers": LAYERS, "heads": HEADS, "seed": SEED}
    model = BaseModel(ModelSource(NAME, NAME, None, "made"), facts, plain)
    return PlannedTraining(
        model, objective, recipe, SEED, texts, training_facts(plain, model, objective, recipe, SEED, texts)
    )
