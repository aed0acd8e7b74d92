"""Tokenizers of words for the folders of tiny models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def save_tokenizer() -> Callable[[Path, int], None]:
    """Save a tokenizer of `size` ids: w3 is token 3, and the last one is BOS and EOS."""

    def save(folder: Path, size: int) -> None:
        vocabulary = {**{f"w{i}": i for i in range(size - 1)}, "</s>": size - 1}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="w0"))
        tokenizer.pre_tokenizer = Whitespace()
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="</s>").save_pretrained(folder)

    return save
