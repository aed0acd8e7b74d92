"""Train a byte-level BPE tokenizer, like GPT-2's, on given texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
READ = 4_000_000
"""Number of characters to train on, from the first text on. More would change few symbols."""


def train_bpe(texts: Sequence[str], symbols: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of at most `symbols` symbols, the same for the same texts.

    The last symbol is BOS, EOS and padding. No symbol is added around a text. Any text can be encoded, byte by byte.
    """
    return _train(tuple(_first(texts)), symbols)


@functools.lru_cache(maxsize=2)
def _train(texts: tuple[str, ...], symbols: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=symbols - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def _first(texts: Sequence[str]) -> list[str]:
    """Return the first texts, with about READ characters, at least one text."""
    first, read = [], 0
    for text in texts:
        if read >= READ:
            break
        first.append(text)
        read += len(text)
    return first
