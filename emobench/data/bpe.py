"""Tokenizers that emobench makes: a byte-level BPE, like GPT-2's, that is trained on given texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
READ = 4_000_000
"""Number of characters to train on, from the first text on. More would change few symbols."""


def train_bpe(texts: Sequence[str], symbols: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of at most `symbols` symbols, the same for the same texts.

    The last symbol is BOS, EOS and padding. No symbol is added around a text. Any text can be encoded, byte by byte.
    """
    starts = takewhile(lambda start: start < READ, accumulate(map(len, texts), initial=0))
    return _train(tuple(text for text, _ in zip(texts, starts, strict=False)), symbols)


@functools.lru_cache(maxsize=2)
def _train(texts: tuple[str, ...], symbols: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=symbols - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return fast_tokenizer(tokenizer, END)


def fast_tokenizer(tokenizer: Tokenizer, end: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer for transformers, in which one symbol is BOS, EOS and padding."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end, clean_up_tokenization_spaces=False
    )
