"""The tiny models: small GPT-2s, made at first use by MLE, on the oracle language or (tiny-lm) on English texts.

Its weights identify the result, as of any other model: processors with other instructions round otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.versions import minor_versions
from emobench.data.bpe import READ, train_bpe
from emobench.data.oracle.language import oracle_tokenizer
from emobench.data.rows import local_file
from emobench.data.texts import Texts, load_texts
from emobench.models.quiet import quiet_libraries
from emobench.registry import find_recipe

THREADS = 1
"""Of a pre-training on a CPU, whatever there are: with others, sums have another order, and the weights differ."""


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
    symbols: int | None = None
    """Of a tokenizer that is trained on the corpus, which is then read from the data folders; None: the oracle's own
    symbols."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further values of its configuration."""
    seed: int = 0
    """Of its first weights, and of its pre-training."""

    def parameters(self, rows: int) -> int:
        """Return how many weights it has, its head of `rows` rows (tied to the embedding) counted once."""
        block = 12 * self.width**2 + 13 * self.width  # attention, feed-forward, two layer norms
        return self.width * (rows + self.context) + self.layers * block + 2 * self.width

    @property
    def facts(self) -> dict[str, Any]:
        """What it is made from, before its pre-training; the seed is the training's."""
        sizes = {name: getattr(self, name) for name in ("context", "width", "layers", "heads")}
        facts = {"architecture": "gpt2", **sizes, "threads": THREADS, **self.more}
        if self.symbols is not None:
            # With the training texts, which a training's facts hold, these identify the tokenizer.
            facts["tokenizer"] = {"symbols": self.symbols, "characters": READ, **minor_versions("tokenizers")}
        return facts


TINY_MODELS = {
    model.name: model
    for model in (
        TinyModel(name="tiny-oracle", recipe="oracle-pretrain", context=64),
        # GPT-2's weights of 0.02 are for its width. With weights of about 1 / sqrt(96), attention finds labels in the
        # context within 200 steps; with 0.02, not in 470.
        TinyModel(name="tiny-icl", recipe="oracle-pretrain-episodes", context=128, more={"initializer_range": 0.1}),
        TinyModel(name="tiny-lm", recipe="tiny-lm-pretrain", context=256, width=128, layers=4, symbols=4096),
    )
}


def write_untrained(tiny: TinyModel, folder: Path, tokenizer: Any = None) -> None:
    """Write the untrained model and its tokenizer, the oracle's unless given, as a Hugging Face folder.

    The tokenizer's last symbol is EOS.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    if tokenizer is None:
        tokenizer = oracle_tokenizer()
    eos_id = len(tokenizer) - 1
    set_seed(tiny.seed)
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


def tokenizer_of(tiny: TinyModel, data_dirs: Sequence[Path]) -> Any:
    """Return a tiny model's tokenizer, made without writing anything."""
    if tiny.symbols is None:
        return oracle_tokenizer()
    return train_bpe(texts_of(tiny, find_recipe(tiny.recipe).corpus, "train", data_dirs).texts, tiny.symbols)


def leave_out_version(folder: Path) -> None:
    """Remove the version of transformers from a model's configuration: equal weights have one digest then."""
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        config.pop("transformers_version", None)
        (folder / name).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


@contextmanager
def fixed_threads() -> Iterator[None]:
    """Compute with `THREADS` threads meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def texts_of(tiny: TinyModel, corpus: str, split: str, data_dirs: Sequence[Path]) -> Texts:
    """Return what a tiny model is pre-trained on: the oracle language, or English from the data folders."""
    if tiny.symbols is None:
        return load_texts(corpus, split, data_dirs=(), offline=True)
    if local_file(corpus, split, data_dirs) is None:
        # WebText is a download of 0.7 GB, which a tiny model is not worth.
        raise DataError(
            f"{tiny.name} is pre-trained on the {corpus} of the data folders, and there is no {corpus}.{split}.jsonl; "
            f"add --data-dir DIR, a folder with {corpus}.train.jsonl and {corpus}.validation.jsonl, or give another "
            "model, such as --model FOLDER."
        )
    return load_texts(corpus, split, data_dirs=data_dirs, offline=True)
