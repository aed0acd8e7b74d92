"""Tasks of kind `generation`, where data and models are read: loading, checks, generation and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.settings import PRETRAINED
from emobench.data.texts import Texts, load_texts
from emobench.inference.vllm.package import check_backend
from emobench.kinds.cost import Cost, SplitSize, least, split_size
from emobench.kinds.generation.built_in import BUILT_IN, built_in
from emobench.kinds.generation.generate import generate_samples
from emobench.kinds.generation.metric import MetricGroup
from emobench.kinds.generation.prompts import bos_ids, select_prompts
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import read_samples
from emobench.kinds.generation.score import TEST_TEXT, score_samples
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.views import WrittenText
from emobench.metrics.perplexity import PPL_TEST
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

TOKENS_PER_WORD = 1.3
BATCH = 16384
"""Tokens of a batch of samples, prefixes included."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    rules = task.protocol_as(GenerationProtocol)
    texts = load_texts(task.corpus, rules.split, data_dirs=data_dirs, offline=offline)
    return texts.as_stream() if rules.documents == "stream" else texts


def cost(task: Task, data: Texts | None, model: Model) -> Cost:
    rules = task.protocol_as(GenerationProtocol)
    return generation_cost(rules, split_size(task.corpus, rules.split, data, model.bytes_per_token))


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
    prefix, samples = rules.prefix * words, rules.sampling.samples
    new = rules.continuation + rules.sampling.extra_tokens
    text = prefix + new
    sampled = prompts * (prefix + samples * new)
    batches = max(-(-prompts * samples * text // BATCH), 1)
    auxiliary = {"featurizer": prompts * (samples + 1) * min(text, rules.mauve.max_length)}
    if rules.oracle.model is not None:
        auxiliary["oracle"] = prompts * samples * text
    if rules.coherence.encoder is not None:
        auxiliary["coherence"] = sampled
    return Cost(
        prompts,
        round(sampled + read),
        steps=round(batches * new),
        batch_tokens=BATCH,
        auxiliary_tokens={part: round(tokens) for part, tokens in auxiliary.items()},
    )


def measures(rules: GenerationProtocol, named: Sequence[MetricGroup]) -> dict[str, Measure]:
    """Return the metrics of a task: of its test text, the built-in ones, and those that it names."""
    groups = [*built_in(rules), *named]
    return {"ppl_test": PPL_TEST} | {name: measure for group in groups for name, measure in group.measures.items()}


def check_metrics(named: Sequence[MetricGroup], where: str) -> None:
    """Raise ConfigError, which begins with `where`, if two metrics of a task have one name."""
    known = {name: "built in" for metric in BUILT_IN for name in metric.measures} | dict.fromkeys(TEST_TEXT, "built in")
    for metric in named:
        for name in metric.measures:
            if name in known:
                raise ConfigError(
                    f"{where}: `metrics` names {metric.name}, which gives '{name}', and that is {known[name]}; drop "
                    "one of them."
                )
            known[name] = f"of {metric.name}"


def check(task: Task, texts: Texts, model: Model) -> None:
    rules = task.protocol_as(GenerationProtocol)
    check_backend(rules.sampling.backend, model, "generation.sampling.backend")
    _check_context(task, rules, model)
    auxiliary = rules.auxiliary_models
    check_featurizer(task, auxiliary["featurizer"], rules.mauve.max_length, rules.text_tokens, model)
    if "oracle" in auxiliary:
        _check_oracle(task, auxiliary["oracle"], rules.text_tokens, model)
    try:
        select_prompts(texts.texts, model.tokenizer, rules, limit=1)
    except DataError as error:
        raise DataError(f"Task {task.name}, {texts.corpus}.{texts.split} ({texts.origin}): {error}") from None


def _check_context(task: Task, rules: GenerationProtocol, model: Model) -> None:
    """Raise ConfigError where a prompt with its continuation, or a block of PPL_test, is longer than the context."""
    if model.context is None:
        return
    # How many tokens words are is only known when they are cut; sampling checks that. The last token is not read, but
    # vLLM has a position for it.
    unread = 0 if rules.sampling.backend == "vllm" else 1
    positions = 0 if rules.text_tokens is None else len(bos_ids(model.tokenizer, rules)) + rules.text_tokens - unread
    if positions > model.context:
        raise ConfigError(
            f"Task {task.name} needs {positions} tokens for a prompt with its continuation, but {model.name} reads at "
            f"most {model.context}; give shorter generation.prefix and generation.continuation."
        )
    if rules.max_length > model.context:
        raise ConfigError(
            f"Task {task.name} needs {rules.max_length} tokens for a block of the split's text, but {model.name} reads "
            f"at most {model.context}; add --set generation.max_length={model.context}."
        )


def check_featurizer(task: Task, featurizer: AuxiliaryModel, reads: int, text_tokens: int | None, model: Model) -> None:
    """Raise ConfigError where a text may be longer than the featurizer's context."""
    context = model.other(featurizer).context
    # The evaluated tokenizer's lengths bound the texts that the same model reads as a featurizer.
    longest = min(text_tokens, reads) if featurizer.name == PRETRAINED and text_tokens is not None else reads
    if context is not None and longest > context:
        raise ConfigError(
            f"Task {task.name}: the featurizer {featurizer.name} reads at most {context} tokens, and a text may "
            f"have {longest}; add --set mauve.max_length={context}."
        )


def _check_oracle(task: Task, oracle: AuxiliaryModel, text_tokens: int | None, model: Model) -> None:
    """Raise ConfigError where a text is longer than the oracle's context, if its tokens are about as long as ours."""
    context = model.other(oracle).context
    if context is not None and text_tokens is not None and text_tokens > context:
        raise ConfigError(
            f"Task {task.name}: the oracle {oracle.name} reads at most {context} tokens, and a text has {text_tokens}; "
            "take another with --set oracle.model=NAME, or shorter generation.prefix and generation.continuation."
        )


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    generate_samples(subject, task.name, task.protocol_as(GenerationProtocol), texts, folder)


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    return score_samples(subject, task.protocol_as(GenerationProtocol), texts, folder)


def written_texts(path: Path, facts: Mapping[str, Any], data: Mapping[str, str]) -> list[WrittenText]:
    """Return the continuations in a file of samples."""
    return [
        WrittenText(
            prompt=one.prompt_id,
            sample=one.sample,
            prefix=one.prefix_text,
            human=one.reference_text.removeprefix(one.prefix_text),
            generated=one.continuation_text,
            ended=one.ended,
        )
        for one in read_samples(path)
    ]
