"""Tasks of kind `generation`: continuations of the beginnings of real texts, and the perplexity of the split's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from emobench.config import PRETRAINED
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError, DataError
from emobench.kinds.generation.generate import generate_samples
from emobench.kinds.generation.prompts import bos_ids, select_prompts
from emobench.kinds.generation.score import score_samples
from emobench.kinds.interface import BaseModel, Beside, Packages, Scored, Subject
from emobench.metrics.mauve.score import MAUVE_PACKAGES
from emobench.metrics.rouge import rouge_packages
from emobench.tasks.generation import GenerationProtocol, PromptRule
from emobench.tasks.spec import Task


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    split = task.protocol_as(GenerationProtocol).split
    return load_texts(task.corpus, split, data_dirs=data_dirs, offline=offline)


def models(task: Task) -> dict[str, Beside]:
    rules = task.protocol_as(GenerationProtocol)
    found = {"featurizer": Beside(rules.mauve.featurizer, "features")}
    if rules.oracle.model is not None:
        found["oracle"] = Beside(rules.oracle.model, "lm")
    if rules.coherence.encoder is not None:
        found["coherence"] = Beside(rules.coherence.encoder, "sentences")
    return found


def packages(task: Task) -> Packages:
    rules = task.protocol_as(GenerationProtocol)
    encoder = () if rules.coherence.encoder is None else ("sentence-transformers",)
    return Packages(scores=(*MAUVE_PACKAGES, *rouge_packages(stemming=rules.stemming), *encoder))


def check(task: Task, texts: Texts, model: BaseModel) -> None:
    rules = task.protocol_as(GenerationProtocol)
    _check_context(task, rules, model)
    beside = models(task)
    check_featurizer(task, beside["featurizer"], rules.mauve.max_length, rules.text_tokens, model)
    if "oracle" in beside:
        _check_oracle(task, beside["oracle"], rules.text_tokens, model)
    try:
        select_prompts(texts.texts, model.tokenizer, rules, limit=1)
    except DataError as error:
        raise DataError(f"Task {task.name}, {texts.corpus}.{texts.split} ({texts.origin}): {error}") from None


def _check_context(task: Task, rules: GenerationProtocol, model: BaseModel) -> None:
    """Raise ConfigError where a prompt with its continuation, or a block of PPL_test, is longer than the context."""
    if model.context is None:
        return
    # How many tokens words are is only known when they are cut; sampling checks that. The last token is not read.
    positions = 0 if rules.text_tokens is None else len(bos_ids(model.tokenizer, rules)) + rules.text_tokens - 1
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


def check_featurizer(task: Task, featurizer: Beside, reads: int, text_tokens: int | None, model: BaseModel) -> None:
    """Raise ConfigError where a text may be longer than the featurizer's context."""
    context = model.known(featurizer).context
    # The evaluated tokenizer's lengths bound the texts that the same model reads as a featurizer.
    longest = min(text_tokens, reads) if featurizer.name == PRETRAINED and text_tokens is not None else reads
    if context is not None and longest > context:
        raise ConfigError(
            f"Task {task.name}: the featurizer {featurizer.name} reads at most {context} tokens, and a text may "
            f"have {longest}; add --set mauve.max_length={context}."
        )


def _check_oracle(task: Task, oracle: Beside, text_tokens: int | None, model: BaseModel) -> None:
    """Raise ConfigError where a text is longer than the oracle's context, if its tokens are about as long as ours."""
    context = model.known(oracle).context
    if context is not None and text_tokens is not None and text_tokens > context:
        raise ConfigError(
            f"Task {task.name}: the oracle {oracle.name} reads at most {context} tokens, and a text has {text_tokens}; "
            "take another with --set oracle.model=NAME, or shorter generation.prefix and generation.continuation."
        )


def generation_rules(task: Task) -> dict[str, Any]:
    rules = task.protocol_as(GenerationProtocol)
    decided = [*(field.name for field in fields(PromptRule)), "sampling", "limit"]
    return {name: getattr(rules, name) for name in decided}


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    generate_samples(subject, task.name, task.protocol_as(GenerationProtocol), texts, folder)


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    return score_samples(subject, task.protocol_as(GenerationProtocol), texts, folder)
