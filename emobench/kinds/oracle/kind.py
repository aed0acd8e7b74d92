"""Tasks of kind `oracle`: a model of the oracle language against the language itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from emobench.data.oracle import HiddenMarkovLanguage, oracle_language, oracle_words
from emobench.data.packing import pack_rows
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError, MetricError
from emobench.kinds.counts import require_count
from emobench.kinds.generation.decoding.continuations import sample_continuations
from emobench.kinds.generation.decoding.request import Continuation, Decoding
from emobench.kinds.generation.features import features_of
from emobench.kinds.generation.kind import check_featurizer
from emobench.kinds.interface import BaseModel, Beside, Packages, Scored, Subject
from emobench.kinds.oracle.distances import oracle_distances, oracle_perplexity
from emobench.metrics.distribution_distances import DISTANCES
from emobench.metrics.mauve.score import MAUVE_PACKAGES, MAUVE_RUNS, mauve_scores
from emobench.metrics.perplexity import perplexity
from emobench.metrics.rouge import rouge, rouge_packages
from emobench.metrics.token_pass import evaluate_tokens
from emobench.models.head import probe_head, token_count
from emobench.tasks.generation import OracleProtocol, Sampling
from emobench.tasks.scores import Score
from emobench.tasks.spec import Task

SAMPLES = "samples.json"
"""{"texts": [[ids, ended], ...], "continuations": [ids, ...]}"""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    return load_texts(task.corpus, "test", data_dirs=data_dirs, offline=offline)


def models(task: Task) -> dict[str, Beside]:
    return {"featurizer": Beside(task.protocol_as(OracleProtocol).mauve.featurizer, "features")}


def packages(task: Task) -> Packages:
    return Packages(scores=(*MAUVE_PACKAGES, *rouge_packages(stemming=False)))


def check(task: Task, texts: Texts, model: BaseModel) -> None:
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
    check_featurizer(task, models(task)["featurizer"], rules.mauve.max_length, rules.text_tokens, model)


def generation_rules(task: Task) -> dict[str, Any]:
    rules = task.protocol_as(OracleProtocol)
    return {
        name: getattr(rules, name) for name in ("domain", "texts", "length", "prefix", "continuation", "seed", "limit")
    }


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    rules, start = task.protocol_as(OracleProtocol), subject.tokenizer.eos_token_id
    free = Decoding(rule=Sampling(seed=rules.seed, suppress_eos=False), length=rules.length)
    count = _count(rules, rules.texts)
    alone = _sample(subject, f"sample {task.name}", [[start]] * count, "text", free)
    forced = Decoding(rule=Sampling(seed=rules.seed), length=rules.continuation)
    prefixes = [[start, *ids[: rules.prefix]] for ids in _long_enough(subject, rules, texts)]
    continued = _sample(subject, f"continue {task.name}", prefixes, "prefix", forced) if prefixes else []
    plain = {"texts": [[c.ids, c.ended] for c in alone], "continuations": [c.ids for c in continued]}
    (folder / SAMPLES).write_text(json.dumps(plain) + "\n")


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    rules = task.protocol_as(OracleProtocol)
    language = oracle_language(rules.domain)
    samples = json.loads((folder / SAMPLES).read_text())
    require_count(folder / SAMPLES, "texts", len(samples["texts"]), _count(rules, rules.texts))
    require_count(
        folder / SAMPLES, "continuations", len(samples["continuations"]), len(_long_enough(subject, rules, texts))
    )
    test = _ids(subject, texts)[: _count(rules, len(texts.texts))]
    found = Scored()
    found.add(("ppl_test",), partial(_test_perplexity, subject, texts, rules))
    found.add(("ppl_oracle",), partial(_oracle_perplexity, language, samples["texts"]))
    found.add(DISTANCES, partial(_distances, subject, language, test))
    found.add(("mauve", "mauve_star"), partial(_mauve, subject, rules, test, samples["texts"], found.files))
    found.add(("rouge1", "rougeL"), partial(_rouge, subject, rules, texts, samples["continuations"]))
    return found


def _distances(subject: Subject, language: HiddenMarkovLanguage, test: list[list[int]]) -> dict[str, Score]:
    with subject.work("exact distances", "texts") as progress:
        return oracle_distances(subject.model, language, test, progress=progress)


def _oracle_perplexity(language: HiddenMarkovLanguage, texts: list[Any]) -> dict[str, Score]:
    return {"ppl_oracle": oracle_perplexity(language, [ids for ids, _ in texts], [ended for _, ended in texts])}


def _test_perplexity(subject: Subject, texts: Texts, rules: OracleProtocol) -> dict[str, Score]:
    chosen = list(texts.texts)[: _count(rules, len(texts.texts))]
    rows = pack_rows(chosen, subject.tokenizer, length=1 + rules.length, bos=True, eos=True)
    sums = evaluate_tokens(subject.model, probe_head(subject.model, subject.tokenizer), rows)  # type: ignore[arg-type]
    return {"ppl_test": perplexity(sums, [str(i) for i in range(len(rows))])}


def _mauve(
    subject: Subject, rules: OracleProtocol, test: list[list[int]], samples: list[Any], files: dict[str, str]
) -> dict[str, Score]:
    human = [text for text in _texts(subject, [ids[: rules.length] for ids in test]) if text]
    generated = [text for text in _texts(subject, [ids for ids, _ in samples]) if text]
    # Neither side continues a prompt: pairs are in the order of both, so that the jackknife leaves out one of each.
    # Some models write an empty text; the surplus of the other side is left out, and all seeds have one aggregate.
    pairs = min(len(human), len(generated))
    found = mauve_scores(
        features_of(subject, rules.mauve, human, keep=True)[:pairs],
        [features_of(subject, rules.mauve, generated[:pairs])],
        seeds=rules.mauve.seeds,
        ids=[str(i) for i in range(pairs)],
    )
    files[MAUVE_RUNS] = found.to_json()
    return found.scores


def _rouge(subject: Subject, rules: OracleProtocol, texts: Texts, continuations: list[list[int]]) -> dict[str, Score]:
    human = _long_enough(subject, rules, texts)
    if not human:
        raise MetricError(f"No test text has the {rules.prefix + rules.continuation} words that ROUGE compares.")
    end = rules.prefix + rules.continuation
    references = _texts(subject, [ids[:end] for ids in human])
    generated = _texts(subject, [[*ids[: rules.prefix], *new] for ids, new in zip(human, continuations, strict=True)])
    return rouge([generated], references, [str(i) for i in range(len(human))], variants=("rouge1", "rougeL"))


def _sample(
    subject: Subject, title: str, prompts: list[list[int]], kind: str, decoding: Decoding
) -> list[Continuation]:
    with subject.work(title, "texts") as progress:
        found = sample_continuations(
            subject.model,
            prompts,
            prompt_keys=[f"{kind} {i}" for i in range(len(prompts))],
            decoding=decoding,
            vocabulary=token_count(subject.tokenizer),
            progress=progress,
        )
    return [continuations[0] for continuations in found]


def _long_enough(subject: Subject, rules: OracleProtocol, texts: Texts) -> list[list[int]]:
    shortest = rules.prefix + rules.continuation
    found = [ids for ids in _ids(subject, texts) if len(ids) >= shortest]
    return found[: _count(rules, rules.texts)]


def _ids(subject: Subject, texts: Texts) -> list[list[int]]:
    return subject.tokenizer(list(texts.texts), add_special_tokens=False)["input_ids"]


def _texts(subject: Subject, rows: list[list[int]]) -> list[str]:
    return [subject.tokenizer.decode(ids, skip_special_tokens=True) for ids in rows]


def _count(rules: OracleProtocol, count: int) -> int:
    return count if rules.limit is None else min(rules.limit, count)
