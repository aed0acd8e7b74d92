"""Tasks of kind `oracle`, where data and models are read: loading, checks, generation and scores.

The distances between a trained model Q and the oracle language P are exact: at every position of P's test texts both
next-symbol distributions are known in full, and compared as those of a surrogate are.

Legend: X texts, B of a batch, T positions, N positions that count, S states or distances, V symbols (EOS is V - 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import ConfigError, DataError, MetricError, ModelError
from emobench.core.reading import parse_mapping, read_text
from emobench.data.oracle.language import HiddenMarkovLanguage, oracle_language, oracle_tokenizer, oracle_words
from emobench.data.packing import pack_rows
from emobench.data.texts import Texts, load_texts
from emobench.inference.decoding.continuations import sample_continuations
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.kinds.cost import Cost, least
from emobench.kinds.generation.evaluate import check_featurizer, require_context
from emobench.kinds.generation.metric import features_of
from emobench.kinds.interface import Progress, Scored, Scores, Subject
from emobench.kinds.journal import require_count
from emobench.kinds.oracle.kind import OracleKind, OracleProtocol
from emobench.kinds.views import TestSize, WrittenText
from emobench.metrics.batching import reading
from emobench.metrics.distances import DISTANCES, distance_score
from emobench.metrics.distribution_distances import TOKEN_BUDGET, Distribution, LogProbs, compare, of_model
from emobench.metrics.mauve import MAUVE_RUNS, mauve_scores
from emobench.metrics.perplexity import perplexity
from emobench.metrics.rouge import rouge
from emobench.metrics.token_pass import evaluate_tokens
from emobench.models.head import context_of, probe_head, token_count
from emobench.models.model import Model
from emobench.tasks.scores import Measure, Score
from emobench.tasks.spec import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAMPLES = "samples.json"
"""{"texts": [[ids, ended], ...], "continued": [[prefix, human continuation, the model's], ...]}, all as ids."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    rules = task.protocol_as(OracleProtocol)
    return load_texts(task.corpus, rules.split, data_dirs=data_dirs, offline=offline)


def cost(task: Task, data: Texts | None, model: Model) -> Cost:
    """Count the tokens of samples and continuations, and of their comparison with as many texts of the language."""
    rules = task.protocol_as(OracleProtocol)
    return Cost(rules.count, rules.count * (4 * rules.length + 2 * (rules.prefix + rules.continuation)))


def metrics(task: Task) -> Mapping[str, Measure]:
    return OracleKind().measures


def test_size(task: Task, metric: str, data: Texts | None) -> TestSize:
    rules = task.protocol_as(OracleProtocol)
    texts = least(rules.texts, rules.limit, None if data is None else len(data))
    return TestSize(texts, texts)


def check(task: Task, texts: Texts, model: Model) -> None:
    rules = task.protocol_as(OracleProtocol)
    words = oracle_words()
    if len(model.tokenizer) != len(words) + 1 or model.tokenizer.tokenize(words[0]) != [words[0]]:
        raise ConfigError(
            f"Task {task.name} compares the model with the oracle language, symbol by symbol; {model.name} has other "
            "symbols. Use --model tiny-oracle, or another suite: see `emobench suites list`."
        )
    longest = 1 + max(rules.length, rules.prefix + rules.continuation)  # and the start symbol
    require_context(task, model, longest, "a text", "set a shorter oracle.length, oracle.prefix or oracle.continuation")
    check_featurizer(task, rules.mauve.model, rules.mauve.max_length, rules.length, model)


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    rules = task.protocol_as(OracleProtocol)
    start = subject.tokenizer.eos_token_id

    def sample(title: str, kind: str, prompts: list[list[int]], length: int, forced: bool) -> list[Continuation]:
        decoding = Decoding(rule=Sampling(seed=rules.seed, suppress_eos=forced), length=length)
        vocabulary = token_count(subject.tokenizer)
        keys = [f"{kind} {i}" for i in range(len(prompts))]
        with subject.work(f"{title} {task.name}", "texts") as progress:
            samples = sample_continuations(
                subject.model, prompts, prompt_keys=keys, decoding=decoding, vocabulary=vocabulary, progress=progress
            )
        return [continuations[0] for continuations in samples]

    alone = sample("sample", "text", [[start]] * rules.count, rules.length, False)
    pairs = []
    for ids in _long_enough(subject, rules, texts):
        pairs.append([ids[: rules.prefix], ids[rules.prefix : rules.prefix + rules.continuation]])
    prefixes = [[start, *prefix] for prefix, _ in pairs]
    continued = sample("continue", "prefix", prefixes, rules.continuation, True) if prefixes else []
    for pair, one in zip(pairs, continued, strict=True):
        pair.append(list(one.ids))
    samples = {"texts": [[one.ids, one.ended] for one in alone], "continued": pairs}
    (folder / SAMPLES).write_text(json.dumps(samples) + "\n")


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    rules = task.protocol_as(OracleProtocol)
    language = oracle_language(rules.domain)
    samples = json.loads((folder / SAMPLES).read_text())
    require_count(folder / SAMPLES, "texts", len(samples["texts"]), rules.count)
    expected = len(_long_enough(subject, rules, texts))
    require_count(folder / SAMPLES, "continuations", len(samples["continued"]), expected)
    test = _ids(subject, texts)[: rules.limit]
    scored = Scored()

    def decoded(rows: Iterable[list[int]], length: int | None = None) -> list[str]:
        return [subject.tokenizer.decode(ids[:length], skip_special_tokens=True) for ids in rows]

    def test_perplexity() -> Scores:
        chosen = list(texts.texts)[: rules.limit]
        rows = pack_rows(chosen, subject.tokenizer, length=1 + rules.length, ends=True)
        head = probe_head(subject.model, subject.tokenizer)
        sums = evaluate_tokens(subject.model, head, rows)  # type: ignore[arg-type]
        return {"ppl_test": perplexity(sums, list(map(str, range(len(rows)))))}

    def perplexity_under_language() -> Scores:
        ids, ended = zip(*samples["texts"], strict=True) if samples["texts"] else ((), ())
        return {"ppl_oracle": oracle_perplexity(language, ids, ended)}

    def distances() -> Scores:
        with subject.work("exact distances", "texts") as progress:
            return oracle_distances(subject.model, language, test, progress=progress)

    def mauve() -> Scores:
        human = list(filter(None, decoded(test, rules.length)))
        generated = list(filter(None, decoded([ids for ids, _ in samples["texts"]])))
        # Neither side continues a prompt: pairs are in the order of both, so that the jackknife leaves out one of each.
        # Some models write an empty text; the surplus of the other side is left out, and all seeds have one aggregate.
        pairs = min(len(human), len(generated))
        human_ND = features_of(subject, rules.mauve, human, keep=True)[:pairs]
        generated_ND = features_of(subject, rules.mauve, generated[:pairs])
        ids = list(map(str, range(pairs)))
        scores, runs = mauve_scores(human_ND, [generated_ND], seeds=rules.mauve.seeds, ids=ids)
        scored.files[MAUVE_RUNS] = runs
        return scores

    def overlap() -> Scores:
        if not samples["continued"]:
            raise MetricError(f"No test text has the {rules.prefix + rules.continuation} words that ROUGE compares.")
        references = []
        rows = []
        for prefix, human, new in samples["continued"]:
            references.append([*prefix, *human])
            rows.append([*prefix, *new])
        ids = list(map(str, range(len(rows))))
        return rouge([decoded(rows)], decoded(references), ids, variants=("rouge1", "rougeL"))

    scored.add(("ppl_test",), test_perplexity)
    scored.add(("ppl_oracle",), perplexity_under_language)
    scored.add(DISTANCES, distances)
    scored.add(("mauve", "mauve_star"), mauve)
    scored.add(("rouge1", "rougeL"), overlap)
    return scored


def _long_enough(subject: Subject, rules: OracleProtocol, texts: Texts) -> list[list[int]]:
    shortest = rules.prefix + rules.continuation
    return [ids for ids in _ids(subject, texts) if len(ids) >= shortest][: rules.count]


def _ids(subject: Subject, texts: Texts) -> list[list[int]]:
    return subject.tokenizer(list(texts.texts), add_special_tokens=False)["input_ids"]


def written_texts(path: Path) -> list[WrittenText]:
    """Return the continuations in a file of samples."""
    decode = oracle_tokenizer().decode
    written = []
    try:
        for index, ids in enumerate(parse_mapping(read_text(path))["continued"]):
            prefix, human, generated = map(str, map(decode, ids))
            written.append(
                WrittenText(prompt=str(index), sample=0, prefix=prefix, human=human, generated=generated, ended=False)
            )
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: expected JSON with `continued`; run again to write it.") from None
    return written


def oracle_distances(
    model: PreTrainedModel,
    language: HiddenMarkovLanguage,
    texts: Sequence[Sequence[int]],
    *,
    token_budget: int = TOKEN_BUDGET,
    progress: Progress | None = None,
) -> Scores:
    """Compare Q and P at every position of P's own texts (word ids without EOS), the EOS position included.

    Returns a Score for each of `metrics.distances.DISTANCES`, averaged over positions; an example is a text, its value
    the mean over its positions, its weight their number.
    The cross-entropies are those of the paper's Figure 2 (A.4.1), with the true P in place of a surrogate.

    Positions past the model's context are left out, and the scores then carry the flag `truncated`. ModelError where
    the model's symbols are not the language's; MetricError where there is no text.
    """
    if not texts:
        raise MetricError("The oracle distances need at least one text; give a limit of at least 1.")
    head = probe_head(model)
    symbols = language.emission_SV.shape[1]
    if head.tokens != symbols:
        raise ModelError(
            f"The model has {head.tokens} symbols, the oracle language {symbols}; "
            "the exact comparison needs a model made for that language."
        )
    context = context_of(model)
    rows = [[language.eos_id, *text][:context] for text in texts]
    counts = list(map(len, rows))
    with reading(model) as device:
        means_XS = compare(
            of_language(language),
            of_model(model, head),
            rows,
            counts,
            vocabulary=symbols,
            device=device,
            token_budget=token_budget,
            progress=progress,
        )
    flags = ("truncated",) if sum(counts) < sum(len(text) + 1 for text in texts) else ()
    ids = list(map(str, range(len(rows))))
    scores = {}
    for i, name in enumerate(DISTANCES):
        scores[name] = distance_score(name, means_XS[:, i], np.array(counts), ids, flags)
    return scores


def of_language(language: HiddenMarkovLanguage) -> Distribution:
    """Return the language's own P(. | prefix), for rows that begin with EOS."""

    def read(ids_BT: Tensor, inside_BT: Tensor) -> LogProbs:
        probs_NS = language.state_probs(ids_BT.cpu().numpy())[inside_BT.cpu().numpy()]
        return lambda part: torch.from_numpy(np.log(probs_NS[part] @ language.emission_SV)).to(ids_BT.device)

    return read


def oracle_perplexity(language: HiddenMarkovLanguage, samples: Sequence[Sequence[int]], ended: Sequence[bool]) -> Score:
    """Return PPL_oracle: P's perplexity of a model's own samples, the exponential of nats per symbol over all samples.

    `samples` are word ids without EOS; where `ended` is true the EOS that ended the sample counts,
    too. An example is a sample: nats per symbol, weighted by its symbols. Samples without any symbol are left out;
    MetricError where none is left.
    """
    counts_X = np.array(list(map(len, samples)), int) + np.array(ended, int)
    if not counts_X.sum():
        raise MetricError("PPL_oracle needs at least one sampled symbol; sample more or longer texts.")
    nats_X = -language.log_prob(samples, ended)
    examples = {}
    for i in np.flatnonzero(counts_X):
        examples[str(i)] = (float(nats_X[i] / counts_X[i]), float(counts_X[i]))
    return Score(
        value=float(np.exp(nats_X.sum() / counts_X.sum())),
        n=len(examples),
        higher_is_better=False,
        unit="perplexity",
        examples=examples,
        aggregate="exp_mean",
    )
