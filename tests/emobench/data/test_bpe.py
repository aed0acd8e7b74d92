"""A tokenizer trained on texts at hand: any text comes back, and no symbol is added."""

from __future__ import annotations

import pytest

from emobench.data import bpe
from emobench.data.bpe import END, train_bpe

TEXTS = [f"the cat {i} sat on the mat, and the rat ran {i % 3} times" for i in range(50)]


def test_any_text_comes_back() -> None:
    tokenizer = train_bpe(TEXTS, 300)
    for text in ("the cat sat", "Ünïcödé 漢字 \n\t ", " <|", ""):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(tokenizer) == 300
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 299
    assert tokenizer.convert_ids_to_tokens(299) == END
    assert len(tokenizer("the cat")["input_ids"]) < len("the cat")  # it has learned


def test_only_the_first_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "READ", len(TEXTS[0]) + 1)
    assert train_bpe(TEXTS, 280).get_vocab() == train_bpe(TEXTS[:2], 280).get_vocab()
    assert train_bpe(TEXTS, 280).get_vocab() != train_bpe(TEXTS[1:], 280).get_vocab()
