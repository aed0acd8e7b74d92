"""Prompts to samples on disk: an attempt that was interrupted anywhere ends in the same file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from emobench.core.errors import DataError
from emobench.data.texts import Texts
from emobench.inference.decoding import batched
from emobench.inference.decoding import continuations as sampling
from emobench.inference.decoding.request import Sampling
from emobench.kinds.generation.evaluate import PROMPTS, SAMPLES, generate
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedSample
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED
from emobench.kinds.rows import read_rows

WORDS = ["<eos>", "<unk>", *(f"w{i}" for i in range(60))]
RULES = GenerationProtocol(prefix=4, continuation=6, sampling=Sampling(samples=3, suppress_eos=False))
TASK: Any = SimpleNamespace(name="toy", protocol_as=lambda cls: RULES)


class Killed(BaseException):
    """What no handler expects."""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<eos>")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes: Any = {"vocab_size": len(WORDS), "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, initializer_range=0.3)).eval()


@pytest.fixture(scope="module")
def texts() -> Texts:
    draw = random.Random(0)
    found = [" ".join(draw.choices(WORDS[2:], k=draw.randint(8, 20))) for _ in range(40)]
    return Texts("toy", "test", found, "0", "generated: here")


@pytest.fixture
def subject_with(model: Any, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Subject]:
    def make(work: Callable[[str, str], Any] | None = None) -> Subject:
        nothing: Any = None
        return Subject(model, tokenizer, nothing, work or quiet, nothing, nothing, {})

    return make


@contextmanager
def quiet(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    yield lambda done, total: None


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of four prompts: a run has nine, so that it can be interrupted between them."""
    by_length = sampling.by_length
    monkeypatch.setattr(sampling, "by_length", lambda widths, budget: by_length(widths, 120))


def test_an_interrupted_generation_is_continued(
    subject_with: Callable[..., Subject], texts: Texts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    generate(subject_with(), TASK, texts, whole)
    decode, draw, decoded = batched.decode, random.Random(1), []

    def interrupted(model: Any, batch: Any) -> Any:
        if draw.random() < 0.3:
            raise Killed
        decoded.append(tuple(batch.keys))
        return decode(model, batch)

    monkeypatch.setattr(batched, "decode", interrupted)
    for attempt in range(8):
        part.mkdir()
        decoded.clear()
        interruptions = 0
        while True:
            try:
                generate(subject_with(), TASK, texts, part)
                break
            except Killed:
                interruptions += 1
                journal = part / UNFINISHED
                torn = journal.read_bytes() if journal.exists() else b""
                journal.write_bytes(torn[: max(0, len(torn) - draw.randint(0, 400))])  # inside a line
        # The journal's batches stand in the order in which they were made.
        for folder in (part, whole):
            (folder / UNFINISHED).unlink(missing_ok=True)
        assert {f.name: f.read_bytes() for f in part.iterdir()} == {f.name: f.read_bytes() for f in whole.iterdir()}
        # Batches whose lines were not torn are decoded once; a tear of 400 bytes reaches into two at most.
        assert len(decoded) <= len(set(decoded)) + 2 * interruptions
        part.rename(tmp_path / str(attempt))


def test_the_file_is_in_the_order_of_the_prompts(
    subject_with: Callable[..., Subject], texts: Texts, tmp_path: Path
) -> None:
    generate(subject_with(), TASK, texts, tmp_path)
    samples = read_rows(GeneratedSample, tmp_path / SAMPLES)
    keys = [(int(sample.prompt_id.split("-")[1]), sample.sample) for sample in samples]
    assert keys == sorted(keys)
    assert {sample for _, sample in keys} == {0, 1, 2}


def test_what_was_dropped_is_written_and_said(
    subject_with: Callable[..., Subject], texts: Texts, tmp_path: Path
) -> None:
    seen: list[tuple[str, str]] = []

    @contextmanager
    def work(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
        seen.append((title, unit))
        yield lambda done, total: seen.append((str(done), str(total)))

    long_enough = sum(len(text.split()) >= 10 for text in texts.texts)
    generate(subject_with(work), TASK, texts, tmp_path)
    counts = json.loads((tmp_path / PROMPTS).read_text())
    assert (counts["texts"], counts["used"], counts["too_short"]) == (40, long_enough, 40 - long_enough)
    assert counts["too_short"] > 0
    assert seen[0] == (f"sample toy: {long_enough} of 40 texts ({40 - long_enough} too short)", "prompts")
    assert seen[-1] == (str(long_enough), str(long_enough))
    none = Texts("toy", "test", ["w1 w2"], "0", "generated: here")
    with pytest.raises(DataError, match="None of 1 texts gives a prompt"):
        generate(subject_with(), TASK, none, tmp_path)
