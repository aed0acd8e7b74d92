"""Losses on disk: read as they were written, and the same file whatever interrupted the work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from emobench.core.errors import ConfigError, DataError, ModelError
from emobench.data.labelled import Example, LabelledData
from emobench.kinds.icl import evaluate as icl
from emobench.kinds.icl.answers import ExampleLosses
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED
from emobench.kinds.rows import read_rows, row_line, write_rows
from emobench.tasks.spec import Task

SAMPLE = ExampleLosses(
    id="9f86d081884c-17",
    label="pos",
    shots=("a-1", "b-2"),
    dropped=1,
    prompt_nats=(20.123456789012345, 1e-300),
    prompt_tokens=(7, 8),
    label_nats=(2.5, 0.1),
    label_tokens=(1, 2),
    label_bytes=(4, 9),
)
RULES = IclProtocol(
    template='"{text}" It is {label}.', labels={"neg": "bad", "pos": "very good"}, shots=2, retriever="random"
)
TASK = Task(name="mine", kind="icl", version=1, corpus="mine", protocol_name="p", protocol=RULES)
COUNT = 40


def example(place: int, split: str) -> Example:
    return Example(f"{split}-{place}", {"text": f"{split} {'word ' * (place % 7)}{place}"}, ("neg", "pos")[place % 2])


DATA = LabelledData(
    "mine",
    [replace(example(i, "train"), where=f"mine.train.jsonl:{i + 1}") for i in range(20)],
    [replace(example(i, "test"), where=f"mine.test.jsonl:{i + 1}") for i in range(COUNT)],
    {"mine.train": "sha256:1", "mine.test": "sha256:2"},
)


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def model() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 256, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.3}
        return GPT2LMHeadModel(GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **sizes)).eval()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({**{c: i for i, c in enumerate(alphabet)}, "<eos>": 256}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<eos>", eos_token="<eos>")


@pytest.fixture
def subject(model: Any, tokenizer: Any, tmp_path: Path) -> Callable[..., Subject]:
    """Return what makes a subject, whose work is interrupted after some batches of scoring."""

    def make(batches: int | None = None) -> Subject:
        @contextmanager
        def work(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
            seen = 0

            def progress(done: int, total: int) -> None:
                nonlocal seen
                seen += title.startswith("score")
                if seen and seen == batches:
                    raise Interrupted

            yield progress

        def keep(kind: str, facts: Any, make: Callable[[Path], None]) -> Path:
            folder = tmp_path / kind
            folder.mkdir(exist_ok=True)
            make(folder)
            return folder

        nothing: Any = None
        return Subject(model, tokenizer, nothing, work, nothing, keep, {})

    return make


def generated(subject: Subject, folder: Path, task: Task = TASK) -> bytes:
    folder.mkdir(exist_ok=True)
    icl.generate(subject, task, DATA, folder)
    return (folder / icl.SAMPLES).read_bytes()


# On disk.


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    other = replace(SAMPLE, id="größe-2", content_free_nats=(1.0, 2.0), label_tokens=())
    write_rows(path, [SAMPLE, other])
    assert read_rows(ExampleLosses, path) == [SAMPLE, other]
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[0])["prompt_nats"] == [20.123456789012345, 1e-300]


def test_what_is_no_sample_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    good, row = f"{row_line(SAMPLE)}\n", asdict(SAMPLE)
    for bad in ("{", "3", json.dumps({**row, "dropped": "one"}), json.dumps({**row, "nats": 1})):
        path.write_text(good + bad + "\n")
        with pytest.raises(DataError, match=rf"^{path}:2: .*; generate again"):
            read_rows(ExampleLosses, path)


# As work goes on.


@pytest.mark.parametrize("scorer", ["prompt", "calibrated"])
def test_an_interrupted_run_ends_with_the_same_file(subject: Any, tmp_path: Path, scorer: Any) -> None:
    task = replace(TASK, protocol=replace(RULES, scorer=scorer))
    undisturbed = generated(subject(), tmp_path / "whole", task)
    assert len(undisturbed.splitlines()) == COUNT
    folder = tmp_path / "interrupted"
    kept = 0
    for _ in range(2):
        with pytest.raises(Interrupted):
            generated(subject(2), folder, task)
        left = (folder / UNFINISHED).read_bytes()
        assert kept < len(left)
        assert len(set(left.splitlines())) < COUNT
        # The process died in the middle of a line: of the last batch, some examples stand and one is torn.
        torn = left[: left.rindex(b"\n", 0, len(left) - 1) + 30]
        (folder / UNFINISHED).write_bytes(torn)
        kept = len(torn)
    assert generated(subject(), folder, task) == undisturbed
    assert (folder / icl.FIRST_IDS).read_text() == (tmp_path / "whole" / icl.FIRST_IDS).read_text()


def test_what_is_finished_is_not_scored_again(subject: Any, tmp_path: Path, model: Any) -> None:
    passes: list[int] = []
    handle = model.transformer.register_forward_hook(lambda *_: passes.append(1))
    generated(subject(), tmp_path / "a")
    first = len(passes)
    generated(subject(), tmp_path / "a")
    probes = len(passes) - first
    passes.clear()
    with pytest.raises(Interrupted):
        generated(subject(2), tmp_path / "b")
    passes.clear()
    generated(subject(), tmp_path / "b")
    handle.remove()
    scored = first - probes
    assert scored >= 3
    assert len(passes) - probes == scored - 2


def test_a_sample_has_what_every_rule_needs(subject: Any, tmp_path: Path, tokenizer: Any) -> None:
    task = replace(TASK, protocol=replace(RULES, scorer="calibrated"))
    generated(subject(), tmp_path / "a", task)
    samples = read_rows(ExampleLosses, tmp_path / "a" / icl.SAMPLES)
    assert {sample.id for sample in samples} == {example.id for example in DATA.test}
    for sample in samples:
        assert sample.label_bytes == (3, 9)
        assert sample.label_tokens == (4, 10)  # bytes, with the full stop
        assert len(sample.content_free_nats) == 2
        assert sample.prompt_nats == ()  # the rule needs the labels' alone
        assert min(sample.label_nats) > 0
    first_ids = json.loads((tmp_path / "a" / icl.FIRST_IDS).read_text())
    assert tokenizer.convert_ids_to_tokens(first_ids)[:6] == list('"train')
    plain = generated(subject(), tmp_path / "b")
    assert all(sample["content_free_nats"] == [] for sample in map(json.loads, plain.splitlines()))


def test_a_content_free_input_is_the_mean_over_its_texts(subject: Any, tmp_path: Path) -> None:
    def free(*texts: str) -> dict[str, tuple[float, ...]]:
        rules = replace(RULES, scorer="calibrated", content_free=texts)
        folder = tmp_path / "-".join(str(len(t)) for t in texts)
        generated(subject(), folder, replace(TASK, protocol=rules))
        return {sample.id: sample.content_free_nats for sample in read_rows(ExampleLosses, folder / icl.SAMPLES)}

    one, other, both = free("N/A"), free("[MASK]"), free("N/A", "[MASK]")
    for key, nats in both.items():
        assert nats == pytest.approx([(a + b) / 2 for a, b in zip(one[key], other[key], strict=True)], abs=1e-6)
    # Shots are those of the example, so that a content-free loss differs from example to example.
    assert len(set(one.values())) > 1


def test_a_content_free_input_that_is_longer_than_the_examples_fits_too(
    subject: Any, tmp_path: Path, model: Any, tokenizer: Any
) -> None:
    """The prompts fit with their shots; with the content-free text in place of the example's none would."""
    context = model.config.max_position_embeddings
    alone = RULES.template.format(text="", label="very good")
    text = "word " * ((context - len(tokenizer(alone)["input_ids"])) // len(tokenizer("word ")["input_ids"]))
    rules = replace(RULES, scorer="calibrated", content_free=(text,))
    generated(subject(), tmp_path / "long", replace(TASK, protocol=rules))
    found = read_rows(ExampleLosses, tmp_path / "long" / icl.SAMPLES)
    assert {len(sample.shots) for sample in found} == {2}
    # Without shots, which do not fit, the content-free prompt is that of all examples.
    first = found[0].content_free_nats
    assert all(sample.content_free_nats == pytest.approx(first, abs=1e-3) for sample in found)


# What a plan refuses.


class Base:
    name, context = "tiny", 256

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


def test_a_prompt_that_never_fits_is_found_before_anything_is_scored(tokenizer: Any) -> None:
    short = replace(TASK, protocol=replace(RULES, max_length=40))
    with pytest.raises(
        ConfigError, match=r"Task mine, mine\.test\.jsonl:\d+: the prompt has \d+ tokens without any shot"
    ):
        icl.check(short, DATA, Base(tokenizer))
    icl.check(replace(TASK, protocol=replace(RULES, max_length=80)), DATA, Base(tokenizer))


def test_a_tokenizer_without_offsets_is_refused_for_label_rules_alone(tokenizer: Any) -> None:
    class Slow:
        is_fast, bos_token_id, eos_token_id = False, None, None

        def __call__(self, texts: Any, **given: Any) -> Any:
            assert not given.pop("return_offsets_mapping")
            return tokenizer(texts, **given)

    icl.check(TASK, DATA, Base(Slow()))
    with pytest.raises(ModelError, match="Task mine: this tokenizer has no fast form"):
        icl.check(replace(TASK, protocol=replace(RULES, scorer="label")), DATA, Base(Slow()))


def test_fewer_examples_than_the_task_has_give_no_number(subject: Any, tmp_path: Path) -> None:
    """Half of the answers may be the right ones."""
    whole = generated(subject(), tmp_path / "a")
    (tmp_path / "a" / icl.SAMPLES).write_bytes(b"".join(whole.splitlines(keepends=True)[: COUNT // 2]))
    with pytest.raises(
        DataError, match=rf"samples\.jsonl holds {COUNT // 2} examples, and the task has {COUNT}; .*run"
    ):
        icl.score(subject(), TASK, DATA, tmp_path / "a")
