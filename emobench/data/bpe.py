"""A tokenizer of one's own: byte-level BPE, as GPT-2's is, trained on the texts at hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
READ = 4_000_000
"""Characters that are read of the texts, from the first one on: more changes few of some thousand symbols."""


def train_bpe(texts: Sequence[str], symbols: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of at most `symbols` symbols, the same for the same texts.

    The last symbol begins, ends and pads; no symbol is added around a text. Any text can be read, byte by byte.
    """
    return _trained(tuple(_first(texts)), symbols)


@functools.lru_cache(maxsize=2)
def _trained(texts: tuple[str, ...], symbols: int) -> PreTrainedTokenizerFast:
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
    """Return the first texts, up to so many characters, at least one."""
    found, read = [], 0
    for text in texts:
        if read >= READ:
            break
        found.append(text)
        read += len(text)
    return found
