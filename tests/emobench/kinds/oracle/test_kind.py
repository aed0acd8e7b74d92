"""Scores of tasks of kind `oracle` from samples on disk, and what an empty sample changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from emobench.data.oracle.language import oracle_texts, oracle_tokenizer
from emobench.data.texts import Texts
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.oracle.evaluate import SAMPLES, generate, score
from emobench.kinds.oracle.kind import OracleProtocol
from emobench.metrics.distances import DISTANCES
from emobench.registry import find_task

TASK = "oracle-language"
COUNT = 40


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A GPT-2 of the oracle language's symbols, its own featurizer."""
    torch.manual_seed(0)
    tokenizer = oracle_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=64,
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel(config).eval()

    @contextmanager
    def work(title: str, unit: str) -> Iterator[Any]:
        yield lambda done, total: None

    def keep(kind: str, facts: Any, make: Any) -> Path:
        make(tmp_path)
        return tmp_path

    def nothing(*_: Any) -> Any:
        raise AssertionError("an oracle task needs no sentence encoder")

    own: Any = SimpleNamespace(model=model, tokenizer=tokenizer, identity={})
    return Subject(model, tokenizer, lambda _: own, work, nothing, keep, {})


def scored(subject: Subject, folder: Path) -> Scored:
    task = find_task(TASK)
    task = replace(task, protocol=replace(task.protocol_as(OracleProtocol), limit=COUNT))
    texts = Texts(TASK, "test", oracle_texts("target", "test")[:COUNT], "sha", "x")
    if not (folder / SAMPLES).exists():
        generate(subject, task, texts, folder)
    return score(subject, task, texts, folder)


def test_an_empty_sample_leaves_the_aggregate_of_mauve_as_it_is(subject: Subject, tmp_path: Path) -> None:
    whole = scored(subject, tmp_path)
    assert whole.missing == {}
    assert {"ppl_test", "ppl_oracle", "mauve", "mauve_star", "rouge1", "rougeL", *DISTANCES} == whole.scores.keys()
    samples = json.loads((tmp_path / SAMPLES).read_text())
    written = sum(bool(ids) for ids, _ in samples["texts"])
    samples["texts"][next(i for i, (ids, _) in enumerate(samples["texts"]) if ids)] = [[], True]
    (tmp_path / SAMPLES).write_text(json.dumps(samples))
    fewer = scored(subject, tmp_path)
    for name in ("mauve", "mauve_star"):
        assert (whole.scores[name].aggregate, whole.scores[name].n) == ("jackknife", written)
        assert (fewer.scores[name].aggregate, fewer.scores[name].n) == ("jackknife", written - 1)
        assert list(fewer.scores[name].examples or {}) == [str(i) for i in range(written - 1)]
