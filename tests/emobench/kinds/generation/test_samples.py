"""Samples on disk: what is written is read, and text is decoded after its prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import DataError
from emobench.inference.decoding.request import Continuation
from emobench.kinds.generation.prompts import PromptRule, select_prompts
from emobench.kinds.generation.samples import GeneratedSample, make_samples, sampling_runs
from emobench.kinds.rows import read_rows, write_rows


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """As sentencepiece: a space belongs to the token after it, and decoding drops a text's first one."""
    vocab = {"<unk>": 0, "<s>": 1, "▁one": 2, "▁two": 3, "▁thr": 4, "ee": 5, '▁é\n"': 6}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="<unk>", continuing_subword_prefix=""))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>")


def test_samples_survive_the_disk_and_keep_the_space_between(tmp_path: Path) -> None:
    tokenizer = metaspace_tokenizer()
    rule = PromptRule(unit="tokens", prefix=2, continuation=2, bos="one")
    prompt = select_prompts(["one two three"], tokenizer, rule).prompts[0]
    assert prompt.prefix_ids == (1, 2, 3)
    samples = make_samples(prompt, [Continuation([4, 5, 6], False), Continuation([], True)], tokenizer)
    assert samples[0].continuation_text == ' three é\n"'
    assert sampling_runs(samples[:1], "").texts == [['one two three é\n"']]
    assert sampling_runs(samples[:1], " ").texts == [['one two  three é\n"']]  # the official code's double space
    assert (samples[1].continuation_text, samples[1].ended) == ("", True)
    path = tmp_path / "samples.jsonl"
    write_rows(path, samples)
    assert read_rows(GeneratedSample, path) == samples
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize("bos", ["none", "one"])
def test_an_unknown_word_is_the_same_text_whoever_wrote_it(bos: Any) -> None:
    tokenizer = metaspace_tokenizer()
    assert "<unk>" in tokenizer.all_special_tokens
    rule = PromptRule(unit="tokens", prefix=2, continuation=3, bos=bos)
    prompt = select_prompts(["one what two which three"], tokenizer, rule).prompts[0]
    assert (prompt.prefix_text, prompt.reference_text) == ("one<unk>", "one<unk> two<unk> thr")
    human = tokenizer("one what two which three", add_special_tokens=False)["input_ids"][2:5]
    (sample,) = make_samples(prompt, [Continuation(human, False)], tokenizer)
    assert sample.prefix_text + sample.continuation_text == prompt.reference_text


def test_a_line_that_is_no_sample_is_named(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"prompt_id": "a"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"samples\.jsonl:1: `sample` is missing"):
        read_rows(GeneratedSample, path)
    path.write_text("not json\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"samples\.jsonl:1: .*generate again"):
        read_rows(GeneratedSample, path)
