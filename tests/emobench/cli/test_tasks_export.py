"""`emobench tasks export`: lm-eval, run on what it writes, gives our own answers by the label's log-likelihood."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up data in the place of SST-2."""
    folder, generator = tmp_path_factory.mktemp("reviews"), random.Random(0)
    nouns, words = ["film", "plot", "cast", "music"], {"negative": ["dull", "flat"], "positive": ["warm", "bright"]}
    for split, count in (("train", 60), ("test", 12)):
        rows = []
        for i in range(count):
            label = generator.choice(list(words))
            text = f'the {generator.choice(nouns)} {i} is {generator.choice(words[label])} {{{{ and }}}} "so" on'
            rows.append({"text": text, "label": int(label == "positive"), "label_name": label})
        (folder / f"sst2.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def word_model(tmp_path_factory: pytest.TempPathFactory, reviews: Path) -> Path:
    """A GPT-2 of one layer with wide random weights, and a byte-level BPE that knows the words with their space."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "words"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    texts = (reviews / "sst2.train.jsonl").read_text().splitlines()
    tokenizer.train_from_iterator([*texts, *["It is positive. It is negative."] * 50], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<eos>", eos_token="<eos>")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 1024, "n_embd": 32, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(fast), bos_token_id=0, eos_token_id=0, **sizes))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def by_lm_eval(model: Path, folder: Path, task: str) -> list[dict[str, Any]]:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lm = HFLM(
        pretrained=AutoModelForCausalLM.from_pretrained(model),
        tokenizer=AutoTokenizer.from_pretrained(model),
        batch_size=4,
    )
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0)["samples"][task]


def both(command: Callable[..., Any], model: Path, data: Path, place: Path, *more: object) -> tuple[list[Any], ...]:
    """Return the samples of lm-eval on the exported task, and our own."""
    rules = ("--set", "icl.retriever=bm25", "--data-dir", data, "--runs", place / "runs", "--offline", "--quiet", *more)
    done = command("tasks", "export", "sst2", place / "exported", *rules, "--json")
    assert (done.code, done.err) == (0, "")
    assert sorted(Path(f).name for f in done.json["files"]) == ["emobench_sst2.test.jsonl", "emobench_sst2.yaml"]
    board = ("--suite", "nlu", "--set", "tasks=sst2", "--set", "icl.scorer=label", "--leaderboard", place / "board")
    done = command("evaluate", "--model", model, *board, *rules).ok()
    (samples,) = (place / "runs" / "generate").glob("*/samples.jsonl")
    ours = [json.loads(line) for line in samples.read_text().splitlines()]
    theirs = by_lm_eval(model, place / "exported", "emobench_sst2")
    return sorted(theirs, key=lambda row: row["doc"]["id"]), sorted(ours, key=lambda row: row["id"])


def check_alike(theirs: list[Any], ours: list[Any]) -> None:
    assert [row["doc"]["id"] for row in theirs] == [row["id"] for row in ours]
    assert [row["doc"]["ice_ids"] for row in theirs] == [row["shots"] for row in ours]
    for one, other in zip(theirs, ours, strict=True):
        likelihoods = [value for value, _ in one["filtered_resps"]]
        assert likelihoods == pytest.approx([-nats for nats in other["label_nats"]], abs=2e-4)
        # The protocol's ties are the order of the choices.
        right = ("positive", "negative").index(other["label"])
        assert one["doc"]["gold"] == right
        assert one["acc"] == float(likelihoods.index(max(likelihoods)) == right)


def test_lm_eval_gives_our_likelihoods(
    command: Callable[..., Any], word_model: Path, reviews: Path, tmp_path: Path
) -> None:
    theirs, ours = both(command, word_model, reviews, tmp_path)
    assert len(theirs) == 12
    assert len({row["acc"] for row in theirs}) == 2  # some are right and some are not
    check_alike(theirs, ours)


@pytest.mark.slow
def test_sst2_itself_with_a_trained_model(
    command: Callable[..., Any], real_files: Path, real_model: Path, tmp_path: Path
) -> None:
    more = ("--set", "icl.shots=4", "--limit", 40)
    theirs, ours = both(command, real_model, real_files / "data" / "icl", tmp_path, *more)
    assert {row["dropped"] for row in ours} == {0}
    check_alike(theirs, ours)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("oracle-language",), "is of kind oracle, and has no prompts with labels"),
        (("sst3",), "did you mean 'sst2'"),
        (("sst2", "--set", "icl.shots=900", "--set", "icl.retriever=fixed"), "fewer than 900; give more"),
        (("sst2", "--set", "recipe.epochs=1"), "a prompt is decided by icl.* and protocol alone"),
    ],
)
def test_what_cannot_be_exported_is_said(
    command: Callable[..., Any], reviews: Path, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    task, *more = given
    command("tasks", "export", task, tmp_path, *more, "--data-dir", reviews, "--runs", tmp_path / "runs").refused(said)
