"""Parity with OpenICL itself: ordered shots, prompts, perplexities within 1e-5, answers with a margin above 2e-5.

Two runs of OpenICL with other batch sizes differ by up to 7.5e-7, so that 1e-6 would be too little.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from emobench.data.labelled import Example, LabelledData, load_labelled
from emobench.inference.scoring.scorer import PromptScorer
from emobench.kinds.icl.prompts import Draft, make_prompts
from emobench.kinds.icl.retrieval.shots import find_shots
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.registry import find_task
from emobench.tasks.spec import Task

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py

import openicl_peer

for module in openicl_peer.IMPORTED:
    pytest.importorskip(module)

TASKS = {"trec": 4, "sst2": 4, "subj": 4, "rotten_tomatoes": 4, "ag_news": 3}
"""Shots with which the prompts fit into 512 tokens."""
EOS, BOS = "<eos>", "<bos>"
PERPLEXITY, MARGIN = 1e-5, 2e-5


def wide(config: Any, std: float = 0.08) -> Any:
    """Return a random model whose predictions vary."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = hf.AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=std)
    return model.eval()


def model_of(kind: str, tokenizer: Any, context: int = 512) -> Any:
    special = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    match kind:
        case "gpt2":
            return wide(hf.GPT2Config(n_positions=context, n_embd=64, n_layer=2, n_head=4, **special))
        case "llama":
            config = hf.LlamaConfig(max_position_embeddings=context, intermediate_size=128, **sizes, **special)
            return wide(config, 0.15)
        case "opt":
            # Rows of the head that stand for no token, as in OPT itself: OpenICL's softmax has them.
            special["vocab_size"] += 7
            more = {"ffn_dim": 128, "word_embed_proj_dim": 64, "max_position_embeddings": context}
            return wide(hf.OPTConfig(**more, **sizes, **special))
    raise ValueError(kind)


def assert_parity(
    model: Any, tokenizer: Any, rules: IclProtocol, drafts: Sequence[Draft], engines: Sequence[str] = ("auto",)
) -> set[str]:
    """Compare everything, and return the answers."""
    expected = openicl_peer.openicl_scores(model, tokenizer, rules, drafts)
    prompts = make_prompts(drafts, tokenizer, rules, 512, task="parity")
    assert [scored.prompts for scored in expected] == [tuple(t for t, _ in draft.texts(rules)) for draft in drafts]
    assert not any(prompt.dropped for prompt in prompts)
    for engine in engines:
        scorer = PromptScorer(model, engine, unscored=tokenizer.eos_token_id)
        for batch in scorer.batches(prompts):
            for place, losses in zip(batch, scorer.losses([prompts[i] for i in batch]), strict=True):
                means = [nats / count for nats, count in zip(losses.prompt_nats, losses.prompt_tokens, strict=True)]
                assert means == pytest.approx(expected[place].perplexities, abs=PERPLEXITY, rel=0)
                first, second = sorted(expected[place].perplexities)[:2]
                if second - first > MARGIN:
                    assert rules.ties[means.index(min(means))] == expected[place].answer
    return {scored.answer for scored in expected}


def tokenizer_with(bos: str | None) -> Any:
    """Return a byte-level tokenizer of generated text that begins each text with a BOS: none, its own, or the EOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, special_tokens=[EOS, BOS], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator([sentence(random.Random(seed)) for seed in range(60)], trainer)
    if bos is not None:
        place = tokenizer.token_to_id(bos)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, place)])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, bos_token=bos or EOS, model_max_length=10**30
    )


WORDS = ("a", "dull", "warm", "story", "with", "people", "who", "speak", "about", "money", "war", "rain", "and", "long")


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 14)))


def generated(rules: IclProtocol, count: int) -> list[Draft]:
    draw = random.Random(3)

    def example(number: int, text: str) -> Example:
        return Example(id=str(number), fields={"text": text}, label=draw.choice(rules.ties))

    drafts = []
    for number in range(count):
        shots = tuple(example(i, sentence(draw)) for i in range(rules.shots))
        drafts.append(Draft(example=example(number, sentence(draw)), shots=shots))
    return drafts


TOPICS = IclProtocol(
    template='Question: "{text}" It is about {label}.',
    labels={"a": "rain", "b": "money and people", "c": "war", "d": "long evenings by some river", "e": "warm"},
    shots=4,
)


@pytest.mark.parametrize(("kind", "bos"), [("gpt2", None), ("llama", BOS), ("opt", EOS)])
def test_generated_data(kind: str, bos: str | None) -> None:
    tokenizer = tokenizer_with(bos)
    model = model_of(kind, tokenizer)
    answers = assert_parity(model, tokenizer, TOPICS, generated(TOPICS, 12), ("trie", "plain", "auto"))
    assert len(answers) >= 2


@pytest.mark.parametrize(
    "changes",
    [
        {"shots": 0},
        {"separator": "\n\n", "ties": ("e", "d", "c", "b", "a")},
        {"template": 'Review: "{text}" <{label}> of {text}', "shots": 2},
    ],
)
def test_other_rules(changes: dict[str, Any]) -> None:
    tokenizer, rules = tokenizer_with(None), replace(TOPICS, **changes)
    assert_parity(model_of("gpt2", tokenizer), tokenizer, rules, generated(rules, 4))


@pytest.mark.parametrize("bos", [None, EOS])
def test_literal_end_of_text_in_the_data(bos: str | None) -> None:
    tokenizer = tokenizer_with(bos)
    rules = IclProtocol(template="{text} It is {label}.", labels={"a": f"war{EOS}", "b": "rain"}, shots=1)
    drafts = generated(rules, 3)
    shot = Example(id="eos", fields={"text": f"some {EOS}{EOS} river"}, label="a")
    drafts[0] = Draft(example=drafts[0].example, shots=(shot,))
    assert_parity(model_of("gpt2", tokenizer), tokenizer, rules, drafts)


def test_labels_of_one_token_at_the_end() -> None:
    tokenizer = tokenizer_with(None)
    # Rotten Tomatoes in the official code: no full stop, so that no label has an input of its own.
    rules = IclProtocol(template="Review: {text} It is {label}", labels={"a": "war", "b": "rain"}, shots=2)
    drafts = generated(rules, 6)
    prompts = make_prompts(drafts, tokenizer, rules, None, task="parity")
    assert all(len(ids) == prompt.shared + 1 for prompt in prompts for ids in prompt.tokens)
    assert_parity(model_of("gpt2", tokenizer), tokenizer, rules, drafts, ("trie", "plain"))


CONTEXT = 100
"""Of the examples below two fit, and others lose a part of a label, or all of it and more."""


def too_long(kind: str = "gpt2") -> tuple[Any, Any, list[Draft], list[Any]]:
    """Return a model, a tokenizer that knows its context, examples of which some do not fit, and what OpenICL says."""
    tokenizer = tokenizer_with(BOS if kind == "llama" else None)
    model = model_of(kind, tokenizer, CONTEXT)
    tokenizer.model_max_length = CONTEXT
    counts = [1, 1, 1, *[2] * 9]
    drafts = [replace(d, shots=d.shots[:n]) for d, n in zip(generated(TOPICS, 12), counts, strict=True)]
    return model, tokenizer, drafts, openicl_peer.openicl_scores(model, tokenizer, TOPICS, drafts)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("engine", ["trie", "plain"])
def test_prompts_that_are_too_long_are_cut_at_their_end(kind: str, engine: str) -> None:
    model, tokenizer, drafts, expected = too_long(kind)
    rules = replace(TOPICS, too_long="cut_right")
    prompts = make_prompts(drafts, tokenizer, rules, CONTEXT, task="parity")
    assert 0 < sum(prompt.cut > 0 for prompt in prompts) < len(prompts)
    scorer = PromptScorer(model, engine, unscored=tokenizer.eos_token_id)
    ties = 0
    for batch in scorer.batches(prompts):
        for place, losses in zip(batch, scorer.losses([prompts[i] for i in batch]), strict=True):
            means = [nats / count for nats, count in zip(losses.prompt_nats, losses.prompt_tokens, strict=True)]
            assert means == pytest.approx(expected[place].perplexities, abs=PERPLEXITY, rel=0)
            if len(set(prompts[place].tokens)) == 1:
                ties += 1
                assert len(set(means)) == 1  # the label is cut off, and the first one answers
                assert rules.ties[means.index(min(means))] == expected[place].answer == rules.ties[0]
    assert ties > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["base-en-7m", "gpt2", "llama"])
def test_real_data(kind: str, real_files: Path, real_model: Path) -> None:
    tokenizer = hf.AutoTokenizer.from_pretrained(real_model)
    if kind == real_model.name:
        model = hf.AutoModelForCausalLM.from_pretrained(real_model).float()
    else:
        model = model_of(kind, tokenizer)
    answers = {}
    for name, shots in TASKS.items():
        task = find_task(name, overrides={"shots": shots})
        assert isinstance(task.protocol, IclProtocol)
        assert task.dataset is not None
        data = load_labelled(task.dataset, data_dirs=[real_files / "data" / "icl"], offline=True)
        draw = random.Random(0)
        drafts = [Draft(example=e, shots=tuple(draw.sample(list(data.pool), shots))) for e in data.test[:4]]
        answers[name] = assert_parity(model, tokenizer, task.protocol, drafts, ("trie", "plain"))
    assert sum(map(len, answers.values())) > len(answers), answers


def assert_same_shots(subject: Subject, task: Task, data: LabelledData) -> None:
    rules = task.protocol_as(IclProtocol)
    with openicl_peer.adapted_openicl():
        folder = subject.sentence_encoder("").folder
        expected = openicl_peer.topk_retriever(rules, data, folder).retrieve()
    places = {example.id: place for place, example in enumerate(data.pool)}
    assert [[places[shot.id] for shot in row] for row in find_shots(subject, task, data)] == expected
    assert all(len(row) == rules.shots for row in expected)


@pytest.mark.parametrize("shots", [1, 3, 8])
@pytest.mark.parametrize("query_text", ["raw", "gpt2-decoded"])
def test_shots_among_duplicates(
    subject: Any, encoder_folder: Path, made: LabelledData, shots: int, query_text: Any
) -> None:
    rules = IclProtocol(template="{text} {label}", labels={"no": "a", "yes": "b"}, shots=shots, query_text=query_text)
    task = Task(name="made", kind="icl", version=1, corpus="made", protocol_name="own", protocol=rules)
    assert_same_shots(subject(encoder_folder), task, made)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trec", "sst2", "subj", "rotten_tomatoes", "ag_news"])
def test_shots_on_real_data(subject: Any, minilm: Path, real_files: Path, name: str) -> None:
    """60 of the pool, beginning with texts that stand in it twice, and 12 test examples."""
    task = find_task(name)
    assert task.dataset is not None
    full = load_labelled(task.dataset, data_dirs=[real_files / "data" / "icl"], offline=True)
    counts = Counter(example.fields["text"] for example in full.pool)
    pool = sorted(full.pool, key=lambda example: counts[example.fields["text"]] == 1)[:60]
    assert_same_shots(subject(minilm), task, LabelledData(name, pool, full.test[:12], {}))
