"""Tasks of kind `oracle`, where data and models are read: loading, checks, generation and scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, MetricError
from emobench.core.reading import parse_mapping, read_text
from emobench.data.oracle.language import HiddenMarkovLanguage, oracle_language, oracle_tokenizer, oracle_words
from emobench.data.packing import pack_rows
from emobench.data.texts import Texts, load_texts
from emobench.inference.decoding.continuations import sample_continuations
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.kinds.cost import Cost
from emobench.kinds.generation.evaluate import check_featurizer
from emobench.kinds.generation.features import features_of
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import require_count
from emobench.kinds.oracle.distances import oracle_distances, oracle_perplexity
from emobench.kinds.oracle.rules import OracleProtocol
from emobench.kinds.views import WrittenText
from emobench.metrics.distances import DISTANCES
from emobench.metrics.mauve import MAUVE_RUNS, mauve_scores
from emobench.metrics.perplexity import perplexity
from emobench.metrics.rouge import rouge
from emobench.metrics.token_pass import evaluate_tokens
from emobench.models.head import probe_head, token_count
from emobench.models.model import Model
from emobench.tasks.scores import Score
from emobench.tasks.spec import Task

SAMPLES = "samples.json"
"""{"texts": [[ids, ended], ...], "continuations": [ids, ...]}"""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    return load_texts(task.corpus, "test", data_dirs=data_dirs, offline=offline)


def cost(task: Task, data: Texts | None, model: Model) -> Cost:
    return oracle_cost(task.protocol_as(OracleProtocol))


def oracle_cost(rules: OracleProtocol) -> Cost:
    """Count the tokens of samples and continuations, and of their comparison with as many texts of the language."""
    texts = min(rules.texts, rules.limit or rules.texts)
    return Cost(texts, round(texts * (4 * rules.length + 2 * (rules.prefix + rules.continuation))))


def check(task: Task, texts: Texts, model: Model) -> None:
    rules = task.protocol_as(OracleProtocol)
    words = oracle_words()
    if len(model.tokenizer) != len(words) + 1 or model.tokenizer.tokenize(words[0]) != [words[0]]:
        raise ConfigError(
            f"Task {task.name} compares the model with the oracle language, symbol by symbol; {model.name} has other "
            "symbols. Use --model tiny-oracle, or another suite: see `emobench suites list`."
        )
    longest = 1 + max(rules.length, rules.prefix + rules.continuation)  # and the start symbol
    if model.context is not None and longest > model.context:
        raise ConfigError(f"Task {task.name} needs {longest} symbols, but {model.name} reads at most {model.context}.")
    check_featurizer(task, rules.mauve.model, rules.mauve.max_length, rules.text_tokens, model)


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    rules, start = task.protocol_as(OracleProtocol), subject.tokenizer.eos_token_id
    free = Decoding(rule=Sampling(seed=rules.seed, suppress_eos=False), length=rules.length)
    count = _count(rules, rules.texts)
    alone = _sample(subject, f"sample {task.name}", [[start]] * count, "text", free)
    forced = Decoding(rule=Sampling(seed=rules.seed), length=rules.continuation)
    prefixes = [[start, *ids[: rules.prefix]] for ids in _long_enough(subject, rules, texts)]
    continued = _sample(subject, f"continue {task.name}", prefixes, "prefix", forced) if prefixes else []
    pairs, ids = [[c.ids, c.ended] for c in alone], [c.ids for c in continued]
    (folder / SAMPLES).write_text(json.dumps({"texts": pairs, "continuations": ids}) + "\n")


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    rules = task.protocol_as(OracleProtocol)
    language = oracle_language(rules.domain)
    samples = json.loads((folder / SAMPLES).read_text())
    require_count(folder / SAMPLES, "texts", len(samples["texts"]), _count(rules, rules.texts))
    prefixes = len(_long_enough(subject, rules, texts))
    require_count(folder / SAMPLES, "continuations", len(samples["continuations"]), prefixes)
    test = _ids(subject, texts)[: _count(rules, len(texts.texts))]
    scored = Scored()
    scored.add(("ppl_test",), partial(_test_perplexity, subject, texts, rules))
    scored.add(("ppl_oracle",), partial(_oracle_perplexity, language, samples["texts"]))
    scored.add(DISTANCES, partial(_distances, subject, language, test))
    scored.add(("mauve", "mauve_star"), partial(_mauve, subject, rules, test, samples["texts"], scored.files))
    scored.add(("rouge1", "rougeL"), partial(_rouge, subject, rules, texts, samples["continuations"]))
    return scored


def _distances(subject: Subject, language: HiddenMarkovLanguage, test: list[list[int]]) -> dict[str, Score]:
    with subject.work("exact distances", "texts") as progress:
        return oracle_distances(subject.model, language, test, progress=progress)


def _oracle_perplexity(language: HiddenMarkovLanguage, texts: list[Any]) -> dict[str, Score]:
    samples, ended = zip(*texts, strict=True) if texts else ((), ())
    return {"ppl_oracle": oracle_perplexity(language, samples, ended)}


def _test_perplexity(subject: Subject, texts: Texts, rules: OracleProtocol) -> dict[str, Score]:
    chosen = list(texts.texts)[: _count(rules, len(texts.texts))]
    rows = pack_rows(chosen, subject.tokenizer, length=1 + rules.length, ends=True)
    head = probe_head(subject.model, subject.tokenizer)
    sums = evaluate_tokens(subject.model, head, rows)  # type: ignore[arg-type]
    return {"ppl_test": perplexity(sums, list(map(str, range(len(rows)))))}


def _mauve(
    subject: Subject, rules: OracleProtocol, test: list[list[int]], samples: list[Any], files: dict[str, str]
) -> dict[str, Score]:
    human = list(filter(None, _texts(subject, [ids[: rules.length] for ids in test])))
    generated = list(filter(None, _texts(subject, [ids for ids, _ in samples])))
    # Neither side continues a prompt: pairs are in the order of both, so that the jackknife leaves out one of each.
    # Some models write an empty text; the surplus of the other side is left out, and all seeds have one aggregate.
    pairs = min(len(human), len(generated))
    human_ND = features_of(subject, rules.mauve, human, keep=True)[:pairs]
    generated_ND = features_of(subject, rules.mauve, generated[:pairs])
    scores, runs = mauve_scores(human_ND, [generated_ND], seeds=rules.mauve.seeds, ids=list(map(str, range(pairs))))
    files[MAUVE_RUNS] = runs
    return scores


def _rouge(subject: Subject, rules: OracleProtocol, texts: Texts, continuations: list[list[int]]) -> dict[str, Score]:
    human = _long_enough(subject, rules, texts)
    if not human:
        raise MetricError(f"No test text has the {rules.prefix + rules.continuation} words that ROUGE compares.")
    end = rules.prefix + rules.continuation
    references = _texts(subject, [ids[:end] for ids in human])
    rows = [[*ids[: rules.prefix], *new] for ids, new in zip(human, continuations, strict=True)]
    ids = list(map(str, range(len(human))))
    return rouge([_texts(subject, rows)], references, ids, variants=("rouge1", "rougeL"))


def _sample(
    subject: Subject, title: str, prompts: list[list[int]], kind: str, decoding: Decoding
) -> list[Continuation]:
    keys = [f"{kind} {i}" for i in range(len(prompts))]
    vocabulary = token_count(subject.tokenizer)
    with subject.work(title, "texts") as progress:
        samples = sample_continuations(
            subject.model, prompts, prompt_keys=keys, decoding=decoding, vocabulary=vocabulary, progress=progress
        )
    return [continuations[0] for continuations in samples]


def _long_enough(subject: Subject, rules: OracleProtocol, texts: Texts) -> list[list[int]]:
    shortest = rules.prefix + rules.continuation
    long = [ids for ids in _ids(subject, texts) if len(ids) >= shortest]
    return long[: _count(rules, rules.texts)]


def _ids(subject: Subject, texts: Texts) -> list[list[int]]:
    return subject.tokenizer(list(texts.texts), add_special_tokens=False)["input_ids"]


def _texts(subject: Subject, rows: list[list[int]]) -> list[str]:
    return [subject.tokenizer.decode(ids, skip_special_tokens=True) for ids in rows]


def _count(rules: OracleProtocol, count: int) -> int:
    return count if rules.limit is None else min(rules.limit, count)


def written_texts(path: Path, facts: Mapping[str, Any], data: Mapping[str, str]) -> list[WrittenText]:
    """Return the continuations in a file of samples; prefixes, and how the language goes on, are from its texts."""
    try:
        continued = parse_mapping(read_text(path))["continuations"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: expected JSON with `continuations`; run again to write it.") from None
    tokenizer, rules = oracle_tokenizer(), facts["rules"]
    texts = _generated_texts(facts, data)
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    begin, end = rules["prefix"], rules["prefix"] + rules["continuation"]
    human = [row for row in ids if len(row) >= end]
    written = []
    for index, row in enumerate(continued):
        prefix = rest = None
        if index < len(human):
            prefix = str(tokenizer.decode(human[index][:begin]))
            rest = str(tokenizer.decode(human[index][begin:end]))
        generated = str(tokenizer.decode(row))
        text = WrittenText(prompt=str(index), sample=0, prefix=prefix, human=rest, generated=generated, ended=False)
        written.append(text)
    return written


def _generated_texts(facts: Mapping[str, Any], data: Mapping[str, str]) -> list[str]:
    """Return the texts of the oracle language that a generation read; none where they were somebody's own."""
    for name, text in data.items():
        if text.startswith(facts["texts"]) and "(generated: " in text:
            corpus, _, split = name.rpartition(".")
            texts = load_texts(corpus, split, data_dirs=(), offline=True)
            if texts.fingerprint == facts["texts"]:
                return list(texts.texts)
    return []
