"""Tasks of kind `generation`, where data and models are read: loading, checks, generation and scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from emobench.core.errors import ConfigError, DataError, MetricError
from emobench.core.settings import PRETRAINED, content_hash
from emobench.data.packing import pack_blocks
from emobench.data.sampling_units import joined_units, text_digest
from emobench.data.texts import Texts, load_texts
from emobench.inference.decoding.request import Continuation, Decoding
from emobench.inference.vllm.package import check_backend
from emobench.kinds.cost import Cost, SplitSize, least, split_size
from emobench.kinds.generation.blocks import with_blocks
from emobench.kinds.generation.built_in import BUILT_IN, built_in
from emobench.kinds.generation.kind import METRICS, GenerationKind
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.prompts import admits, bos_ids, prompt_id, select_prompts, text_of
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedSample, GeneratedTexts, make_samples, sampling_runs
from emobench.kinds.interface import Scored, Scores, Subject
from emobench.kinds.journal import require_count
from emobench.kinds.rows import generate_rows, read_rows, write_rows
from emobench.kinds.views import TestSize, WrittenText
from emobench.metrics.perplexity import PPL_TEST, entropy, perplexity
from emobench.metrics.token_pass import TokenSums, evaluate_tokens
from emobench.models.head import probe_head
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

TOKENS_PER_WORD = 1.3
BATCH = 16384
"""Tokens of a batch of samples, prefixes included."""
SAMPLES = "samples.jsonl"
PROMPTS = "prompts.json"
"""How many texts gave prompts, and why the others did not (see SelectedPrompts.to_json)."""
SUMS = "sums.npz"
TEST_TEXT = ("ppl_test", "entropy")
"""The metrics that no prompt and no sample decides."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    rules = task.protocol_as(GenerationProtocol)
    texts = load_texts(task.corpus, rules.split, data_dirs=data_dirs, offline=offline)
    return texts.as_stream() if rules.documents == "stream" else texts


def cost(task: Task, data: Texts | None, model: Model) -> Cost:
    """Return `generation_cost`; the models of named metrics read each text once, as the featurizer does."""
    rules = task.protocol_as(GenerationProtocol)
    cost = generation_cost(rules, split_size(task.corpus, rules.split, data, model.bytes_per_token))
    read = cost.auxiliary_tokens
    if not read:
        return cost
    models = GenerationKind().key_facts(task, None).models
    return replace(cost, auxiliary_tokens={part: read.get(part, read["featurizer"]) for part in models})


def generation_cost(rules: GenerationProtocol, split: SplitSize) -> Cost:
    """Return the tokens of prefixes (once a prompt), of samples and of PPL_test's text, at most.

    The featurizer, the oracle and the sentence encoder, if the rules name them, read the samples once more.
    The human texts, which are read once for all runs, count for each.
    """
    words = TOKENS_PER_WORD if rules.unit == "words" else 1
    # No more texts are long enough than the split has tokens for.
    enough = None if split.tokens is None else max(round(split.tokens / (rules.shortest * words)), 1)
    prompts = least(rules.limit, split.rows, enough)
    read = split.tokens
    if rules.test_blocks is not None:
        read = least(read, rules.test_blocks * rules.max_length)
    if prompts is None or read is None:
        return Cost(prompts, None)
    prefix = rules.prefix * words
    samples = rules.sampling.samples
    new = rules.continuation + rules.sampling.extra_tokens
    text = prefix + new
    sampled = prompts * (prefix + samples * new)
    batches = max(-(-prompts * samples * text // BATCH), 1)
    auxiliary = {"featurizer": prompts * (samples + 1) * min(text, rules.mauve.max_length)}
    if rules.oracle.model is not None:
        auxiliary["oracle"] = prompts * samples * text
    if rules.coherence.encoder is not None:
        auxiliary["coherence"] = sampled
    rounded = {part: round(tokens) for part, tokens in auxiliary.items()}
    steps = round(batches * new)
    return Cost(prompts, round(sampled + read), steps=steps, batch_tokens=BATCH, auxiliary_tokens=rounded)


def metrics(task: Task) -> dict[str, Measure]:
    """Return the metrics of a task: of its test text, the built-in ones, and those that it names."""
    rules = task.protocol_as(GenerationProtocol)
    measures = {"ppl_test": PPL_TEST}
    for group in metrics_of(rules):
        measures.update(group.measures)
    return measures


def metrics_of(rules: GenerationProtocol) -> list[MetricGroup]:
    """Return the built-in metrics that a task computes, and those that it names."""
    return [*built_in(rules), *(METRICS.load(text).plugin for text in rules.metrics)]


def test_size(task: Task, metric: str, data: Texts | None) -> TestSize:
    """Return the prompts and their documents at most: how many tokens a text has is not counted."""
    rules = task.protocol_as(GenerationProtocol)
    if data is None:
        return TestSize(least(rules.limit, split_size(task.corpus, rules.split, None, 4.0).rows))
    if metric in TEST_TEXT:
        documents = {unit for text, unit in zip(data.texts, data.units, strict=True) if text.strip()}
        return TestSize(len(documents), len(documents))
    admitted = []
    for text, unit in zip(data.texts[: rules.first_texts], data.units, strict=False):
        if admits(text, rules):
            admitted.append(unit)
    prompts = least(rules.limit, len(admitted))
    return TestSize(prompts, least(prompts, len(set(admitted))))


def check_metrics(named: Sequence[MetricGroup], where: str) -> None:
    """Raise ConfigError, which begins with `where`, if two metrics of a task have one name."""
    known: dict[str, str] = dict.fromkeys(TEST_TEXT, "a built-in metric")
    for cls in BUILT_IN:
        known |= dict.fromkeys(cls.measures, "a built-in metric")
    for metric in named:
        for name in metric.measures:
            if name in known:
                raise ConfigError(
                    f"{where}: `metrics` names {metric.name}, which gives '{name}', as {known[name]} does; drop one."
                )
            known[name] = metric.name


def check(task: Task, texts: Texts, model: Model) -> None:
    rules = task.protocol_as(GenerationProtocol)
    check_backend(rules.sampling.backend, model, "generation.sampling.backend")
    text_tokens = rules.text_tokens
    auxiliary = rules.auxiliary_models
    shorter = "give shorter generation.prefix and generation.continuation"
    if text_tokens is not None:  # how many tokens words are is only known when they are cut; sampling checks that
        # The last token is not read, but vLLM has a position for it.
        unread = rules.sampling.backend != "vllm"
        positions = len(bos_ids(model.tokenizer, rules)) + text_tokens - unread
        require_context(task, model, positions, "a prompt with its continuation", shorter)
        if "oracle" in auxiliary:  # if its tokens are about as long as ours
            require_context(
                task, model.other(auxiliary["oracle"]), text_tokens, "a text", f"{shorter}, or oracle.model"
            )
    block = f"add --set generation.max_length={model.context}"
    require_context(task, model, rules.max_length, "a block of the split's text", block)
    check_featurizer(task, auxiliary["featurizer"], rules.mauve.max_length, text_tokens, model)
    try:
        select_prompts(texts.texts, model.tokenizer, rules, limit=1)
    except DataError as error:
        raise DataError(f"Task {task.name}, {texts.corpus}.{texts.split} ({texts.origin}): {error}") from None


def require_context(task: Task, model: Model, tokens: int, what: str, way: str) -> None:
    """Raise ConfigError where a model does not read as many tokens as a text has."""
    if model.context is not None and tokens > model.context:
        raise ConfigError(
            f"Task {task.name}: {what} may have {tokens} tokens, and {model.name} reads at most {model.context}; {way}."
        )


def check_featurizer(task: Task, featurizer: AuxiliaryModel, reads: int, text_tokens: int | None, model: Model) -> None:
    """Raise ConfigError where a text may be longer than the featurizer's context."""
    other = model.other(featurizer)
    if featurizer.name == PRETRAINED and text_tokens is not None:  # the same model, whose tokens these are
        reads = min(text_tokens, reads)
    require_context(task, other, reads, "a featurized text", f"add --set mauve.max_length={other.context}")


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    """Write the samples of all prompts into `folder`, in the order of the prompts."""
    rules = task.protocol_as(GenerationProtocol)
    chosen = select_prompts(texts.texts, subject.tokenizer, rules, limit=rules.limit)
    prompts = chosen.prompts
    (folder / PROMPTS).write_text(chosen.to_json())
    # Recorded with a result, they show how BOS was handled.
    (folder / "first_prompt_ids.json").write_text(f"{list(prompts[0].prefix_ids[:8])}\n")
    ids = {prompt.id: prompt.prefix_ids for prompt in prompts}
    decoding = Decoding(rule=rules.sampling, length=rules.continuation)

    def rows_of(index: int, continuations: Sequence[Continuation]) -> list[GeneratedSample]:
        return make_samples(prompts[index], continuations, subject.tokenizer)

    given = (ids, decoding, rows_of, f"sample {task.name}: {chosen}", "prompts")
    write_rows(folder / SAMPLES, generate_rows(subject, GeneratedSample, folder, *given))


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    """Compute every metric of the samples that `folder` holds."""
    rules = task.protocol_as(GenerationProtocol)
    samples = read_rows(GeneratedSample, folder / SAMPLES)
    prompts = json.loads((folder / PROMPTS).read_text(encoding="utf-8"))
    require_count(folder / SAMPLES, "texts", len(samples), prompts["used"] * rules.sampling.samples)
    runs = sampling_runs(samples, rules.joiner)
    units = units_of(runs, texts)
    scored = Scored()
    scored.add(TEST_TEXT, partial(_test_text, subject, rules, texts))
    for metric in metrics_of(rules):
        models = {**rules.auxiliary_models, **metric.models}
        context = MetricContext(subject, rules, models, scored.files)
        scored.add(tuple(metric.measures), partial(_scores, metric, runs, context, units))
    fewer = prompts["limit"] is not None and prompts["used"] < prompts["limit"]
    flags = ("fewer_prompts",) if fewer else ()
    for name in scored.scores.keys() - set(TEST_TEXT):
        value = scored.scores[name]
        scored.scores[name] = replace(value, units=value.units or units, flags=(*value.flags, *flags))
    return scored


def _scores(metric: MetricGroup, texts: GeneratedTexts, context: MetricContext, units: Mapping[str, str]) -> Scores:
    """Return the scores of a metric, those of a corpus with pseudo-values by blocks of prompts."""
    scores = metric.score(texts, context)
    if scores.keys() != metric.measures.keys():
        raise MetricError(
            f"{metric.name} returns {', '.join(scores) or 'nothing'}; expected {', '.join(metric.measures)}."
        )
    return with_blocks(metric, texts, context, scores, units)


def _test_text(subject: Subject, rules: GenerationProtocol, texts: Texts) -> Scores:
    """Return PPL_test and entropy, by sampling unit; the sums are kept, since no other rule changes them."""
    facts = {
        "subject": dict(subject.facts),
        "texts": texts.fingerprint,
        "length": rules.max_length,
        "blocks": rules.test_blocks,
        "units": content_hash(list(texts.units)),
    }
    units = list(dict.fromkeys(texts.units))

    def work(folder: Path) -> None:
        """Read the text in blocks, and sum each token's statistics into the unit that the token is of."""
        rows = pack_blocks(texts.texts, subject.tokenizer, length=rules.max_length, with_sources=True)
        if rules.test_blocks is not None:
            rows = rows.first(rules.test_blocks * rules.max_length)
        assert rows.sources is not None
        place = {unit: i for i, unit in enumerate(units)}
        of_token = np.array([place[unit] for unit in texts.units])[rows.sources]
        groups = np.split(of_token, rows.offsets[1:-1])
        head = probe_head(subject.model, subject.tokenizer)
        needs = {"entropy"}
        with subject.work("perplexity of the test text", "blocks") as progress:
            sums = evaluate_tokens(subject.model, head, rows, needs, groups=groups, progress=progress)  # type: ignore[arg-type]
        sums.save(folder / SUMS)

    sums = TokenSums.load(subject.keep("perplexity", facts, work) / SUMS)
    ids = units[: len(sums.tokens_R)]  # a limit leaves the last ones unread
    return {"ppl_test": perplexity(sums, ids), "entropy": entropy(sums, ids)}


def units_of(runs: GeneratedTexts, texts: Texts) -> dict[str, str]:
    """Return the sampling unit of each prompt that was sampled with others: of one document, or with equal prefixes."""
    contents = {}
    documents = {}
    for key, prefix in zip(runs.ids, runs.prefixes, strict=True):
        contents[key] = [text_digest(prefix)]
        documents[key] = texts.units[text_of(key)]
    return joined_units(contents, documents)


def source_texts(task: Task, texts: Texts) -> dict[str, str]:
    return {prompt_id(text, index): text for index, text in enumerate(texts.texts)}


def written_texts(path: Path) -> list[WrittenText]:
    """Return the continuations in a file of samples."""
    texts = []
    for one in read_rows(GeneratedSample, path):
        text = WrittenText(
            prompt=one.prompt_id,
            sample=one.sample,
            prefix=one.prefix_text,
            human=one.reference_text.removeprefix(one.prefix_text),
            generated=one.continuation_text,
            ended=one.ended,
        )
        texts.append(text)
    return texts
