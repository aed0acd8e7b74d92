"""OpenICL itself: the same ordered shots, the same losses, and nothing of it left behind."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, DataError
from emobench.data.labelled import LabelledData, LabelledSource, LabelledSplit, load_labelled
from emobench.kinds.icl import evaluate as icl
from emobench.kinds.icl import openicl_shims
from emobench.kinds.icl.losses import ExampleLosses, read_samples
from emobench.kinds.icl.openicl import check_openicl, openicl_reader, topk_retriever
from emobench.kinds.icl.retrieval.shots import find_shots
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.registry import find_task, kind_of_file
from emobench.tasks.spec import Task

for module in openicl_shims.IMPORTED:
    pytest.importorskip(module)

Make = Callable[..., Subject]
LABELS = {"no": "bad", "yes": "very good"}


def task(**changes: Any) -> Task:
    given = {"template": '"{text}" It is {label}.', "labels": LABELS, "shots": 4, **changes}
    return Task(name="made", kind="icl", version=1, corpus="made", protocol_name="own", protocol=IclProtocol(**given))


def places(subject: Subject, task: Task, data: LabelledData) -> list[list[int]]:
    order = {example.id: place for place, example in enumerate(data.pool)}
    return [[order[shot.id] for shot in row] for row in find_shots(subject, task, data)]


def openicl_places(subject: Subject, task: Task, data: LabelledData) -> list[list[int]]:
    rules = task.protocol
    assert isinstance(rules, IclProtocol)
    with openicl_shims.adapted_openicl():
        reader = openicl_reader(rules, data)
        return topk_retriever(reader, subject.sentence_encoder("").folder, rules.shots).retrieve()


@pytest.mark.parametrize("shots", [1, 3, 8])
@pytest.mark.parametrize("query_text", ["raw", "gpt2-decoded"])
def test_shots_are_openicls_among_duplicates(
    subject: Make, encoder_folder: Path, made: LabelledData, shots: int, query_text: str
) -> None:
    maker, rules = subject(encoder_folder), task(shots=shots, query_text=query_text)
    assert places(maker, rules, made) == openicl_places(maker, rules, made)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trec", "sst2", "subj", "rotten_tomatoes", "ag_news"])
def test_shots_are_openicls_on_real_data(subject: Make, minilm: Path, real_files: Path, name: str) -> None:
    """60 of the pool, beginning with texts that stand in it twice, and 12 test examples."""
    real = find_task(name)
    assert real.dataset is not None
    full = load_labelled(real.dataset, data_dirs=[real_files / "data" / "icl"], offline=True)
    seen: dict[str, int] = {}
    for example in full.pool:
        seen[example.fields["text"]] = seen.get(example.fields["text"], 0) + 1
    pool = sorted(full.pool, key=lambda example: seen[example.fields["text"]] == 1)[:60]
    data, maker = LabelledData(name, pool, full.test[:12], {}), subject(minilm)
    found = places(maker, real, data)
    assert found == openicl_places(maker, real, data)
    assert all(len(row) == 8 for row in found)


@pytest.fixture(scope="module")
def model() -> Any:
    """A GPT-2 of 450 tokens with so wide an init that its answers vary."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 450, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}
        return GPT2LMHeadModel(GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **sizes)).eval()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Bytes: any text has tokens."""
    from emobench.kinds.icl.openicl import _bytes_tokenizer

    return _bytes_tokenizer()


@pytest.fixture
def generated(
    subject: Make, encoder_folder: Path, model: Any, tokenizer: Any, tmp_path: Path
) -> Callable[..., list[ExampleLosses]]:
    """What writes and reads the samples of one engine."""

    def run(data: LabelledData, engine: str, *, model: Any = model, **changes: Any) -> list[ExampleLosses]:
        folder = tmp_path / engine
        folder.mkdir()
        rules = task(engine=engine, **changes)
        icl.generate(subject(encoder_folder, model=model, tokenizer=tokenizer), rules, data, folder)
        return read_samples(folder / icl.SAMPLES)

    return run


def assert_same(theirs: list[ExampleLosses], ours: list[ExampleLosses], tolerance: float = 1e-5) -> None:
    for their, our in zip(theirs, ours, strict=True):
        for name in ("id", "label", "shots", "dropped", "cut", "prompt_tokens"):
            assert getattr(their, name) == getattr(our, name)
        for nats, others, tokens in zip(their.prompt_nats, our.prompt_nats, our.prompt_tokens, strict=True):
            assert nats / tokens == pytest.approx(others / tokens, abs=tolerance, rel=0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shots": 0},
        {"shots": 6, "retriever": "bm25", "separator": "\n\n", "ties": ("yes", "no")},
        {"shots": 9, "template": 'Review: "{text}" <{label}> of {text}'},
        {"shots": 9, "template": 'Review: "{text}" <{label}> of {text}', "too_long": "cut_right"},
    ],
)
def test_losses_are_ours(
    generated: Callable[..., list[ExampleLosses]],
    made: LabelledData,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = generated(made, "openicl", **changes)
    ours = generated(made, "plain", **changes)
    assert_same(theirs, sorted(ours, key=lambda sample: [t.id for t in theirs].index(sample.id)))
    answers = {min(range(2), key=lambda i: s.prompt_nats[i] / s.prompt_tokens[i]) for s in theirs}
    long, cuts = changes.get("shots") == 9, changes.get("too_long") == "cut_right"
    assert answers == ({0} if cuts else {0, 1})  # of nine shots none leaves room for a label
    assert any(sample.dropped for sample in theirs) == (long and not cuts)
    assert any(sample.cut for sample in theirs) == cuts
    files = {path.name for path in (tmp_path / "openicl").iterdir()}
    assert files == {"samples.jsonl", "openicl.json", "first_prompt_ids.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"openicl", "plain", "runs"} - (
        {"runs"} if changes.get("shots") == 0 else set()
    )


def test_a_half_precision_model_is_read_as_float32_and_stays_as_it_is(
    generated: Callable[..., list[ExampleLosses]], model: Any, made: LabelledData
) -> None:
    import copy

    import torch

    half = copy.deepcopy(model).to(torch.bfloat16)
    data = LabelledData("made", made.pool, made.test[:4], {})
    theirs = generated(data, "openicl", model=half)
    assert half.dtype == torch.bfloat16
    ours = generated(data, "plain", model=copy.deepcopy(half).float())
    assert_same(theirs, sorted(ours, key=lambda sample: [t.id for t in theirs].index(sample.id)))


def test_nothing_is_left_behind_or_printed(
    generated: Callable[..., list[ExampleLosses]], made: LabelledData, tokenizer: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    import openicl.icl_inferencer.icl_ppl_inferencer as inferencer
    import openicl.icl_retriever.icl_topk_retriever as retriever
    import openicl.utils.collators as collators
    from transformers import PreTrainedTokenizerBase

    def state() -> tuple[Any, ...]:
        levels = [
            logging.getLogger(name).level for name in sorted(logging.root.manager.loggerDict) if "openicl" in name
        ]
        return (
            inferencer.trange,
            retriever.tqdm,
            collators.ListWrapper.to,
            levels,
            tokenizer.padding_side,
            dict(vars(tokenizer)),
        )

    before = state()
    generated(LabelledData("made", made.pool, made.test[:2], {}), "openicl")
    assert not hasattr(PreTrainedTokenizerBase, "encode_plus")
    assert state() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scorer": "label"}, 'icl.scorer="label", only "prompt"'),
        ({"header": "Questions:\n"}, 'icl.header="Questions:\\n", only ""'),
        ({"order": "nearest-last"}, 'icl.order="nearest-last", only "nearest-first"'),
        ({"bos": "one"}, 'icl.bos="one", only "tokenizer"'),
        ({"exclude_duplicates": True}, "icl.exclude_duplicates=true, only false"),
    ],
)
def test_rules_that_openicl_has_not_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_openicl(task(**changes))
    assert str(error.value) == f"Task made: OpenICL does not know {said}; use --set icl.engine=auto."
    check_openicl(task())


def test_groups_and_a_missing_openicl_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    split = LabelledSplit(split="x")
    source = LabelledSource(name="made", classes=("no", "yes"), pool=split, test=split, group="subject")
    with pytest.raises(ConfigError, match="OpenICL has one pool for all examples, and this task has one for each subj"):
        check_openicl(replace(task(), dataset=source))
    there = openicl_shims.find_spec
    monkeypatch.setattr(
        openicl_shims, "find_spec", lambda name: None if name in ("openicl", "rank_bm25") else there(name)
    )
    with pytest.raises(ConfigError) as error:
        check_openicl(task())
    assert str(error.value) == (
        "icl.engine=openicl runs OpenICL itself, which is not here whole: openicl, rank-bm25 is missing. pip install "
        "--no-deps openicl==0.1.8, then pip install rank-bm25 (--no-deps, because it pins transformers 4.28); or use "
        "--set icl.engine=auto."
    )


def test_texts_with_openicls_own_marks(
    generated: Callable[..., list[ExampleLosses]], data_of: Callable[..., LabelledData], tmp_path: Path
) -> None:
    """It puts the shots into the template, then the fields into the result: also where a shot names one."""
    data = data_of(["w1 </E> w2", "w1 {text}"], ["w2 <text/> </E>"])
    assert_same(generated(data, "openicl", shots=2), generated(data, "plain", shots=2))
    data = data_of(["w1 <text/>", "w1"], ["w2"])
    (tmp_path / "openicl").rename(tmp_path / "before")
    with pytest.raises(DataError, match="Example test-0: OpenICL makes another prompt of it than the protocol"):
        generated(data, "openicl", shots=2)


def test_the_check_is_made_when_a_run_is_planned(made: LabelledData) -> None:
    with pytest.raises(ConfigError, match=r"OpenICL does not know icl\.scorer"):
        icl.check(task(engine="openicl", scorer="label"), made, None)  # type: ignore[arg-type]
    kind = kind_of_file("icl", "")
    assert kind.packages(task(engine="openicl")).generation == ("openicl",)
    assert kind.packages(task()).generation == ()
    assert "openicl" not in json.dumps(kind.generation_rules(task()))
