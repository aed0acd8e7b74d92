"""Blocks equal those of transformers' run_clm.py, rebuilt here with `datasets.map`."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import DataError
from emobench.data import bpe
from emobench.data.bpe import END, train_bpe
from emobench.data.packing import Numbers, RowCollator, pack_blocks, pack_rows

WORDS = 50
BOS, EOS = 50, 51


def make_tokenizer(*, adds_bos: bool = False, special: bool = True) -> Any:
    """Word w3 is token 3. With `adds_bos`, BOS leads every text, as in OPT and LLaMA."""
    vocabulary = {**{f"w{i}": i for i in range(WORDS)}, "<s>": BOS, "</s>": EOS}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    if adds_bos:
        tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokens = {"bos_token": "<s>", "eos_token": "</s>"} if special else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 0 to 12 words; about one in 13 is blank."""
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in rng.integers(1, WORDS, rng.integers(0, 13))) for _ in range(count)]


def run_clm(texts: list[str], tokenizer: Any, block_size: int) -> list[list[int]]:
    """The steps of transformers' examples/pytorch/language-modeling/run_clm.py, on its own libraries."""
    disable_progress_bars()

    def group_texts(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {k: list(chain(*examples[k])) for k in examples}
        total = len(joined["input_ids"]) // block_size * block_size
        return {k: [t[i : i + block_size] for i in range(0, total, block_size)] for k, t in joined.items()}

    dataset = Dataset.from_dict({"text": texts})
    tokenized = dataset.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns=["text"])
    return tokenized.map(group_texts, batched=True, batch_size=1000)["input_ids"][:]


# 2,500 texts: two whole groups of 1,000 and one of 500, each with a remainder.
@pytest.mark.parametrize("adds_bos", [False, True])
def test_blocks_equal_run_clm(adds_bos: bool) -> None:
    tokenizer, texts = make_tokenizer(adds_bos=adds_bos), make_texts(2_500)
    expected = run_clm(texts, tokenizer, 64)
    packed = pack_blocks(texts, tokenizer, length=64)
    assert [row["input_ids"].tolist() for row in packed] == expected
    assert [row["labels"].tolist() for row in packed] == expected
    assert packed.target_count == len(expected) * 63


@pytest.mark.parametrize(("group", "tokens"), [(2, [1, 2] * 3), (6, [1, 2, 3, 1, 2, 3, 1, 2])])
def test_blank_texts_count_for_the_groups(group: int, tokens: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emobench.data.packing.GROUP", group)
    assert pack_blocks(["", "w1 w2 w3"] * 3, make_tokenizer(), length=2).tokens.tolist() == tokens


def test_special_tokens_are_explicit() -> None:
    texts = ["w1 w2", "", "w3"]
    tokenizer = make_tokenizer(adds_bos=True)
    assert pack_blocks(texts, tokenizer, length=6).tokens.tolist() == [BOS, 1, 2, BOS, BOS, 3]
    plain = pack_blocks(texts, make_tokenizer(), length=5, eos_between=True)
    assert plain.tokens.tolist() == [1, 2, EOS, 3, EOS]


def test_block_errors_are_sentences() -> None:
    with pytest.raises(DataError, match=r"No block of 8 tokens fits: .* the 2 texts have 3 tokens in all"):
        pack_blocks(["w1 w2", "w3"], make_tokenizer(), length=8)
    with pytest.raises(DataError, match="No block of 8"):
        pack_blocks([], make_tokenizer(), length=8)
    with pytest.raises(DataError, match="no EOS token"):
        pack_blocks(["w1 w2"], make_tokenizer(special=False), length=2, eos_between=True)


def test_rows_hold_one_text_each_and_only_the_special_tokens_asked_for() -> None:
    tokenizer = make_tokenizer(adds_bos=True)
    texts = ["w1 w2 w3", " ", "w4", "", "w5 w6 w7 w8 w9"]
    packed = pack_rows(texts, tokenizer, length=5, ends=True)
    assert [row["input_ids"].tolist() for row in packed] == [[BOS, 1, 2, 3, EOS], [BOS, 4, EOS], [BOS, 5, 6, 7, 8]]
    assert (len(packed.tokens), packed.target_count) == (13, 10)
    plain = pack_rows(texts, tokenizer, length=5)
    assert [row["input_ids"].tolist() for row in plain] == [[1, 2, 3], [5, 6, 7, 8, 9]]  # one token predicts nothing


def test_rows_of_more_than_one_batch_keep_their_order_and_report_progress() -> None:
    texts = [f"w{i % WORDS} w{i // WORDS % WORDS}" for i in range(2_300)]
    seen: list[tuple[int, int]] = []
    packed = pack_rows(texts, make_tokenizer(), length=2, progress=lambda done, total: seen.append((done, total)))
    assert [row["input_ids"].tolist() for row in packed] == [[i % WORDS, i // WORDS % WORDS] for i in range(2_300)]
    assert seen == [(1000, 2300), (2000, 2300), (2300, 2300)]


def test_rows_without_a_target_are_refused() -> None:
    with pytest.raises(DataError, match="No target token is left in 3 texts"):
        pack_rows(["w1", "", "w2"], make_tokenizer(), length=8)


def test_the_collator_pads_on_the_right_and_keeps_a_real_token_equal_to_the_pad() -> None:
    packed = pack_rows(["w1", "w2 w3"], make_tokenizer(), length=8, ends=True)
    batch = RowCollator(pad_id=EOS)(list(packed))
    assert torch.equal(batch["input_ids"], torch.tensor([[BOS, 1, EOS, EOS], [BOS, 2, 3, EOS]]))
    assert torch.equal(batch["attention_mask"], torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]))
    assert torch.equal(batch["labels"], torch.tensor([[BOS, 1, EOS, -100], [BOS, 2, 3, EOS]]))


# A tokenizer trained on texts at hand: any text comes back, and no symbol is added.

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


@pytest.mark.parametrize("ends", [False, True])
def test_numbers_of_texts_follow_their_tokens(ends: bool) -> None:
    """Also after blank texts and texts without the marker, which are left out, and over several groups of texts."""
    texts = ["w1 w2 w3", "", "w4 w5", "w6 w2 w7 w8"] * 400
    values = [[1.0, 2.0, 3.0], [], [9.0, 9.0], [4.0, 5.0, 6.0, 7.0]] * 400
    if ends:
        values = [[*value, 0.5] for value in values]
    numbers = [{"c": Numbers("f", [value])} for value in values]
    rows = pack_rows(texts, make_tokenizer(), length=4, ends=ends, mask_until="w2", numbers=numbers)
    expected = [[0.0, 1.0, 2.0, 3.0], [0.0, 4.0, 5.0, 6.0]] if ends else [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    assert [row["c"].tolist() for row in rows] == expected * 400
    assert rows.first(8)[1]["c"].tolist() == expected[1]
    batch = RowCollator(0)([rows[0], rows[1]])
    assert batch["c"].dtype == torch.float32
    numbers[2] = {"c": Numbers('f:3: "c"', [[1.0]])}
    with pytest.raises(DataError, match='f:3: "c" has 1 numbers for '):
        pack_rows(texts, make_tokenizer(), length=4, ends=ends, numbers=numbers)
